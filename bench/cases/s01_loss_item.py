"""The loss is read in each step of a tiny model: little waits for it, so that little is gained without."""

from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "S01", "O02", "cpu"
NEGATIVE = True
TEMPTING = ("remove-sync", "log-less")


def _made(device: str = "cpu", *, read: bool) -> Workload:
    torch.manual_seed(0)
    layers = [
        torch.nn.Linear(7, 100), torch.nn.ReLU(), torch.nn.Linear(100, 100), torch.nn.ReLU(), torch.nn.Linear(100, 1),
    ]  # fmt: skip
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    x, y = torch.randn(5_000, 7, device=device), torch.randn(5_000, 1, device=device)
    total = torch.zeros((), device=device)

    def step() -> None:
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total.add_(loss.item() if read else loss.detach())

    return Workload(model=model, step=step, optimizer=optimizer, name="the loss is read")


faulty = partial(_made, read=True)  # `.item()` in each step
fixed = partial(_made, read=False)  # Added up where it is
