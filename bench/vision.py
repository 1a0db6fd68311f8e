"""Vision models and diffusion models by hand, as the zoo (`bench.models`) builds them.

A builder returns (model, inputs to be made, loss of the model and the inputs). Shapes: B batch, S sequence.
"""

# mypy: allow-subclassing-any
from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from bench.networks import Tensor, heads_of, joined, label_loss, mean_loss, tokens


class Bottleneck(nn.Module):
    """ResNet's residual block: 1x1, 3x3 (strided), 1x1."""

    def __init__(self, wide: int, mid: int, stride: int) -> None:
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(wide, mid, 1, bias=False), nn.BatchNorm2d(mid)
        self.c2, self.b2 = nn.Conv2d(mid, mid, 3, stride, 1, bias=False), nn.BatchNorm2d(mid)
        self.c3, self.b3 = nn.Conv2d(mid, 4 * mid, 1, bias=False), nn.BatchNorm2d(4 * mid)
        self.skip = None
        if stride > 1 or wide != 4 * mid:
            self.skip = nn.Sequential(nn.Conv2d(wide, 4 * mid, 1, stride, bias=False), nn.BatchNorm2d(4 * mid))

    def forward(self, x: Tensor) -> Tensor:
        """x: [B, wide, H, W] -> [B, 4 mid, H / stride, W / stride]."""
        y = F.relu_(self.b1(self.c1(x)))
        y = F.relu_(self.b2(self.c2(y)))
        y = self.b3(self.c3(y))
        y += x if self.skip is None else self.skip(x)
        return F.relu_(y)


def resnet(batch: int, side: int = 224, blocks: tuple[int, ...] = (3, 4, 6, 3), labels: bool = False) -> Any:
    body, wide = [], 64
    for stage, count in enumerate(blocks):
        for i in range(count):
            body.append(Bottleneck(wide, 64 << stage, 2 if stage and not i else 1))
            wide = 256 << stage
    model = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
        *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(wide, 1000),
    )  # fmt: skip
    if labels:
        return model, lambda: (torch.randn(batch, 3, side, side), tokens(1000, batch)), label_loss
    return model, lambda: (torch.randn(batch, 3, side, side),), mean_loss


