"""Gradients all-reduced on every micro-batch of an accumulation."""

import contextlib
from collections.abc import Callable

import torch

from bench.cases.ranks import joined
from gobrrr import Workload

CASE, CODE, RUNS_ON = "N01", "N02", "ranks"
MICRO_BATCHES = 4


def _build(spare: bool) -> Callable[[], None]:
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


def each_time(rank: int) -> Callable[[], None]:
    """Reduced after each backward pass."""
    return _build(spare=False)


def once(rank: int) -> Callable[[], None]:
    """Reduced after the last one."""
    return _build(spare=True)


def faulty(device: str = "cpu") -> Workload:
    """Four reductions a step."""
    return Workload(step=joined(__name__, "each_time"), name="reduced each time")


def fixed(device: str = "cpu") -> Workload:
    """One reduction a step."""
    return Workload(step=joined(__name__, "once"), name="reduced once")
