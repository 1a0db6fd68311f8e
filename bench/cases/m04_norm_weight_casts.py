"""A norm that converts its weights to float32 in each forward pass."""

from functools import partial

import torch
from torch.nn import functional

from gobrrr import Workload

CASE, CODE, RUNS_ON = "M04", "M06", "cpu"
LAYERS, WIDTH, ROWS = 16, 262_144, 1


class Norm(torch.nn.LayerNorm):
    """In float32, whatever the type of its weights."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The weights are converted here, in each call."""
        return functional.layer_norm(x, self.normalized_shape, self.weight.float(), self.bias.float(), self.eps)


def _made(device: str = "cpu", *, dtype: torch.dtype) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[Norm(WIDTH, dtype=dtype) for _ in range(LAYERS)]).to(device)
    x = torch.randn(ROWS, WIDTH, device=device)

    def step() -> None:
        with torch.inference_mode():
            model(x)

    return Workload(model=model, step=step, name="norms")


faulty = partial(_made, dtype=torch.bfloat16)  # Weights in bfloat16
fixed = partial(_made, dtype=torch.float32)  # Weights in float32: `float()` gives them back as they are
