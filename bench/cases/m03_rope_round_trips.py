"""Rotary positions that go through float32: conversions, slices, products, a stack and a conversion back."""

from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "M03", "M01", "cpu"
BATCH, LENGTH, HEADS, WIDTH = 2, 512, 16, 64


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    pairs = x.float().reshape(*x.shape[:-1], -1, 2)
    first, second = pairs[..., 0], pairs[..., 1]
    turned = torch.stack([first * cos - second * sin, second * cos + first * sin], -1)
    return turned.flatten(3).type_as(x)


def _made(device: str = "cpu", *, compiled: bool) -> Workload:
    torch.manual_seed(0)
    q, k = (torch.randn(BATCH, LENGTH, HEADS, WIDTH, device=device, dtype=torch.bfloat16) for _ in range(2))
    angle = torch.outer(torch.arange(LENGTH), 1e4 ** (-torch.arange(0, WIDTH, 2) / WIDTH))[None, :, None].to(device)
    cos, sin = angle.cos(), angle.sin()
    rotated = torch.compile(_rotated) if compiled else _rotated

    def step() -> None:
        with torch.inference_mode():
            rotated(q, cos, sin)
            rotated(k, cos, sin)

    return Workload(step=step, name="rotary positions")


faulty = partial(_made, compiled=False)  # Each operation of the rotation is one pass over the memory
fixed = partial(_made, compiled=True)  # One kernel that a compiler wrote
