"""The loss of the tokens that a boolean mask picks: a GPU's host waits to know how many there are; a CPU's does not."""

from functools import partial

import torch
from torch.nn import functional

from gobrrr import Workload

CASE, CODE, RUNS_ON = "S04", "O02", "cuda"
IGNORED = -100


def _made(device: str = "cuda", *, pick: bool) -> Workload:
    torch.manual_seed(0)
    width, rows = (2048, 4096) if device == "cuda" else (64, 32)  # on a GPU the device is the bound
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(4)]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    x = torch.randn(rows, width, device=device)
    target = torch.arange(rows, device=device) % width
    target[::3] = IGNORED

    def step() -> torch.Tensor:
        logits = model(x)
        if pick:
            mask = target != IGNORED
            loss = functional.cross_entropy(logits[mask], target[mask])
        else:
            loss = functional.cross_entropy(logits, target, ignore_index=IGNORED)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return Workload(model=model, step=step, optimizer=optimizer, name="masked tokens")


faulty = partial(_made, pick=True)  # `logits[mask]`, `target[mask]`
fixed = partial(_made, pick=False)  # `ignore_index`: all rows are computed, none is waited for
