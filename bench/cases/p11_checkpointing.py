"""Every block is checkpointed although its activations are a few MB."""

from functools import partial

import torch
from torch.utils.checkpoint import checkpoint

from gobrrr import Workload

CASE, CODE, RUNS_ON = "P11", "R01", "cpu"
BLOCKS = 6


def _block() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256))


def _made(device: str = "cpu", *, again: bool) -> Workload:
    torch.manual_seed(0)
    blocks = torch.nn.ModuleList([_block() for _ in range(BLOCKS)]).to(device)
    x = torch.randn(256, 256, device=device)

    def step() -> None:
        y = x
        for block in blocks:
            y = y + (checkpoint(block, y, use_reentrant=False) if again else block(y))
        y.square().mean().backward()
        blocks.zero_grad(set_to_none=True)

    return Workload(model=blocks, step=step, name="checkpointing")


faulty = partial(_made, again=True)  # All blocks run twice
fixed = partial(_made, again=False)  # Activations are kept
