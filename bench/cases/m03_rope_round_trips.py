"""Rotary positions that go through float32: conversions, slices, products, a stack and a conversion back."""

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "M03", "M01", "cpu"
BATCH, LENGTH, HEADS, WIDTH = 2, 512, 16, 64


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    pairs = x.float().reshape(*x.shape[:-1], -1, 2)
    first, second = pairs[..., 0], pairs[..., 1]
    turned = torch.stack([first * cos - second * sin, second * cos + first * sin], -1)
    return turned.flatten(3).type_as(x)


def _inputs(device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    q, k = (torch.randn(BATCH, LENGTH, HEADS, WIDTH, device=device, dtype=torch.bfloat16) for _ in range(2))
    angle = torch.outer(torch.arange(LENGTH), 1e4 ** (-torch.arange(0, WIDTH, 2) / WIDTH))[None, :, None].to(device)
    return q, k, angle.cos(), angle.sin()


def faulty(device: str = "cpu") -> Workload:
    """Each operation of the rotation is one pass over the memory."""
    q, k, cos, sin = _inputs(device)

    def step() -> None:
        with torch.inference_mode():
            _rotated(q, cos, sin)
            _rotated(k, cos, sin)

    return Workload(step=step, name="rotary by hand")


def fixed(device: str = "cpu") -> Workload:
    """One kernel that a compiler wrote."""
    q, k, cos, sin = _inputs(device)
    rotated = torch.compile(_rotated)

    def step() -> None:
        with torch.inference_mode():
            rotated(q, cos, sin)
            rotated(k, cos, sin)

    return Workload(step=step, name="rotary compiled")
