"""Frequencies of a timestep embedding and a causal mask that each forward pass makes anew, in every layer."""

from functools import partial
from typing import Any

import torch
from torch.nn import functional

from gobrrr import Workload

CASE, CODE, RUNS_ON = "S14", "R02", "cpu"
LAYERS, WIDTH, LENGTH, ROWS = 3, 32, 256, 1


def _table() -> torch.Tensor:
    frequencies = torch.exp(-9.2 * torch.arange(WIDTH // 2).float() / (WIDTH // 2))
    angles = torch.outer(torch.arange(LENGTH).float(), frequencies)
    return torch.cat([angles.sin(), angles.cos()], -1)


def _mask() -> torch.Tensor:
    return torch.full((LENGTH, LENGTH), float("-inf")).triu(1)


class Layer(torch.nn.Module):
    """Attention over a sequence with positions; `kept`: both tables are buffers."""

    def __init__(self, kept: bool) -> None:
        super().__init__()
        self.project = torch.nn.Linear(WIDTH, WIDTH)
        self.kept = kept
        self.register_buffer("table", _table(), persistent=False)
        self.register_buffer("mask", _mask(), persistent=False)

    def forward(self, x: torch.Tensor) -> Any:
        """The tables are made here, unless they are kept."""
        table, mask = (self.table, self.mask) if self.kept else (_table(), _mask())
        x = self.project(x + table)
        return functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)


def _made(device: str = "cpu", *, kept: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[Layer(kept) for _ in range(LAYERS)]).to(device)
    x = torch.randn(ROWS, LENGTH, WIDTH, device=device)

    def step() -> None:
        with torch.inference_mode():
            model(x)

    return Workload(model=model, step=step, name="tables")


faulty = partial(_made, kept=False)  # Made in each call
fixed = partial(_made, kept=True)  # Buffers
