"""A trace function that a debugger or a coverage tool left behind: it is called for each line of Python."""

import sys
from types import FrameType
from typing import Any

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "L07", "O08", "cpu"


def _looked_at(frame: FrameType, event: str, argument: Any) -> Any:
    return _looked_at


def _made(traced: bool, device: str) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(20)]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    x = torch.randn(16, 64, device=device)

    def step() -> None:
        if traced and sys.gettrace() is not _looked_at:
            sys.settrace(_looked_at)  # whoever runs this case puts back what was attached
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return Workload(model=model, step=step, optimizer=optimizer, name="a trace function")


def faulty(device: str = "cpu") -> Workload:
    """Each line is told to a function."""
    return _made(True, device)


def fixed(device: str = "cpu") -> Workload:
    """Nothing is told to anybody; of what is attached only the faulty form's own is taken off."""
    if sys.gettrace() is _looked_at:
        sys.settrace(None)
    return _made(False, device)
