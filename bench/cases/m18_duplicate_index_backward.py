"""Advanced indexing with repeated indices: its backward adds them one after the other."""

from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "M18", "M08", "cpu"
ROWS, WIDTH, IDS = 4, 8, 20_000


def _made(device: str = "cpu", *, gather: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Embedding(ROWS, WIDTH).to(device)
    ids = torch.randint(0, ROWS, (IDS,), device=device)

    def step() -> None:
        model.weight.grad = None
        rows = model.weight.index_select(0, ids) if gather else model.weight[ids]
        rows.sum().backward()

    return Workload(model=model, step=step, name="rows of a table")


faulty = partial(_made, gather=False)  # `table[ids]`: index_put with accumulate in the backward pass
fixed = partial(_made, gather=True)  # `index_select` adds in its backward pass without looking at what repeats
