"""Gradients all-reduced on every micro-batch of an accumulation."""

import contextlib
from collections.abc import Callable
from functools import partial

import torch

from bench.cases.ranks import joined
from gobrrr import Workload

CASE, CODE, RUNS_ON = "N01", "N02", "ranks"
MICRO_BATCHES = 4


def _build(rank: int, spare: bool) -> Callable[[], None]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)])
    )
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    x = torch.randn(8, 512)

    def step() -> None:
        for number in range(MICRO_BATCHES):
            quiet = spare and number < MICRO_BATCHES - 1
            with model.no_sync() if quiet else contextlib.nullcontext():
                model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _made(device: str = "cpu", *, spare: bool) -> Workload:
    return Workload(step=joined(partial(_build, spare=spare)), name="gradients reduced")


faulty = partial(_made, spare=False)  # Four reductions a step
fixed = partial(_made, spare=True)  # One reduction a step
