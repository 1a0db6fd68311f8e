"""The loss is looked at for NaN in each step: a wait on a GPU, none on a CPU."""

from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "S15", "O02", "cuda"


def _made(device: str = "cuda", *, look: bool) -> Workload:
    torch.manual_seed(0)
    width, rows = (2048, 2048) if device == "cuda" else (256, 64)  # on a GPU the device is the bound
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(8)]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    x = torch.randn(rows, width, device=device)
    total = torch.zeros((), device=device)

    def step() -> None:
        loss = model(x).square().mean()
        if look:
            if torch.isnan(loss) or torch.isinf(loss):
                return
            total.add_(loss.detach())
        else:
            total.add_(loss.detach().nan_to_num(0.0, 0.0, 0.0))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return Workload(model=model, step=step, optimizer=optimizer, name="nan check")


faulty = partial(_made, look=True)  # `if torch.isnan(loss) or torch.isinf(loss)`
fixed = partial(_made, look=False)  # `nan_to_num` on the device
