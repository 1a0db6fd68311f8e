"""Audio: spectrograms, raw waves, conformers."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import gobrrr
from bench.gpu.pairs_form import Setting
from bench.gpu.treatment_workloads.form import made, served, trained, workload


class SpectrogramNet(nn.Module):
    """A short-time Fourier transform, then convolutions over time and frequency."""

    def __init__(self, channels: int, layers: int, classes: int) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(512))
        body: list[Any] = []
        for at in range(layers):
            wide = 1 if at == 0 else channels * 2 ** min(at - 1, 3)
            out = channels * 2 ** min(at, 3)
            body += [nn.Conv2d(wide, out, 3, 2, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
        self.body = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(out, classes))

    def forward(self, wave: Any) -> Any:
        """wave: [B, samples] -> [B, classes]."""
        found = torch.stft(wave, 512, 160, window=self.window, return_complex=True)
        return self.body((found.abs().square() + 1e-6).log()[:, None])


class WaveNet(nn.Module):
    """Dilated convolutions with gates over a raw wave."""

    def __init__(self, channels: int, layers: int) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv1d(1, channels, 1), nn.Conv1d(channels, 1, 1)
        self.gates = nn.ModuleList(
            nn.Conv1d(channels, 2 * channels, 3, padding=2 ** (at % 8), dilation=2 ** (at % 8)) for at in range(layers)
        )
        self.mixes = nn.ModuleList(nn.Conv1d(channels, channels, 1) for _ in range(layers))

    def forward(self, x: Any) -> Any:
        """x: [B, 1, samples] -> the same."""
        x = self.stem(x)
        for gate, mix in zip(self.gates, self.mixes, strict=True):
            a, b = gate(x).chunk(2, 1)
            x = x + mix(torch.tanh(a) * torch.sigmoid(b))
        return self.head(x)


class ConformerBlock(nn.Module):
    """Half a feed-forward, attention, a depthwise convolution over time, half a feed-forward."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.last = (self._feed(width) for _ in range(2))
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.before, self.up = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1)
        self.depth = nn.Conv1d(width, width, 15, padding=7, groups=width)
        self.middle, self.down = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1)
        self.after = nn.LayerNorm(width)

    @staticmethod
    def _feed(width: int) -> Any:
        return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        """x: [B, S, width] -> the same."""
        x = x + 0.5 * self.first(x)
        b, s, d = x.shape
        q, k, v = (part.view(b, s, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, d))
        y = F.glu(self.up(self.before(x).transpose(1, 2)), 1)
        y = self.down(F.silu(self.middle(self.depth(y)))).transpose(1, 2)
        return self.after(x + y + 0.5 * self.last(x + y))


@workload("audio", "a classifier of spectrograms training in fp32, batch 64 of a second, AdamW")
def spectrogram_train(at: Setting) -> gobrrr.Workload:
    batch = at.size(64, 2)
    model = made(at, SpectrogramNet, at.size(32, 4), at.size(6, 2), 35)
    return trained(model, F.cross_entropy, (at.randn(batch, 16_000),), (at.tokens(35, batch),))


@workload("audio", "a conformer of 6 blocks of 256 training in fp32, batch 16 of 400 frames, AdamW")
def conformer_train(at: Setting) -> gobrrr.Workload:
    width, shape = at.size(256, 16), (at.size(16, 2), at.size(400, 20))
    model = made(at, lambda: nn.Sequential(*(ConformerBlock(width, 4) for _ in range(at.size(6, 1)))))
    return trained(model, F.mse_loss, (at.randn(*shape, width),), (at.randn(*shape, width),))


@workload("audio", "a WaveNet of 16 gated layers over half a second, inference in fp32, batch 1")
def wavenet_serve_one(at: Setting) -> gobrrr.Workload:
    return served(made(at, WaveNet, at.size(64, 4), at.size(16, 2)), at.randn(1, 1, at.size(8000, 600)))
