"""Advanced indexing with repeated indices: its backward adds them one after the other."""

from __future__ import annotations

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "M18", "M08", "cpu"
ROWS, WIDTH, IDS = 4, 8, 20_000


def _made(device: str, *, gather: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Embedding(ROWS, WIDTH).to(device)
    ids = torch.randint(0, ROWS, (IDS,), device=device)

    def step() -> None:
        model.weight.grad = None
        rows = model.weight.index_select(0, ids) if gather else model.weight[ids]
        rows.sum().backward()

    return Workload(model=model, step=step, name="rows of a table")


def faulty(device: str = "cpu") -> Workload:
    """`table[ids]`: index_put with accumulate in the backward pass."""
    return _made(device, gather=False)


def fixed(device: str = "cpu") -> Workload:
    """`index_select` adds in its backward pass without looking at what repeats."""
    return _made(device, gather=True)
