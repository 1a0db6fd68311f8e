"""Decoding: one token after a cache."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import gobrrr
from bench import networks
from bench.gpu.pairs_form import Setting
from bench.gpu.treatment_workloads.form import made, served, workload


def llama(at: Setting, width: int, layers: int, cache: int, dtype: Any) -> Any:
    """A Llama-like model that takes one token after `cache` of them."""
    sizes = {"width": at.size(width, 64), "layers": at.size(layers, 1), "heads": at.size(width // 64, 4),
             "groups": at.size(width // 256, 2), "hidden": at.size(width * 11 // 4, 128), "vocab": at.size(32000, 67),
             "cache": at.size(cache, 16)}  # fmt: skip
    return made(at, networks.Llama, **sizes).to(dtype)


class CrossLayer(nn.Module):
    """A decoder layer whose keys and values of all earlier positions are given, for many sequences."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.n1, self.n2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.kv, self.o = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any, keys: Any, values: Any) -> Any:
        """x: [B, 1, width], keys and values: [B, H, S, D] -> [B, 1, width]."""
        b, _, d = x.shape
        h = self.n1(x)
        q, (k, v) = self.q(h), self.kv(h).chunk(2, -1)
        q, k, v = (part.view(b, 1, self.heads, -1).transpose(1, 2) for part in (q, k, v))
        y = F.scaled_dot_product_attention(q, torch.cat([keys, k], 2), torch.cat([values, v], 2))
        x = x + self.o(y.transpose(1, 2).reshape(b, 1, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class CatDecoder(nn.Module):
    """Layers that append to their cache by copying it, as many first implementations do."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(CrossLayer(width, heads) for _ in range(layers))

    def forward(self, x: Any, keys: Any, values: Any) -> Any:
        """x: [B, 1, width], keys and values: [B, H, S, D], the same for all layers -> [B, 1, width]."""
        for layer in self.layers:
            x = layer(x, keys, values)
        return x


@workload("decoding", "one token of a Llama-like model of 8 layers of 1024 after 512 in bf16", typed=True)
def decode_one(at: Setting) -> gobrrr.Workload:
    return served(llama(at, 1024, 8, 512, torch.bfloat16), at.tokens(at.size(32000, 67), 1, 1))


@workload("decoding", "one token of a small Llama-like model of 6 layers of 512 after 256 in fp32")
def decode_small_one(at: Setting) -> gobrrr.Workload:
    return served(llama(at, 512, 6, 256, torch.float32), at.tokens(at.size(32000, 67), 1, 1))


@workload("decoding", "a token each of 32 sequences after 1,024 in fp32, the cache appended to by copying")
def decode_cat(at: Setting) -> gobrrr.Workload:
    width, heads, batch, seq = at.size(768, 32), at.size(12, 2), at.size(32, 2), at.size(1024, 8)
    model = made(at, CatDecoder, width, at.size(6, 1), heads)
    cache = (batch, heads, seq, width // heads)
    return served(model, at.randn(batch, 1, width), at.randn(*cache), at.randn(*cache))
