"""Layer norms under autocast return float32, and what follows them is computed and kept in float32."""

import torch

from bench.reports.on_gpu import DEVICE, sized
from gobrrr import Workload

SOURCE = "https://github.com/openvpi/DiffSinger/pull/328"
MECHANISM = 8
CAUSE = "autocast computes layer_norm in float32: what comes before is converted, and what follows stays float32"
REPORTED = "composer#1525: a speedup of the norm by running it in the low precision"
NAMES = r"convert|conversion|\bcasts?\b|float32|autocast|layer.?norm"
WIDTH, TOKENS = sized(1024, 32), sized(16_384, 64)


class Norm(torch.nn.LayerNorm):
    """A layer norm in the type of what it gets."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The norm, without what autocast would do."""
        with torch.autocast(DEVICE, enabled=False):
            weight, bias = self.weight.to(x.dtype), self.bias.to(x.dtype)
            return torch.nn.functional.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


class Block(torch.nn.Module):
    """A gated layer with a norm."""

    def __init__(self, norm: type[torch.nn.LayerNorm]) -> None:
        super().__init__()
        self.mix, self.norm, self.out = (
            torch.nn.Linear(WIDTH, 2 * WIDTH),
            norm(2 * WIDTH),
            torch.nn.Linear(WIDTH, WIDTH),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block."""
        y = self.norm(self.mix(x))  # cause
        value, gate = y.chunk(2, dim=-1)
        return self.out(value * torch.nn.functional.silu(gate))


def made(*, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Block(torch.nn.LayerNorm if sick else Norm) for _ in range(sized(6, 2)))).to(DEVICE)
    x = torch.randn(TOKENS, WIDTH, device=DEVICE)

    def step() -> torch.Tensor:
        with torch.autocast(DEVICE, torch.bfloat16):
            y = model(x)
        loss = y.float().square().mean()
        loss.backward()
        model.zero_grad()
        return loss.detach()

    return Workload(model=model, step=step, name="a diffusion backbone")