class VitLayer(nn.Module):
    """Pre-norm encoder layer with one projection for queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width, 1e-6), nn.LayerNorm(width, 1e-6)
        self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """x: [B, S, width] -> the same."""
        b, s, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).reshape(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self._drop(self.o(joined(F.scaled_dot_product_attention(q, k, v))))
        return x + self._drop(self.down(self._drop(F.gelu(self.up(self.n2(x))))))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.0, self.training)


class Vit(nn.Module):
    """ViT with a class token; dropout of 0 is called as timm calls it."""

    def __init__(self, width: int, layers: int, heads: int, side: int = 224, patch: int = 16) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.place = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, width) * 0.02)
        self.layers = nn.ModuleList(VitLayer(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width, 1e-6), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """x: [B, 3, side, side] -> [B, 1000]."""
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = F.dropout(torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.place, 0.0, self.training)
        for layer in self.layers:
            x = layer(x)
        return self.head(F.dropout(self.norm(x)[:, 0], 0.0, self.training))


def vit(width: int, layers: int, heads: int, batch: int) -> Any:
    return Vit(width, layers, heads), lambda: (torch.randn(batch, 3, 224, 224),), mean_loss


class Dit(nn.Module):
    """Diffusion transformer blocks with AdaLN-zero modulation by a condition."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        sizes = {"ada": (width, 6 * width), "qkv": (width, 3 * width), "o": (width, width)}
        sizes |= {"up": (width, 4 * width), "down": (4 * width, width)}
        self.layers = nn.ModuleList(
            nn.ModuleDict({name: nn.Linear(*size) for name, size in sizes.items()}) for _ in range(layers)
        )

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        """x: [B, S, width], c: [B, width] -> [B, S, width]."""
        for layer in self.layers:
            s1, a1, g1, s2, a2, g2 = layer["ada"](F.silu(c))[:, None].chunk(6, -1)
            y = F.layer_norm(x, (self.width,)) * (1 + a1) + s1
            q, k, v = (heads_of(part, self.width // self.heads) for part in layer["qkv"](y).chunk(3, -1))
            x = x + g1 * layer["o"](joined(F.scaled_dot_product_attention(q, k, v)))
            y = F.layer_norm(x, (self.width,)) * (1 + a2) + s2
            x = x + g2 * layer["down"](F.gelu(layer["up"](y), approximate="tanh"))
        return x


def dit(width: int, layers: int, heads: int, batch: int, seq: int) -> Any:
    return Dit(width, layers, heads), lambda: (torch.randn(batch, seq, width), torch.randn(batch, width)), mean_loss


class ConvNextBlock(nn.Module):
    """7x7 depthwise convolution, then a per-pixel MLP in channels-last order."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.scale = nn.LayerNorm(width, 1e-6), nn.Parameter(torch.full((width, 1, 1), 1e-6))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """x: [B, width, H, W] -> the same."""
        y = self.norm(self.conv(x).permute(0, 2, 3, 1))
        return x + self.scale * self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2)


class PixelNorm(nn.LayerNorm):
    """LayerNorm over the channels of [B, C, H, W]."""

    def forward(self, x: Tensor) -> Tensor:
        """x: [B, C, H, W] -> the same."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def convnext(batch: int, depths: tuple[int, ...], widths: tuple[int, ...], side: int = 224) -> Any:
    body: list[Any] = [nn.Conv2d(3, widths[0], 4, 4), PixelNorm(widths[0], 1e-6)]
    for i, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        if i:
            body += [PixelNorm(widths[i - 1], 1e-6), nn.Conv2d(widths[i - 1], width, 2, 2)]
        body += [ConvNextBlock(width) for _ in range(depth)]
    body += [nn.AdaptiveAvgPool2d(1), PixelNorm(widths[-1], 1e-6), nn.Flatten(1), nn.Linear(widths[-1], 1000)]
    return nn.Sequential(*body), lambda: (torch.randn(batch, 3, side, side), tokens(1000, batch)), label_loss


class MbConv(nn.Module):
    """Inverted residual: 1x1 up, depthwise, squeeze and excite (`squeeze` > 0), 1x1 down."""

    def __init__(self, wide: int, out: int, kernel: int, stride: int, grow: int, squeeze: int, act: Any) -> None:
        super().__init__()
        mid = wide * grow
        up = [nn.Conv2d(wide, mid, 1, bias=False), nn.BatchNorm2d(mid), act()] if grow > 1 else []
        depth = [nn.Conv2d(mid, mid, kernel, stride, kernel // 2, groups=mid, bias=False), nn.BatchNorm2d(mid), act()]
        self.body = nn.Sequential(*up, *depth)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(mid, squeeze, 1), act(), nn.Conv2d(squeeze, mid, 1), nn.Sigmoid()
        ) if squeeze else None  # fmt: skip
        self.down = nn.Sequential(nn.Conv2d(mid, out, 1, bias=False), nn.BatchNorm2d(out))
        self.same = stride == 1 and wide == out

    def forward(self, x: Tensor) -> Tensor:
        """x: [B, wide, H, W] -> [B, out, H / stride, W / stride]."""
        y = self.body(x)
        y = self.down(y if self.gate is None else y * self.gate(y))
        return x + y if self.same else y


def mbconv(batch: int, rows: tuple[tuple[int, ...], ...], excite: bool, side: int = 224) -> Any:
    """`rows`: (grow, out, blocks, first stride, kernel) of each stage; `excite`: EfficientNet-B0, else MobileNetV2."""
    act = nn.SiLU if excite else nn.ReLU6
    body: list[Any] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), act()]
    wide = 32
    for grow, out, blocks, stride, kernel in rows:
        for i in range(blocks):
            squeeze = max(1, wide // 4) if excite else 0
            body.append(MbConv(wide, out, kernel, 1 if i else stride, grow, squeeze, act))
            wide = out
    body += [nn.Conv2d(wide, 1280, 1, bias=False), nn.BatchNorm2d(1280), act(), nn.AdaptiveAvgPool2d(1)]
    body += [nn.Flatten(1), nn.Linear(1280, 1000)]
    return nn.Sequential(*body), lambda: (torch.randn(batch, 3, side, side), tokens(1000, batch)), label_loss


class UnetBlock(nn.Module):
    """GroupNorm, SiLU, 3x3 convolution, twice, with the time's embedding between and a residual."""

    def __init__(self, wide: int, out: int, time: int) -> None:
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(32, wide), nn.Conv2d(wide, out, 3, padding=1)
        self.n2, self.c2 = nn.GroupNorm(32, out), nn.Conv2d(out, out, 3, padding=1)
        self.time = nn.Linear(time, out)
        self.skip = nn.Conv2d(wide, out, 1) if wide != out else nn.Identity()

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """x: [B, wide, H, W], t: [B, time] -> [B, out, H, W]."""
        y = self.c1(F.silu(self.n1(x))) + self.time(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.c2(F.silu(self.n2(y)))


class Unet(nn.Module):
    """A diffusion model's U-Net: two blocks a level down, two up, attention at the bottom."""

    def __init__(self, widths: tuple[int, ...], time: int = 512) -> None:
        super().__init__()
        self.stem, self.out = nn.Conv2d(4, widths[0], 3, padding=1), nn.Conv2d(widths[0], 4, 3, padding=1)
        levels = list(zip((widths[0], *widths[:-1]), widths, strict=True))
        self.down = nn.ModuleList(
            nn.ModuleList([UnetBlock(a, b, time), UnetBlock(b, b, time), nn.Conv2d(b, b, 3, 2, 1)]) for a, b in levels
        )
        self.middle = VitLayer(widths[-1], widths[-1] // 64)
        self.up = nn.ModuleList(
            nn.ModuleList([UnetBlock(2 * b, b, time), UnetBlock(b, a, time)]) for a, b in reversed(levels)
        )

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """x: [B, 4, H, W], t: [B, time] -> [B, 4, H, W]."""
        x, kept = self.stem(x), []
        for first, second, shrink in self.down:
            x = second(first(x, t), t)
            kept.append(x)
            x = shrink(x)
        b, c, h, w = x.shape
        x = self.middle(x.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(b, c, h, w)
        for first, second in self.up:
            x = torch.cat([F.interpolate(x, scale_factor=2.0, mode="nearest"), kept.pop()], 1)
            x = second(first(x, t), t)
        return self.out(x)


def unet(batch: int, side: int, widths: tuple[int, ...]) -> Any:
    return Unet(widths), lambda: (torch.randn(batch, 4, side, side), torch.randn(batch, 512)), mean_loss
