"""An RMS norm written out of pointwise operations."""

from functools import partial

import torch
from torch.nn import functional

from gobrrr import Workload

CASE, CODE, RUNS_ON = "M01", "M03", "cpu"
ROWS, WIDTH, TIMES, EPS = 1024, 2048, 2, 1e-6


def _made(device: str = "cpu", *, fused: bool) -> Workload:
    torch.manual_seed(0)
    x, weight = torch.randn(ROWS, WIDTH, device=device), torch.ones(WIDTH, device=device)

    def step() -> None:
        with torch.inference_mode():
            for _ in range(TIMES):
                if not fused:
                    h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS)
                    h * weight
                elif device == "cpu":
                    functional.layer_norm(x, (WIDTH,), weight, None, EPS)
                else:
                    functional.rms_norm(x, (WIDTH,), weight, EPS)

    return Workload(step=step, name="a norm")


faulty = partial(_made, fused=False)  # Square, mean, rsqrt, two multiplications
# Fused where there is a kernel of one pass: layer_norm's on a CPU, rms_norm's on a GPU
fixed = partial(_made, fused=True)
