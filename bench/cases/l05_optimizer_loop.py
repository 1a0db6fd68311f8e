"""An optimizer that updates one parameter after the other."""

from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "L05", "O03", "cpu"
LAYERS = 100


def _made(device: str = "cpu", **options: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(LAYERS)]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), **options)
    x = torch.randn(16, 64, device=device)

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return Workload(model=model, step=step, optimizer=optimizer, name="optimizer loop")


faulty = partial(_made, foreach=False)  # A Python loop over two parameters a layer
fixed = partial(_made, fused=True)  # One fused kernel for all of them
