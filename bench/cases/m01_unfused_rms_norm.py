"""An RMS norm written out of pointwise operations."""

import torch
from torch.nn import functional

from gobrrr import Workload

CASE, CODE, RUNS_ON = "M01", "M03", "cpu"
ROWS, WIDTH, TIMES, EPS = 1024, 2048, 2, 1e-6


def _inputs(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(ROWS, WIDTH, device=device), torch.ones(WIDTH, device=device)


def faulty(device: str = "cpu") -> Workload:
    """Square, mean, rsqrt, two multiplications."""
    x, weight = _inputs(device)

    def step() -> None:
        with torch.inference_mode():
            for _ in range(TIMES):
                h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS)
                h * weight

    return Workload(step=step, name="norm by hand")


def fixed(device: str = "cpu") -> Workload:
    """Fused where there is a kernel of one pass: layer_norm's on a CPU, rms_norm's on a GPU."""
    x, weight = _inputs(device)

    def step() -> None:
        with torch.inference_mode():
            for _ in range(TIMES):
                if device == "cpu":
                    functional.layer_norm(x, (WIDTH,), weight, None, EPS)
                else:
                    functional.rms_norm(x, (WIDTH,), weight, EPS)

    return Workload(step=step, name="fused norm")
