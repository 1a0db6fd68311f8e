"""ConvNeXt with its channels outermost: each layer norm turns the image over, and the next convolution gets it back."""

import torch

from bench.reports.on_gpu import DEVICE, REDUCED, sized
from gobrrr import Workload

SOURCE = "https://github.com/pytorch/pytorch/issues/76012"
MECHANISM = 8
CAUSE = "layer_norm over the channels of an NCHW tensor: permuted, copied, and copied back"
REPORTED = "timm#1194: 2 min 31 s to 1 min 6 s on a T4; vision#5253: 20 % by keeping the channels innermost"
NAMES = r"layout|contiguous|channels[_ -]last|permut|transpos|\bnchw\b|\bnhwc\b"


class Block(torch.nn.Module):
    """One of ConvNeXt."""

    def __init__(self, width: int, order: torch.memory_format) -> None:
        super().__init__()
        self.order = order
        self.spread = torch.nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = torch.nn.LayerNorm(width)
        self.up, self.down = torch.nn.Conv2d(width, 4 * width, 1), torch.nn.Conv2d(4 * width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block's change is added."""
        y = self.spread(x)
        y = self.norm(y.permute(0, 2, 3, 1)).permute(0, 3, 1, 2).contiguous(memory_format=self.order)  # cause
        return x + self.down(torch.nn.functional.gelu(self.up(y)))


def made(*, sick: bool) -> Workload:
    torch.manual_seed(0)
    width, side = sized(192, 16), sized(56, 14)
    order = torch.contiguous_format if sick else torch.channels_last
    model = torch.nn.Sequential(*(Block(width, order) for _ in range(sized(4, 2)))).to(DEVICE, REDUCED)
    model = model.to(memory_format=order)
    x = torch.randn(sized(32, 2), width, side, side, device=DEVICE, dtype=REDUCED).to(memory_format=order)

    def step() -> torch.Tensor:
        loss = model(x).float().square().mean()
        loss.backward()
        model.zero_grad()
        return loss.detach()

    return Workload(model=model, step=step, name="a stage of ConvNeXt")
