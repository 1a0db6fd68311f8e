"""An average over the weights that goes through the parameters one by one."""

from __future__ import annotations

import copy

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "L09", "O11", "cpu"
LAYERS, WIDTH = 100, 64


def _made(device: str, *, lists: bool) -> Workload:
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


def faulty(device: str = "cpu") -> Workload:
    """Two operations a parameter."""
    return _made(device, lists=False)


def fixed(device: str = "cpu") -> Workload:
    """One operation for the list of parameters."""
    return _made(device, lists=True)
