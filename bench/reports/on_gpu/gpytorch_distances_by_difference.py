"""The distances of all pairs as the norm of all differences, where a matrix product gives them."""

import torch

from bench.reports.on_gpu import DEVICE, sized
from gobrrr import Workload

SOURCE = "https://github.com/cornellius-gp/gpytorch/pull/706"
MECHANISM = 2
CAUSE = "squared distances by broadcasting: a tensor of points x points x dimensions is written and read"
REPORTED = "3 times faster by one matrix product on large tensors"
NAMES = r"broadcast|cdist|pairwise|matrix product|\bmatmul|\bdistance"
POINTS, INDUCING, WIDTH = sized(4096, 200), sized(1024, 64), sized(64, 8)


def made(*, sick: bool) -> Workload:
    torch.manual_seed(0)
    points = torch.randn(POINTS, WIDTH, device=DEVICE)
    inducing = torch.nn.Parameter(torch.randn(INDUCING, WIDTH, device=DEVICE))
    weights = torch.randn(INDUCING, 1, device=DEVICE)

    def distances() -> torch.Tensor:
        if sick:
            return (points[:, None, :] - inducing[None, :, :]).pow(2).sum(dim=-1)  # cause
        squares = points.square().sum(1, keepdim=True) + inducing.square().sum(1)
        return (squares - 2 * points @ inducing.T).clamp_min(0)

    def step() -> torch.Tensor:
        loss = (torch.exp(-0.5 * distances()) @ weights).square().mean()
        loss.backward()
        inducing.grad = None
        return loss.detach()

    return Workload(step=step, name="a kernel matrix")
