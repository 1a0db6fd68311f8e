"""A large embedding with a dense gradient: zeros, gradient and optimizer go over all rows for the few that are used."""

from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "M17", "M07", "cpu"
ROWS, WIDTH, IDS = 100_000, 64, 256


def _made(device: str = "cpu", *, sparse: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Embedding(ROWS, WIDTH, sparse=sparse).to(device)
    optimizer = torch.optim.SparseAdam(model.parameters()) if sparse else torch.optim.Adam(model.parameters())
    ids = torch.randint(0, ROWS, (IDS,), device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(ids).square().mean().backward()
        optimizer.step()

    return Workload(model=model, step=step, optimizer=optimizer, name="embedding")


faulty = partial(_made, sparse=False)  # Adam over a dense gradient
fixed = partial(_made, sparse=True)  # SparseAdam over the rows that were used
