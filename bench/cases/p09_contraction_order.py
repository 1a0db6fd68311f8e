"""A matrix product that only a vector needs, and an einsum of three operands from left to right."""

from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "P09", "C05", "cpu"


def _made(device: str = "cpu", *, vector_first: bool) -> Workload:
    torch.manual_seed(0)
    a, b = torch.randn(900, 700, device=device), torch.randn(700, 800, device=device)
    v = torch.randn(800, device=device)

    def step() -> torch.Tensor:
        total = v
        for _ in range(4):
            product = a @ (b @ v) if vector_first else a @ b @ v
            total = product[:800] + total
        return total

    return Workload(step=step, name="contraction order")


faulty = partial(_made, vector_first=False)  # (A B) v: from left to right, as Python reads it
fixed = partial(_made, vector_first=True)  # A (B v)
