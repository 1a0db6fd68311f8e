"""An average over the weights that goes through the parameters one by one."""

import copy
from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "L09", "O11", "cpu"
LAYERS, WIDTH = 100, 64


def _made(device: str = "cpu", *, lists: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]).to(device)
    ema = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    x = torch.randn(16, WIDTH, device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            if lists:
                torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 0.001)
            else:
                for average, parameter in zip(ema.parameters(), model.parameters(), strict=True):
                    average.mul_(0.999).add_(parameter, alpha=0.001)

    return Workload(model=model, step=step, optimizer=optimizer, name="average of weights")


faulty = partial(_made, lists=False)  # Two operations a parameter
fixed = partial(_made, lists=True)  # One operation for the list of parameters
