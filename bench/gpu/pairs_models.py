"""The networks of the pairs: random weights, no library but torch."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from bench.gpu.pairs_form import Setting


class Attention(nn.Module):
    """Self-attention, fused or with its scores written out."""

    def __init__(self, width: int, heads: int, *, causal: bool, fused: bool) -> None:
        super().__init__()
        self.heads, self.causal, self.fused = heads, causal, fused
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [B, S, width] -> the same."""
        b, s, w = x.shape
        q, k, v = (part.view(b, s, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(w // self.heads)
            if self.causal:
                mask = torch.ones(s, s, device=x.device, dtype=torch.bool).tril()
                scores = scores.masked_fill(~mask, float("-inf"))
            y = scores.softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, s, w))


class Layer(nn.Module):
    """A pre-norm transformer layer."""

    def __init__(self, width: int, heads: int, *, causal: bool, fused: bool) -> None:
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal=causal, fused=fused)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [B, S, width] -> the same."""
        x = x + self.attention(self.n1(x))
        return x + self.down(F.gelu(self.up(self.n2(x))))


def layers(setting: Setting, width: int, depth: int, heads: int, *, causal: bool = False,
           fused: bool = True) -> nn.Sequential:  # fmt: skip
    """A stack of transformer layers."""
    with torch.device(setting.device):
        return nn.Sequential(*(Layer(width, heads, causal=causal, fused=fused) for _ in range(depth)))


def perceptron(setting: Setting, width: int, depth: int, *, norm: bool = False) -> nn.Sequential:
    """Linear layers with ReLU between them; `norm`: and a layer norm."""
    with torch.device(setting.device):
        turn = [
            nn.Sequential(nn.Linear(width, width), *([nn.LayerNorm(width)] if norm else []), nn.ReLU())
            for _ in range(depth)
        ]
        return nn.Sequential(*turn)


class Bottleneck(nn.Module):
    """A residual block of three convolutions that halves height and width."""

    def __init__(self, inside: int, width: int, outside: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, outside, 1, bias=False), nn.BatchNorm2d(outside),
        )  # fmt: skip
        self.short = nn.Sequential(nn.Conv2d(inside, outside, 1, 2, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [N, C, H, W] -> [N, C', H/2, W/2]."""
        return F.relu(self.body(x) + self.short(x))


def convolutions(setting: Setting) -> nn.Sequential:
    """A residual network of four blocks for images of 224 x 224."""
    with torch.device(setting.device):
        stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
        sizes = [(64, 64, 256), (256, 128, 512), (512, 256, 1024), (1024, 512, 2048)]
        blocks = [Bottleneck(*size) for size in sizes[: setting.size(4, 2)]]
        tail = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(sizes[len(blocks) - 1][2], 1000)]
        return nn.Sequential(*stem, *blocks, *tail)


class Patches(nn.Module):
    """A vision transformer of a few layers: patches of 16 x 16, the mean of all tokens, classes."""

    def __init__(self, setting: Setting, width: int, depth: int, heads: int, classes: int = 1000) -> None:
        super().__init__()
        with torch.device(setting.device):
            self.patch = nn.Conv2d(3, width, 16, 16)
            self.body = layers(setting, width, depth, heads)
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """images: [N, 3, H, W] -> [N, classes]."""
        x = self.body(self.patch(images).flatten(2).transpose(1, 2))
        return self.head(self.norm(x).mean(1))


class Language(nn.Module):
    """A causal language model; `rows`: the head's, which may be more than the vocabulary."""

    def __init__(self, setting: Setting, vocabulary: int, width: int, depth: int, heads: int,
                 rows: int | None = None) -> None:  # fmt: skip
        super().__init__()
        self.vocabulary = vocabulary
        with torch.device(setting.device):
            self.embedding = nn.Embedding(vocabulary, width)
            self.body = layers(setting, width, depth, heads, causal=True)
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, rows or vocabulary, bias=False)

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """ids and targets: [B, S] -> the loss."""
        logits = self.head(self.norm(self.body(self.embedding(ids))))
        if logits.shape[-1] != self.vocabulary:
            logits = logits[..., : self.vocabulary]
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
