"""Mel energies as a product that is broadcast and summed, where one matrix product does it."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/pytorch/audio/pull/947"
MECHANISM = 2
CAUSE = "spectrum * filters, summed over the frequencies: every product is written to memory"
REPORTED = "fbank of 30 s: 0.24 to 0.06 s; one thread 218 to 97 ms"
NAMES = r"matmul|matrix product|\bmm\b|einsum|contraction|broadcast"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    wave = torch.randn(16_000 * 3, device=device)
    window = torch.hann_window(400, device=device)
    filters = torch.rand(23, 201, device=device)

    def energies(spectrum: torch.Tensor) -> torch.Tensor:
        if sick:
            return (spectrum.unsqueeze(1) * filters.unsqueeze(0)).sum(dim=2)  # cause
        return spectrum @ filters.T

    def step() -> torch.Tensor:
        frames = wave.unfold(0, 400, 160)
        spectrum = torch.fft.rfft(frames * window).abs().square()
        return (energies(spectrum) + 1e-6).log()

    return Workload(step=step, name="fbank")
