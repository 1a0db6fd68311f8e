"""A compiled function that asks for a tensor's value again and again: each time the graph breaks."""

from collections.abc import Callable
from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "C01", "O10", "cpu"


def _asks(x: torch.Tensor) -> torch.Tensor:
    x = x * 1.01 + 0.1
    if x.sum().item() > 0:
        x = torch.sin(x)
    x = x * 1.02 + 0.2
    if x.sum().item() > 0:
        x = torch.cos(x)
    x = x * 1.03 + 0.3
    if x.sum().item() > 0:
        x = torch.sin(x)
    x = x * 1.04 + 0.4
    if x.sum().item() > 0:
        x = torch.cos(x)
    return x


def _chooses(x: torch.Tensor) -> torch.Tensor:
    x = x * 1.01 + 0.1
    x = torch.where(x.sum() > 0, torch.sin(x), x)
    x = x * 1.02 + 0.2
    x = torch.where(x.sum() > 0, torch.cos(x), x)
    x = x * 1.03 + 0.3
    x = torch.where(x.sum() > 0, torch.sin(x), x)
    x = x * 1.04 + 0.4
    return torch.where(x.sum() > 0, torch.cos(x), x)


def _made(device: str = "cpu", *, function: Callable[[torch.Tensor], torch.Tensor]) -> Workload:
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="aot_eager")
    x = torch.ones(256, 256, device=device)

    def step() -> None:
        compiled(x)

    return Workload(step=step, name="branches on values")


faulty = partial(_made, function=_asks)  # Four branches on `.item()`
fixed = partial(_made, function=_chooses)  # The device chooses
