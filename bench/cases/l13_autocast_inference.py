"""Autocast in inference: without gradients nothing is cached, so that each call converts every weight again."""

from contextlib import nullcontext
from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "L13", "M06", "cpu"
LAYERS, WIDTH, ROWS = 8, 768, 8


def _made(device: str = "cpu", *, autocast: bool) -> Workload:
    torch.manual_seed(0)
    dtype = torch.float32 if autocast else torch.bfloat16
    blocks = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()) for _ in range(LAYERS)]
    model = torch.nn.Sequential(*blocks).to(device, dtype).eval()
    x = torch.randn(ROWS, WIDTH, device=device, dtype=dtype)

    def step() -> None:
        with torch.inference_mode(), torch.autocast(device, torch.bfloat16) if autocast else nullcontext():
            model(x)

    return Workload(model=model, step=step, name="inference in bfloat16")


faulty = partial(_made, autocast=True)  # Weights in float32, matmuls in bfloat16
fixed = partial(_made, autocast=False)  # The weights converted once
