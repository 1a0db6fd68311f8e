"""A step that makes many Python objects: the collector comes along again and again to visit them."""

from functools import partial
from typing import Any

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "H01", "O07", "cpu"
SAMPLES = 4_000


def _records() -> list[Any]:
    return [[number, []] for number in range(SAMPLES)]


def _arrays() -> list[Any]:
    return [torch.arange(SAMPLES)]


def _made(device: str = "cpu", *, objects: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Linear(256, 256).to(device)
    x = torch.randn(256, 256, device=device)

    def step() -> None:
        samples = _records() if objects else _arrays()
        with torch.no_grad():
            for _ in range(4):
                model(x)
        samples.clear()

    return Workload(model=model, step=step, name="many objects a step")


faulty = partial(_made, objects=True)  # Each sample is a list with a list in it
fixed = partial(_made, objects=False)  # All samples are one array
