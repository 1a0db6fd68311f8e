"""A tensor in the f-string of a debug message that nobody sees."""

import logging

import torch

from gobrrr import Workload

SOURCE = "https://github.com/NVIDIA-NeMo/Emerging-Optimizers/pull/255"
MECHANISM = 6
CAUSE = "f-strings write tensors as text, and read the device, for messages of a level that is off"
REPORTED = ""
NAMES = r"as text|text|print|report|format"

log = logging.getLogger(__name__)


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    weights = [torch.randn(16, 16, device=device) for _ in range(12)]
    grads = [torch.randn(16, 16, device=device) for _ in range(12)]

    def step() -> torch.Tensor:
        for at, (weight, grad) in enumerate(zip(weights, grads, strict=True)):
            scale = 1 / grad.square().mean(1).sqrt()
            if sick:
                log.debug(f"scale[{at}]: {scale}")  # cause
            else:
                log.debug("scale[%s]: %s", at, scale)
            weight.addcmul_(grad, scale.unsqueeze(1), value=-1e-3)
        return weights[0]

    return Workload(step=step, name="update")
