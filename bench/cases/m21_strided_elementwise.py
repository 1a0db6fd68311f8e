"""Elementwise operations between a tensor and a transposed one."""

from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "M21", "M09", "cpu"
SIZE, TIMES = 1024, 4


def _made(device: str = "cpu", *, turned: bool) -> Workload:
    torch.manual_seed(0)
    x, z = torch.randn(SIZE, SIZE, device=device), torch.randn(SIZE, SIZE, device=device)
    out = torch.empty_like(x)

    def step() -> None:
        with torch.no_grad():
            for _ in range(TIMES):
                torch.add(x, z.t() if turned else z, out=out)

    return Workload(step=step, name="elementwise")


faulty = partial(_made, turned=True)  # One operand is read across its rows
fixed = partial(_made, turned=False)  # All in one order
