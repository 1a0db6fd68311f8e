"""Attention written out: scores of S x S a head."""

import math

import torch
from torch.nn import functional

from gobrrr import Workload

CASE, CODE, RUNS_ON = "M15", "M02", "cpu"
BATCH, HEADS, LENGTH, WIDTH = 1, 4, 1024, 64


def _inputs(device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    q, k, v = (torch.randn(BATCH, HEADS, LENGTH, WIDTH, device=device) for _ in range(3))
    return q, k, v, torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=device).tril()


def faulty(device: str = "cpu") -> Workload:
    """Scores, scale, mask, softmax, product."""
    q, k, v, mask = _inputs(device)

    def step() -> None:
        with torch.inference_mode():
            scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH)
            scores = scores.masked_fill(~mask, float("-inf"))
            scores.softmax(-1) @ v

    return Workload(step=step, name="attention by hand")


def fixed(device: str = "cpu") -> Workload:
    """The framework's own."""
    q, k, v, _ = _inputs(device)

    def step() -> None:
        with torch.inference_mode():
            functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    return Workload(step=step, name="fused attention")
