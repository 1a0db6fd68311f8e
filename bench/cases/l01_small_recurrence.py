"""A small recurrence, turn by turn: bound by dispatch, on a GPU by launches; a CPU is no worse a place for it."""

from __future__ import annotations

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "L01", "O04", "cpu"
TURNS = 400


def _made(device: str, size: int, batch: int) -> Workload:
    torch.manual_seed(0)
    j = torch.randn(size, size, device=device) / size**0.5
    first = torch.randn(size, batch, device=device)

    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def step() -> torch.Tensor:
        r = first
        for _ in range(TURNS * 100 // size // batch or 1):
            r = torch.tanh(j @ r)
        return r

    return Workload(step=step, name="recurrence")


def faulty(device: str = "cpu") -> Workload:
    """One chain of 100 numbers."""
    return _made(device, 100, 1)


def fixed(device: str = "cpu") -> Workload:
    """64 chains at once of 1,024 numbers: the processor computes."""
    return _made(device, 1024, 64)
