"""Attention written out: scores of S x S a head."""

import math
from functools import partial

import torch
from torch.nn import functional

from gobrrr import Workload

CASE, CODE, RUNS_ON = "M15", "M02", "cpu"
BATCH, HEADS, LENGTH, WIDTH = 1, 4, 1024, 64


def _made(device: str = "cpu", *, fused: bool) -> Workload:
    torch.manual_seed(0)
    q, k, v = (torch.randn(BATCH, HEADS, LENGTH, WIDTH, device=device) for _ in range(3))
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=device).tril()

    def step() -> None:
        with torch.inference_mode():
            if fused:
                functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH)
                scores = scores.masked_fill(~mask, float("-inf"))
                scores.softmax(-1) @ v

    return Workload(step=step, name="attention")


faulty = partial(_made, fused=False)  # Scores, scale, mask, softmax, product
fixed = partial(_made, fused=True)  # The framework's own
