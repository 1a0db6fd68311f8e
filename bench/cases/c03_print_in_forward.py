"""A compiled forward pass that reports on itself: each report breaks the graph."""

import io
from contextlib import redirect_stdout
from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "C03", "O10", "cpu"


class _Told(torch.nn.Module):
    def __init__(self, told: bool) -> None:
        super().__init__()
        self.first = torch.nn.Linear(256, 256)
        self.second = torch.nn.Linear(256, 256)
        self.told = told

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x)) * 0.5 + x
        if self.told:
            print("first layer done")
        x = torch.relu(self.second(x)) * 0.5 + x
        if self.told:
            print("second layer done")
        return x * 0.5 + 1


def _made(device: str = "cpu", *, told: bool) -> Workload:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = _Told(told).to(device)
    compiled = torch.compile(model.forward, backend="aot_eager")
    x = torch.randn(64, 256, device=device)

    def step() -> None:
        with torch.no_grad(), redirect_stdout(io.StringIO()):
            compiled(x)

    return Workload(model=model, step=step, name="print in the forward pass")


faulty = partial(_made, told=True)  # A print behind each layer
fixed = partial(_made, told=False)  # No print
