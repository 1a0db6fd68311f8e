"""A change of pitch that makes the kernel of its resampling anew in each call."""

import math

import torch

from gobrrr import Workload

SOURCE = "https://github.com/pytorch/audio/issues/2359"
MECHANISM = 3
CAUSE = "the sinc kernel of the resampling is made again in each call, although the rates never change"
REPORTED = ""
NAMES = r"\bagain\b|same (?:work|data|values|result)|every step|each step|unchanged|constant|once"
OLD, NEW, WIDTH = 441, 320, 6


def _kernel(device: str) -> torch.Tensor:
    """A windowed sinc for each of the new rate's phases."""
    base = min(OLD, NEW) * 0.99
    width = math.ceil(WIDTH * OLD / base)
    taps = torch.arange(-width, width + OLD, dtype=torch.float64, device=device)[None, None] / OLD
    times = torch.arange(0, -NEW, -1, dtype=torch.float64, device=device)[:, None, None] / NEW + taps
    times = (times * base).clamp(-WIDTH, WIDTH)
    window = torch.cos(times * math.pi / WIDTH / 2) ** 2
    times = times * math.pi
    sinc = torch.where(times == 0, torch.ones_like(times), times.sin() / times)
    return (sinc * window * base / OLD).to(torch.float32)


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    wave = torch.randn(2, 1, OLD * 40, device=device)
    made = _kernel(device)

    def step() -> torch.Tensor:
        kernel = _kernel(device) if sick else made  # cause
        return torch.nn.functional.conv1d(wave, kernel, stride=OLD)

    return Workload(step=step, name="resampling")
