"""A matrix product that only a vector needs, and an einsum of three operands from left to right."""

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "P09", "C05", "cpu"


def _operands(device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    a = torch.randn(900, 700, device=device)
    b = torch.randn(700, 800, device=device)
    return a, b, torch.randn(800, device=device)


def faulty(device: str = "cpu") -> Workload:
    """(A B) v: from left to right, as Python reads it."""
    a, b, v = _operands(device)

    def step() -> torch.Tensor:
        total = v
        for _ in range(4):
            total = (a @ b @ v)[:800] + total
        return total

    return Workload(step=step, name="contraction order")


def fixed(device: str = "cpu") -> Workload:
    """A (B v)."""
    a, b, v = _operands(device)

    def step() -> torch.Tensor:
        total = v
        for _ in range(4):
            total = (a @ (b @ v))[:800] + total
        return total

    return Workload(step=step, name="contraction order")
