"""One type has a good kernel for a layer, the other falls to a direct one.

In pytorch#128936 it was bfloat16 that fell; that shape (64 x 128 x 513 x 513) does no more with cuDNN 9.19. Here it is
float32, in the gradient of a depthwise layer's weight.
"""

from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "K04", "C06", "cuda"


def _made(device: str = "cuda", *, dtype: torch.dtype) -> Workload:
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(512, 512, 7, padding=3, groups=512).to(device, dtype)
    layer = layer.to(memory_format=torch.channels_last)  # type: ignore[call-overload,unused-ignore]
    x = torch.randn(32, 512, 28, 28, device=device, dtype=dtype)
    x = x.to(memory_format=torch.channels_last).requires_grad_()

    def step() -> None:
        layer(x).sum().backward()
        layer.zero_grad(set_to_none=True)
        x.grad = None

    return Workload(model=layer, step=step, name="convolution by type")


faulty = partial(_made, dtype=torch.float32)  # float32
fixed = partial(_made, dtype=torch.bfloat16)  # bfloat16
