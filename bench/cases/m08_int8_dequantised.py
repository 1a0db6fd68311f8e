"""Int8 weights that are turned back into floating point in every call, outlier columns apart."""

from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "M08", "M06", "cpu"
WIDTH, DEPTH, ROWS, OUTLIERS = 512, 4, 4, 8


class Int8Linear(torch.nn.Module):
    """x @ W with int8 weights and a scale a row; the columns with outliers stay in float32."""

    def __init__(self, ready: bool) -> None:
        super().__init__()
        weight = torch.randn(WIDTH, WIDTH) / WIDTH**0.5
        scale = weight.abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", (weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.register_buffer("outliers", torch.arange(OUTLIERS))
        self.register_buffer("kept", weight[:, :OUTLIERS].t().contiguous())
        self.ready = (self.weight.float() * self.scale).t().contiguous() if ready else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(rows, width) -> the same."""
        if self.ready is not None:
            return x @ self.ready
        rest = x.index_fill(1, self.outliers, 0.0)
        return rest @ (self.weight.float() * self.scale).t() + x[:, self.outliers] @ self.kept


def _made(device: str = "cpu", *, ready: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[Int8Linear(ready) for _ in range(DEPTH)]).to(device)
    return Workload(model=model, inputs=(torch.randn(ROWS, WIDTH, device=device),), name="int8 linear")


faulty = partial(_made, ready=False)  # Dequantised in each call, at a batch that is too small to pay for it
fixed = partial(_made, ready=True)  # Dequantised once
