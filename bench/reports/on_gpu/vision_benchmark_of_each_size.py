"""cudnn.benchmark with images of another size in each step: each size is tried with every algorithm."""

from itertools import count

import torch

from bench.reports.on_gpu import DEVICE, sized
from gobrrr import Workload

SOURCE = "https://github.com/pytorch/vision/pull/5985"
MECHANISM = 7
CAUSE = "torch.backends.cudnn.benchmark is on while the size of the images changes in each step"
REPORTED = "a significant regression of the speed of training; pytorch#2759: 20 times"
NAMES = r"cudnn|benchmark|autotun|first use|new (?:shape|size)|(?:shape|size)s? (?:that )?(?:var|chang|differ)"
GPU = True
SIZES = count()


def made(*, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 7, stride=2, padding=3), torch.nn.ReLU(),
        torch.nn.Conv2d(64, 64, 3, padding=1),
    ).to(DEVICE)  # fmt: skip
    side = sized(512, 48)
    image = torch.randn(2, 3, side, side, device=DEVICE)

    def step() -> torch.Tensor:
        down, across = divmod(next(SIZES), sized(200, 16))
        torch.backends.cudnn.benchmark = sick  # cause
        loss = model(image[:, :, : side - down % 64, : side - across]).square().mean()  # cause
        loss.backward()  # cause
        model.zero_grad()
        return loss.detach()

    return Workload(model=model, step=step, name="images of many sizes")
