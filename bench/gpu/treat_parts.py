"""Small networks with one fault each, and two without any, that are to be treated (`bench.gpu.treat`)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import gobrrr
from bench.gpu.pairs_form import Setting
from bench.gpu.treat_form import made, served, workload
from bench.gpu.workloads import MoE


@workload("64 narrow layers, batch 1: launches take the time")
def mlp_tiny(at: Setting) -> gobrrr.Workload:
    width, layers = at.size(256, 16), at.size(64, 4)

    def make() -> nn.Module:
        return nn.Sequential(
            *(nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.GELU()) for _ in range(layers))
        )

    return served("mlp_tiny", made(at, make), at.randn(1, width))


class Chain(nn.Module):
    """Elementwise operations on one large tensor."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.randn(size)), nn.Parameter(torch.randn(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [n] -> the same."""
        y = x * self.scale + self.shift
        y = torch.sigmoid(y) * y
        return torch.clamp(y * 0.5 + 0.1, -3, 3).cos().cos()


@workload("a chain of elementwise operations, each its own kernel")
def pointwise_chain(at: Setting) -> gobrrr.Workload:
    size = at.size(1 << 26, 1 << 10)
    return served("pointwise_chain", made(at, Chain, size), at.randn(size))


@workload("the same chain, compiled already: nothing to gain but by other numbers")
def compiled_chain(at: Setting) -> gobrrr.Workload:
    size = at.size(1 << 28, 1 << 10)
    return served("compiled_chain", at.compiled(made(at, Chain, size).eval()), at.randn(size))


@workload("the compiled chain in bf16: nothing to gain", gains=False)
def compiled_chain_bf16(at: Setting) -> gobrrr.Workload:
    size = at.size(1 << 28, 1 << 10)
    model = made(at, Chain, size).to(torch.bfloat16).eval()
    return served("compiled_chain_bf16", at.compiled(model), at.randn(size, dtype=torch.bfloat16))


@workload("a mixture of experts in bf16 that loops over its experts on the host")
def moe_host_loop(at: Setting) -> gobrrr.Workload:
    width = at.size(1024, 32)
    model = made(at, MoE, d=width, E=at.size(32, 4)).to(torch.bfloat16)
    return served("moe_host_loop", model, at.randn(at.size(2048, 16), width, dtype=torch.bfloat16))


@workload("large bf16 matrix products and little else: nothing to gain", gains=False)
def mlp_well_done(at: Setting) -> gobrrr.Workload:
    width, batch = at.size(16384, 32), at.size(8192, 4)

    def make() -> nn.Module:
        first, second = (nn.Linear(width, width, bias=False, dtype=torch.bfloat16) for _ in range(2))
        return nn.Sequential(first, nn.ReLU(inplace=True), second)

    return served("mlp_well_done", made(at, make), at.randn(batch, width, dtype=torch.bfloat16))


@workload("80 small layers trained by an AdamW that steps one parameter at a time")
def small_parameters(at: Setting) -> gobrrr.Workload:
    width, layers, batch = at.size(128, 8), at.size(80, 4), at.size(256, 4)

    def make() -> nn.Module:
        return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(layers)))

    model = made(at, make)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    return gobrrr.Workload(
        model=model, inputs=(at.randn(batch, width),), loss=F.mse_loss, targets=(at.randn(batch, width),),
        optimizer=optimizer, name="small_parameters",
    )  # fmt: skip
