"""Images of another size in each step: the convolutions are prepared anew for each size."""

from itertools import count

import torch

from gobrrr import Workload

SOURCE = "https://github.com/uxlfoundation/oneDNN/issues/380"
MECHANISM = 7
CAUSE = "oneDNN makes its code for a convolution anew for each shape: a first use in every step"
REPORTED = "about 30 % of the time"
NAMES = r"first use|new (?:shape|size)|(?:shape|size)s? (?:that )?(?:var|chang|differ)|another (?:shape|size)|primitive"
HEIGHTS, WIDTHS = (32, 48), (40, 72)
SIZES = count()
"""Goes on from one workload to the next: oneDNN remembers 1,024 primitives, fewer than the sizes need."""


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 7, stride=2, padding=3), torch.nn.ReLU(),
        torch.nn.Conv2d(8, 16, 3, stride=2, padding=1), torch.nn.ReLU(),
        torch.nn.Conv2d(16, 16, 3, stride=2, padding=1),
    ).to(device)  # fmt: skip
    image = torch.randn(1, 3, HEIGHTS[1], WIDTHS[1], device=device)

    def step() -> torch.Tensor:
        down, across = divmod(next(SIZES), WIDTHS[1] - WIDTHS[0])
        height = HEIGHTS[0] + down % (HEIGHTS[1] - HEIGHTS[0])
        x = image[:, :, :height, : WIDTHS[0] + across]
        if not sick:
            x = torch.nn.functional.pad(x, (0, WIDTHS[1] - x.shape[3], 0, HEIGHTS[1] - x.shape[2]))
        with torch.no_grad():
            return model(x).mean(dim=(2, 3))  # cause

    return Workload(model=model, step=step, name="lines of text")
