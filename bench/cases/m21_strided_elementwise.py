"""Elementwise operations between a tensor and a transposed one."""

from __future__ import annotations

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "M21", "M09", "cpu"
SIZE, TIMES = 1024, 4


def _made(device: str, *, turned: bool) -> Workload:
    torch.manual_seed(0)
    x, z = torch.randn(SIZE, SIZE, device=device), torch.randn(SIZE, SIZE, device=device)
    out = torch.empty_like(x)

    def step() -> None:
        with torch.no_grad():
            for _ in range(TIMES):
                torch.add(x, z.t() if turned else z, out=out)

    return Workload(step=step, name="elementwise")


def faulty(device: str = "cpu") -> Workload:
    """One operand is read across its rows."""
    return _made(device, turned=True)


def fixed(device: str = "cpu") -> Workload:
    """All in one order."""
    return _made(device, turned=False)
