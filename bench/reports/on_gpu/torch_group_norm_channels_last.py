"""GroupNorm in a model with its channels innermost: it returns them outermost, and the next convolution turns them."""

import torch

from bench.reports.on_gpu import DEVICE, REDUCED, sized
from gobrrr import Workload

SOURCE = "https://github.com/pytorch/pytorch/issues/111824"
MECHANISM = 8
CAUSE = "group_norm makes a contiguous tensor of a channels_last one, and each convolution converts it back"
REPORTED = "sglang#33451: 97.6 to 29.2 ms for a decoder on an H200, with a norm that keeps the order among others"
NAMES = r"group.?norm|layout|contiguous|channels[_ -]last|permut|transpos|\bnchw\b|\bnhwc\b"
GROUPS = 8


class Kept(torch.nn.GroupNorm):
    """A group norm that leaves the channels where they are."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The norm of each group."""
        batch, channels, height, width = x.shape
        grouped = x.permute(0, 2, 3, 1).view(batch, height * width, GROUPS, channels // GROUPS)
        var, mean = torch.var_mean(grouped, dim=(1, 3), correction=0)
        scale = (var + self.eps).rsqrt()[..., None] * self.weight.view(1, GROUPS, -1)
        shift = self.bias.view(1, GROUPS, -1) - mean[..., None] * scale
        return torch.addcmul(shift.view(batch, -1, 1, 1), x, scale.view(batch, -1, 1, 1))


class Block(torch.nn.Module):
    """A norm and a convolution."""

    def __init__(self, width: int, norm: type[torch.nn.GroupNorm]) -> None:
        super().__init__()
        self.norm, self.conv = norm(GROUPS, width), torch.nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block's change is added."""
        y = self.norm(x)  # cause
        return x + self.conv(torch.nn.functional.silu(y))  # cause


def made(*, sick: bool) -> Workload:
    torch.manual_seed(0)
    width, side = sized(128, 16), sized(256, 24)
    norm = torch.nn.GroupNorm if sick else Kept
    model = torch.nn.Sequential(*(Block(width, norm) for _ in range(sized(8, 2)))).to(DEVICE, REDUCED)
    model = model.to(memory_format=torch.channels_last)
    x = torch.randn(2, width, side, side, device=DEVICE, dtype=REDUCED).to(memory_format=torch.channels_last)

    def step() -> torch.Tensor:
        with torch.no_grad():
            return model(x)

    return Workload(model=model, step=step, name="a decoder of images")
