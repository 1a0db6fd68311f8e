"""One array of numpy turns the activations, and all that follows, into float64."""

from functools import partial

import numpy as np
import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "P06", "C04", "cpu"


def _made(device: str = "cpu", *, dtype: torch.dtype) -> Workload:
    torch.manual_seed(0)
    x = torch.randn(512, 1024, device=device)
    scale = torch.from_numpy(np.sqrt(np.arange(1.0, 1025.0))).to(device, dtype)
    target = torch.from_numpy(np.random.default_rng(0).random((512, 1024))).to(device, dtype)
    weight = torch.randn(1024, 1024, device=device, requires_grad=True)

    def step() -> None:
        y = torch.nn.functional.gelu((x @ weight) / scale)
        (y - target).square().mean().backward()
        weight.grad = None

    return Workload(step=step, name="float64 by accident")


faulty = partial(_made, dtype=torch.float64)  # The arrays as numpy made them
fixed = partial(_made, dtype=torch.float32)  # Cast once, where they come in
