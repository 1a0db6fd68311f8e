"""A convolution with a kernel of thousands of samples, summed directly instead of by its spectrum."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/pytorch/pytorch/issues/21462"
MECHANISM = 2
CAUSE = "conv1d with a kernel of 1,024 and more, which takes products in proportion to its length"
REPORTED = "3.28 s for a kernel of 1,024, by FFT 161 ms"
NAMES = r"\bfft\b|fourier|spectr|frequenc"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    sound = torch.randn(4, 1, 8_000, device=device)
    impulse = torch.randn(1, 1, 2_048, device=device)
    model = torch.nn.Conv1d(1, 4, 16, stride=16).to(device)

    def reverberated() -> torch.Tensor:
        if sick:
            return torch.nn.functional.conv1d(sound, impulse, padding=2_047)  # cause
        length = sound.shape[-1] + impulse.shape[-1] - 1
        spectrum = torch.fft.rfft(sound, length) * torch.fft.rfft(impulse.flip(-1), length)
        return torch.fft.irfft(spectrum, length)

    def step() -> torch.Tensor:
        with torch.no_grad():
            return model(reverberated())

    return Workload(model=model, step=step, name="reverberation")
