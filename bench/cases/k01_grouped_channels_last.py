"""A depthwise convolution in float32 with the channels innermost: its weight's gradient falls to a direct kernel.

The shape of pytorch#34977 (2048 channels in 32 groups, float16) falls no more with cuDNN 9.19; this one does.
"""

from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "K01", "C06", "cuda"


def _made(device: str = "cuda", *, memory_format: torch.memory_format) -> Workload:
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(512, 512, 7, padding=3, groups=512).to(device)
    layer = layer.to(memory_format=memory_format)  # type: ignore[call-overload,unused-ignore]
    x = torch.randn(32, 512, 28, 28, device=device).to(memory_format=memory_format).requires_grad_()

    def step() -> None:
        layer(x).sum().backward()
        layer.zero_grad(set_to_none=True)
        x.grad = None

    return Workload(model=layer, step=step, name="depthwise convolution")


faulty = partial(_made, memory_format=torch.channels_last)  # NHWC, for which cuDNN has no good kernel here
fixed = partial(_made, memory_format=torch.contiguous_format)  # NCHW for this layer
