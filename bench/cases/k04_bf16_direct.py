"""One image more in the batch, and cuDNN convolves directly."""

from __future__ import annotations

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "K04", "C06", "cuda"


def _made(device: str, images: int) -> Workload:
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(128, 128, kernel_size=3, stride=2).to(device, torch.bfloat16)
    x = torch.randn(images, 128, 513, 513, device=device, dtype=torch.bfloat16)

    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def step() -> None:
        conv(x)

    return Workload(model=conv, step=step, name="convolution in bfloat16")


def faulty(device: str = "cuda") -> Workload:
    """64 images: more than 2**31 elements (pytorch#128936)."""
    return _made(device, 64)


def fixed(device: str = "cuda") -> Workload:
    """63 images."""
    return _made(device, 63)
