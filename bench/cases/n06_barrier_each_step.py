"""A barrier in every step, with batches whose lengths differ from rank to rank."""

import random
from collections.abc import Callable
from functools import partial

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


def _made(device: str = "cpu", *, barrier: bool) -> Workload:
    return Workload(step=joined(partial(_build, barrier=barrier)), name="batches of unequal lengths")


faulty = partial(_made, barrier=True)  # All wait for the longest batch of each step
fixed = partial(_made, barrier=False)  # Each goes on alone
