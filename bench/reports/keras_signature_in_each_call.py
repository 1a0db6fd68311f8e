"""Layers that bind their arguments to their signature in each call."""

import inspect
from typing import Any

import torch

from gobrrr import Workload

SOURCE = "https://github.com/keras-team/keras/pull/23198"
MECHANISM = 1
CAUSE = "inspect.signature and its bind() in each call of each layer"
REPORTED = "1.9 us a call, 70,000 calls for 32 tokens"
NAMES = r"signature|\bbind|inspect|looks at Python"


class _Layer(torch.nn.Module):
    def __init__(self, width: int, *, sick: bool) -> None:
        super().__init__()
        self.inner, self.sick = torch.nn.Linear(width, width), sick

    def call(self, x: torch.Tensor, mask: torch.Tensor | None = None, *, training: bool = False) -> torch.Tensor:
        return self.inner(x)

    def forward(self, *given: Any, **named: Any) -> torch.Tensor:
        if self.sick:
            bound = inspect.signature(self.call).bind(*given, **named)  # cause
            bound.apply_defaults()  # cause
            return self.call(*bound.args, **bound.kwargs)
        return self.call(*given, **named)


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(_Layer(32, sick=sick) for _ in range(24))).to(device)
    x = torch.randn(8, 32, device=device)

    def step() -> torch.Tensor:
        with torch.no_grad():
            return model(x)

    return Workload(model=model, step=step, name="layers")
