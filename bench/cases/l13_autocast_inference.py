"""Autocast in inference: without gradients nothing is cached, so that each call converts every weight again."""

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "L13", "M06", "cpu"
LAYERS, WIDTH, ROWS = 8, 768, 8


def _model(device: str) -> torch.nn.Module:
    torch.manual_seed(0)
    blocks = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()) for _ in range(LAYERS)]
    return torch.nn.Sequential(*blocks).to(device).eval()


def faulty(device: str = "cpu") -> Workload:
    """Weights in float32, matmuls in bfloat16."""
    model, x = _model(device), torch.randn(ROWS, WIDTH, device=device)

    def step() -> None:
        with torch.inference_mode(), torch.autocast(device, torch.bfloat16):
            model(x)

    return Workload(model=model, step=step, name="autocast in inference")


def fixed(device: str = "cpu") -> Workload:
    """The weights converted once."""
    model, x = _model(device).to(torch.bfloat16), torch.randn(ROWS, WIDTH, device=device, dtype=torch.bfloat16)

    def step() -> None:
        with torch.inference_mode():
            model(x)

    return Workload(model=model, step=step, name="bfloat16 in inference")
