"""A small recurrence, turn by turn: bound by dispatch, on a GPU by launches; a CPU is no worse a place for it."""

from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "L01", "O04", "cpu"
TURNS = 400


def _made(device: str = "cpu", *, size: int, batch: int) -> Workload:
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


faulty = partial(_made, size=100, batch=1)  # One chain of 100 numbers
fixed = partial(_made, size=1024, batch=64)  # 64 chains at once of 1,024 numbers: the processor computes
