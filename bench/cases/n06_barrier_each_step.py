"""A barrier in every step, with batches whose lengths differ from rank to rank."""

import random
from collections.abc import Callable

import torch
import torch.distributed as dist

from bench.cases.ranks import joined
from gobrrr import Workload

CASE, CODE, RUNS_ON = "N06", "N03", "ranks"
LENGTHS = (4, 24)


def _build(rank: int, barrier: bool) -> Callable[[], None]:
    torch.set_num_threads(1)
    draw = random.Random(rank)
    weight = torch.randn(256, 256)

    def step() -> None:
        for _ in range(draw.randint(*LENGTHS)):
            torch.mm(weight, weight)
        if barrier:
            dist.barrier()

    return step


def waiting(rank: int) -> Callable[[], None]:
    """All wait for the longest batch of each step."""
    return _build(rank, barrier=True)


def free(rank: int) -> Callable[[], None]:
    """Each goes on alone."""
    return _build(rank, barrier=False)


def faulty(device: str = "cpu") -> Workload:
    """A barrier a step."""
    return Workload(step=joined(__name__, "waiting"), name="barrier each step")


def fixed(device: str = "cpu") -> Workload:
    """No barrier."""
    return Workload(step=joined(__name__, "free"), name="no barrier")
