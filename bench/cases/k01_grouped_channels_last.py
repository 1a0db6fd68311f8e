"""A grouped convolution with the channels innermost."""

from __future__ import annotations

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "K01", "C06", "cuda"


def _made(device: str, memory_format: torch.memory_format) -> Workload:
    torch.manual_seed(0)
    plain = torch.nn.Conv2d(256, 256, 3, padding=1)
    grouped = torch.nn.Conv2d(2048, 2048, 3, padding=1, groups=32)
    layers = torch.nn.ModuleList([plain, grouped]).to(device, torch.float16)
    grouped.to(memory_format=memory_format)
    small = torch.randn(32, 256, 56, 56, device=device, dtype=torch.float16)
    small = small.to(memory_format=torch.channels_last)
    x = torch.randn(32, 2048, 7, 7, device=device, dtype=torch.float16).to(memory_format=memory_format)

    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def step() -> None:
        layers[0](small)
        for _ in range(4):
            layers[1](x)

    return Workload(model=layers, step=step, name="grouped convolution")


def faulty(device: str = "cuda") -> Workload:
    """NHWC, for which cuDNN had no good grouped kernel (pytorch#34977)."""
    return _made(device, torch.channels_last)


def fixed(device: str = "cuda") -> Workload:
    """NCHW for this layer."""
    return _made(device, torch.contiguous_format)
