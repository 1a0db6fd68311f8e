"""A coarse volume is interpolated to nine times its side for a loss: the backward pass adds by atomics."""

import torch

from bench.reports.on_gpu import DEVICE, sized
from gobrrr import Workload

SOURCE = "https://github.com/pytorch/pytorch/issues/51206"
MECHANISM = 2
CAUSE = "the backward pass of trilinear interpolation from 7 to 64: many threads add to one element"
REPORTED = "32 ms for one such backward pass on a P100, 4.7 ms before"
NAMES = r"interpolat|upsampl|trilinear"
COARSE, FINE, CHANNELS = 7, sized(64, 20), sized(64, 8)


def _weights() -> torch.Tensor:
    """What each fine element takes from each coarse one, along one side."""
    identity = torch.eye(COARSE, device=DEVICE)[:, None]
    return torch.nn.functional.interpolate(identity, size=FINE, mode="linear")[:, 0].T.contiguous()


def made(*, sick: bool) -> Workload:
    torch.manual_seed(0)
    head = torch.nn.Conv3d(CHANNELS, CHANNELS, 1).to(DEVICE)
    x = torch.randn(2, CHANNELS, COARSE, COARSE, COARSE, device=DEVICE)
    weights = _weights()

    def upsampled(y: torch.Tensor) -> torch.Tensor:
        if sick:
            return torch.nn.functional.interpolate(y, size=(FINE, FINE, FINE), mode="trilinear")  # cause
        y = y @ weights.T
        y = weights @ y
        return (weights @ y.flatten(3)).unflatten(3, (FINE, FINE))

    def step() -> torch.Tensor:
        loss = upsampled(head(x)).square().mean()
        loss.backward()
        head.zero_grad()
        return loss.detach()

    return Workload(model=head, step=step, name="deep supervision")
