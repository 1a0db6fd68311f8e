"""Pairs whose faulty step is bound by memory: passes over tensors that need not be, or in the wrong order."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from bench.gpu.pairs_form import Recipe, Setting, Step, inference, training
from bench.gpu.pairs_models import convolutions, layers


class WrittenNorm(nn.Module):
    """RMS norm operation by operation, in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., width] -> the same."""
        z = x.float()
        return self.weight * (z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding of x: [B, H, S, D]."""
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class WrittenLayer(nn.Module):
    """A layer as recent language models have it: RMS norms, rotary positions and a gated MLP, all by hand."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = WrittenNorm(width), WrittenNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        inner = -(-8 * width // 3 // 64) * 64
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """x: [B, S, width] -> the same."""
        b, s, w = x.shape
        q, k, v = (part.view(b, s, self.heads, -1).transpose(1, 2) for part in self.qkv(self.n1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, w))
        z = self.n2(x)
        return x + self.down(F.silu(self.gate(z)) * self.up(z))


class Written(nn.Module):
    """A stack of these layers."""

    def __init__(self, width: int, depth: int, heads: int, length: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(WrittenLayer(width, heads) for _ in range(depth))
        half = width // heads // 2
        angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(half) / half)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [B, S, width] -> the same."""
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return x


def written_layers(setting: Setting, fused: bool) -> Step:
    """A training step in bfloat16, eager or compiled."""
    width, length = setting.size(1024, 64), setting.size(1024, 32)
    with torch.device(setting.device):
        model = Written(width, setting.size(2, 1), setting.size(16, 2), length).bfloat16()
    x = setting.randn(setting.size(16, 2), length, width, dtype=torch.bfloat16)
    forward = setting.compiled(model) if fused else model
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    return training(setting, lambda: forward(x).float().square().mean(), optimizer, amp=False)


def attention(setting: Setting, fused: bool) -> Step:
    """A causal model's forward pass in bfloat16."""
    width = setting.size(1024, 64)
    model = layers(setting, width, setting.size(4, 1), setting.size(16, 2), causal=True, fused=fused).bfloat16()
    x = setting.randn(setting.size(16, 2), setting.size(1024, 32), width, dtype=torch.bfloat16)
    return inference(lambda: model(x))


def images(setting: Setting, order: torch.memory_format) -> Step:
    """A residual network's training step under autocast."""
    model = convolutions(setting).to(memory_format=order)
    side = setting.size(224, 32)
    x = setting.randn(setting.size(128, 2), 3, side, side).contiguous(memory_format=order)
    classes = setting.tokens(1000, len(x))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    return training(setting, lambda: F.cross_entropy(model(x).float(), classes), optimizer)


def ranking(setting: Setting, once: bool) -> Step:
    """A deep ranking model at a small batch: its weights in float32 under autocast, or cast once."""
    width = setting.size(6144, 64)
    with torch.device(setting.device):
        turns = [
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(setting.size(4, 2))
        ]
        model = nn.Sequential(*turns)
    x = setting.randn(16, width)
    if once:
        model, x = model.bfloat16(), x.bfloat16()

    def forward() -> torch.Tensor:
        with setting.autocast(not once):
            return model(x)

    return inference(forward)


RECIPES = (
    Recipe(
        "written_layers_compile", "RMS norms, rotary positions and gated MLPs by hand", "memory", ("M01", "M03"),
        ("compile",), lambda s: written_layers(s, fused=False), lambda s: written_layers(s, fused=True), compiles=True,
    ),
    Recipe(
        "masked_attention", "masked attention written out, in inference", "memory", ("M02",), ("sdpa",),
        lambda s: attention(s, fused=False), lambda s: attention(s, fused=True),
    ),
    Recipe(
        "images_channels_last", "convolutions in bfloat16 on NCHW", "memory", ("M05", "M03"), ("channels-last",),
        lambda s: images(s, torch.contiguous_format), lambda s: images(s, torch.channels_last),
    ),
    Recipe(
        "weights_cast_once", "autocast converts all weights in each forward pass", "memory", ("M06",), ("cast-once",),
        lambda s: ranking(s, once=False), lambda s: ranking(s, once=True),
    ),
)  # fmt: skip
