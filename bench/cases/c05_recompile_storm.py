"""A batch that is of another size each time: compiled for each size, until the compiler gives up."""

from __future__ import annotations

import itertools

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "C05", "O05", "cpu"
SIZES = range(200, 212)


def _activation(x: torch.Tensor) -> torch.Tensor:
    x = torch.sigmoid(x * 1.1 + 0.1) * x
    return torch.relu(x * 0.5 + 1.0) + x


def _made(dynamic: bool, device: str) -> Workload:
    torch._dynamo.reset()
    compiled = torch.compile(_activation, backend="aot_eager", dynamic=dynamic)
    batches = itertools.cycle([torch.ones(size, 256, device=device) for size in SIZES])

    def step() -> None:
        compiled(next(batches))

    return Workload(step=step, name="batches of many sizes")


def faulty(device: str = "cpu") -> Workload:
    """Twelve sizes, each of them a graph of its own; after eight the function runs eagerly."""
    return _made(False, device)


def fixed(device: str = "cpu") -> Workload:
    """One graph for all sizes."""
    return _made(True, device)
