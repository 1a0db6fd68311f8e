"""Patches that do not overlap are embedded by a Conv3d, each a volume of its own: a matrix product in disguise."""

import torch

from bench.reports.on_gpu import DEVICE, REDUCED, sized
from gobrrr import Workload

SOURCE = "https://github.com/huggingface/transformers/issues/45750"
MECHANISM = 2
CAUSE = "a Conv3d whose kernel is its stride and its input: cuDNN has no good algorithm for it"
REPORTED = "50,000 times slower than the linear layer on Blackwell; sglang-omni#539: 3.7 s a call on an H100"
NAMES = r"fallback|linear layer|F\.linear|matrix product|patch|holds the step"
PATCHES, WIDTH, VOLUME = sized(128, 32), sized(1152, 32), (3, 2, sized(16, 8), sized(16, 8))


def made(*, sick: bool) -> Workload:
    torch.manual_seed(0)
    embed = torch.nn.Conv3d(3, WIDTH, VOLUME[1:], stride=VOLUME[1:], device=DEVICE, dtype=REDUCED)
    layer = torch.nn.TransformerEncoderLayer(
        WIDTH, 8, 2 * WIDTH, dropout=0.0, batch_first=True, device=DEVICE, dtype=REDUCED
    )
    layer.eval()
    pixels = torch.randn(PATCHES, *VOLUME, device=DEVICE, dtype=REDUCED)

    def embedded() -> torch.Tensor:
        if sick:
            return embed(pixels).view(PATCHES, WIDTH)  # cause
        return torch.nn.functional.linear(pixels.flatten(1), embed.weight.flatten(1), embed.bias)

    def step() -> torch.Tensor:
        with torch.no_grad():
            return layer(embedded()[None])

    return Workload(model=torch.nn.ModuleList([embed, layer]), step=step, name="a vision encoder")


NEGATIVE = True
"""On an H200 with torch 2.11 the algorithm is good: the linear layer spares 5 to 9 % of a step that launches hold."""
