"""A convolution in time with a kernel of 1,024: by the definition, where a Fourier transform needs a fraction of it."""

import torch

from bench.reports.on_gpu import DEVICE, sized
from gobrrr import Workload

SOURCE = "https://github.com/pytorch/pytorch/issues/21462"
MECHANISM = 2
CAUSE = "conv1d with a kernel of 1,024, which grows with the kernel"
REPORTED = "20 times the time of a convolution by FFT with 64 channels"
NAMES = r"\bfft\b|fourier|(?:long|large) kernel|kernel of"
CHANNELS, LENGTH, KERNEL = sized(64, 4), sized(64_000, 2000), sized(1024, 128)


def made(*, sick: bool) -> Workload:
    torch.manual_seed(0)
    conv = torch.nn.Conv1d(CHANNELS, CHANNELS, KERNEL, bias=False, device=DEVICE)
    x = torch.randn(1, CHANNELS, LENGTH, device=DEVICE)

    def reverberated() -> torch.Tensor:
        if sick:
            return conv(x)  # cause
        spectrum, taps = torch.fft.rfft(x, n=LENGTH), torch.fft.rfft(conv.weight, n=LENGTH)
        mixed = torch.einsum("bif,oif->bof", spectrum, taps.conj())
        return torch.fft.irfft(mixed, n=LENGTH)[..., : LENGTH - KERNEL + 1]

    def step() -> torch.Tensor:
        with torch.no_grad():
            return reverberated().tanh()

    return Workload(model=conv, step=step, name="a reverberation")


NEGATIVE = True
"""On an H200 with torch 2.11 the convolution is the faster form, by a sixth."""
