"""Noise for an augmentation that NumPy draws in float64 on the host, whatever the device."""

import numpy as np
import torch

from gobrrr import Workload

SOURCE = "https://github.com/braindecode/braindecode/pull/406"
MECHANISM = 1
CAUSE = "noise of the batch's size by NumPy's generator, in float64 on the host, then converted and copied"
REPORTED = "no speed-up by the GPU while it stays"
NAMES = r"numpy|random number|\.normal|normal\(\)"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Conv1d(22, 8, 25, stride=8).to(device)
    signals = torch.randn(32, 22, 500, device=device)
    state = np.random.RandomState(0)

    def noisy() -> torch.Tensor:
        if sick:
            noise = state.normal(loc=np.zeros(signals.shape), scale=1)  # cause
            return signals + torch.from_numpy(noise).float().to(device) * 0.1  # cause
        return signals + torch.randn_like(signals) * 0.1

    def step() -> torch.Tensor:
        loss = model(noisy()).square().mean()
        loss.backward()
        model.zero_grad()
        return loss.detach()

    return Workload(model=model, step=step, name="augmented signals")
