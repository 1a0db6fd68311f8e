"""A batch that is of another size each time: compiled for each size, until the compiler gives up."""

import itertools
from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "C05", "O05", "cpu"
SIZES = range(200, 212)


def _activation(x: torch.Tensor) -> torch.Tensor:
    x = torch.sigmoid(x * 1.1 + 0.1) * x
    return torch.relu(x * 0.5 + 1.0) + x


def _made(device: str = "cpu", *, dynamic: bool) -> Workload:
    torch._dynamo.reset()
    compiled = torch.compile(_activation, backend="aot_eager", dynamic=dynamic)
    batches = itertools.cycle([torch.ones(size, 256, device=device) for size in SIZES])

    def step() -> None:
        compiled(next(batches))

    return Workload(step=step, name="batches of many sizes")


# Twelve sizes, each of them a graph of its own; after eight the function runs eagerly
faulty = partial(_made, dynamic=False)
fixed = partial(_made, dynamic=True)  # One graph for all sizes
