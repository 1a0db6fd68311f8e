"""A second set of pairs, recorded after what the first one showed was mended."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from bench.gpu.pairs_form import Recipe, Setting, Step, captured, inference, training, with_precision
from bench.gpu.pairs_models import Language, Patches, convolutions, layers, perceptron


def tf32_language(setting: Setting, precision: str) -> Step:
    """A small language model trained in float32."""
    words = setting.size(8192, 64)
    model = Language(setting, words, setting.size(768, 32), setting.size(4, 1), setting.size(12, 2))
    ids, targets = (setting.tokens(words, setting.size(8, 2), setting.size(512, 16)) for _ in range(2))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    return with_precision(precision, training(setting, lambda: model(ids, targets), optimizer, amp=False))


def cast_images(setting: Setting, low: bool) -> Step:
    """A vision transformer that labels images, in float32 or under autocast."""
    model = Patches(setting, setting.size(1024, 32), setting.size(4, 1), setting.size(16, 2)).eval()
    side = setting.size(224, 32)
    x = setting.randn(setting.size(64, 2), 3, side, side)

    def forward() -> torch.Tensor:
        with setting.autocast(low):
            return model(x)

    return inference(forward)


class Cross(nn.Module):
    """Attention of short queries over a long context, fused or with its scores written out, as speech decoders have."""

    def __init__(self, width: int, heads: int, *, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.q, self.kv, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """x: [B, S, width], context: [B, T, width] -> [B, S, width]."""
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.kv(context).chunk(2, -1))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            y = torch.softmax(torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2)), -1) @ v
        return self.out(y.transpose(1, 2).flatten(2))


def cross_attention(setting: Setting, fused: bool) -> Step:
    """Two such layers in training."""
    width = setting.size(1024, 32)
    with torch.device(setting.device):
        turns = nn.ModuleList(Cross(width, setting.size(16, 2), fused=fused) for _ in range(2))
    x = setting.randn(setting.size(8, 2), setting.size(448, 16), width)
    context = setting.randn(setting.size(8, 2), setting.size(1500, 64), width)
    optimizer = torch.optim.AdamW(turns.parameters(), fused=True)

    def loss() -> torch.Tensor:
        y = x
        for turn in turns:
            y = y + turn(y, context)
        return y.float().square().mean()

    return training(setting, loss, optimizer)


def momentum_loop(setting: Setting, at_once: bool) -> Step:
    """A convolutional network at a small batch whose SGD with momentum goes through its weights in Python."""
    model = convolutions(setting)
    side = setting.size(96, 32)
    x, y = setting.randn(setting.size(8, 2), 3, side, side), setting.tokens(1000, setting.size(8, 2))
    how = {"fused": True} if at_once else {"foreach": False}
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, **how)
    return training(setting, lambda: F.cross_entropy(model(x), y), optimizer)


def images_in_inference(setting: Setting, last: bool) -> Step:
    """A convolutional network in bfloat16 labels images in either order of memory."""
    order = torch.channels_last if last else torch.contiguous_format
    model = convolutions(setting).to(torch.bfloat16).to(memory_format=order).eval()
    side = setting.size(224, 32)
    x = setting.randn(setting.size(128, 2), 3, side, side, dtype=torch.bfloat16).contiguous(memory_format=order)
    return inference(lambda: model(x))


def small_images(setting: Setting) -> Step:
    """One image through a convolutional network in bfloat16."""
    model = convolutions(setting).to(torch.bfloat16).eval()
    x = setting.randn(1, 3, setting.size(224, 32), setting.size(224, 32), dtype=torch.bfloat16)
    return inference(lambda: model(x))


def score_images(x: torch.Tensor, mean: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
    """Contrast, gamma and clipping of images, as augmentations on a device do."""
    y = (x - mean) / spread
    y = torch.sign(y) * torch.abs(y).pow(0.8)
    y = torch.where(y > 2.0, 2.0 + 0.1 * (y - 2.0), y)
    return (torch.tanh(y) + 1.0) * 0.5


def augmentation(setting: Setting, compiled: bool) -> Step:
    """Those over a batch of images."""
    side = setting.size(512, 16)
    x = setting.randn(setting.size(128, 2), 3, side, side)
    mean, spread = setting.randn(3, 1, 1), setting.randn(3, 1, 1).abs() + 0.5
    function = setting.compiled(score_images) if compiled else score_images
    return inference(lambda: function(x, mean, spread))


class Mixer(nn.Module):
    """A gated layer with layer norms: pointwise operations on the wide side."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.gate = nn.LayerNorm(width), nn.LayerNorm(2 * width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [B, S, width] -> the same."""
        a, b = self.up(self.norm(x)).chunk(2, -1)
        return x + 0.5 * self.down(self.gate(F.gelu(a) * torch.sigmoid(b)))


def gated_layers(setting: Setting, compiled: bool) -> Step:
    """A stack of them in training."""
    width = setting.size(1024, 32)
    with torch.device(setting.device):
        model = nn.Sequential(*(Mixer(width) for _ in range(setting.size(6, 1))))
    function = setting.compiled(model) if compiled else model
    x = setting.randn(setting.size(16, 2), setting.size(1024, 16), width)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    return training(setting, lambda: function(x).float().square().mean(), optimizer)


def remade_blocks(setting: Setting, again: bool) -> Step:
    """A wide perceptron whose blocks are checkpointed, or not."""
    width = setting.size(4096, 32)
    model = perceptron(setting, width, setting.size(6, 2), norm=True)
    x = setting.randn(setting.size(4096, 4), width)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def loss() -> torch.Tensor:
        y = x
        for block in model:
            y = checkpoint(block, y, use_reentrant=False) if again else block(y)
        return y.float().square().mean()

    return training(setting, loss, optimizer)


def batch_of(setting: Setting, times: int) -> Step:
    """Short sentences through a small encoder, `times` four of them."""
    width = setting.size(512, 32)
    model = layers(setting, width, setting.size(6, 1), setting.size(8, 2)).bfloat16().eval()
    x = setting.randn(4 * times, setting.size(64, 8), width, dtype=torch.bfloat16)
    return inference(lambda: model(x))


def large_updates(setting: Setting, fused: bool) -> Step:
    """Two large matrices whose Adam is bound by memory, whatever its form."""
    width = setting.size(8192, 32)
    model = perceptron(setting, width, 2)
    x = setting.randn(setting.size(8192, 4), width)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, **({"fused": True} if fused else {"foreach": False}))
    return training(setting, lambda: model(x).float().square().mean(), optimizer)


def logged_norms(setting: Setting, read: bool) -> Step:
    """A perceptron at a small batch whose step reads the norm of each gradient, or keeps them on the device."""
    model = perceptron(setting, setting.size(512, 32), setting.size(24, 2), norm=True)
    x = setting.randn(setting.size(64, 4), setting.size(512, 32))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> list[object]:
        with setting.autocast():
            loss = F.mse_loss(model(x), x)
        loss.backward()
        norms = [parameter.grad.norm() for parameter in model.parameters()]
        told: list[object] = [norm.item() for norm in norms] if read else norms
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return told

    return step


RECIPES = (
    Recipe("tf32_language", "a language model trained in float32 without TF32", "compute", ("C01",), ("tf32",),
           lambda s: tf32_language(s, "highest"), lambda s: tf32_language(s, "high")),
    Recipe("cast_images", "a vision transformer infers in float32", "compute", ("C01",), ("bf16-autocast",),
           lambda s: cast_images(s, False), lambda s: cast_images(s, True)),
    Recipe("cross_attention", "attention over a long context with its scores written out, training", "memory",
           ("M02",), ("sdpa",), lambda s: cross_attention(s, False), lambda s: cross_attention(s, True)),
    Recipe("momentum_loop", "SGD with momentum parameter by parameter", "overhead", ("O03",), ("fused-optimizer",),
           lambda s: momentum_loop(s, False), lambda s: momentum_loop(s, True)),
    Recipe("images_in_inference", "convolutions in NCHW, inference", "memory", ("M05", "M03"), ("channels-last",),
           lambda s: images_in_inference(s, False), lambda s: images_in_inference(s, True)),
    Recipe("small_images_graph", "one image at a time", "overhead", ("O01",), ("cuda-graph",),
           small_images, lambda s: captured(small_images(s)), needs_gpu=True),
    Recipe("remade_blocks", "blocks computed a second time, memory free", "compute", ("R01",), ("no-checkpoint",),
           lambda s: remade_blocks(s, True), lambda s: remade_blocks(s, False)),
    Recipe("short_sentences", "a batch of four short sentences", "overhead", ("O01",), ("larger-batch",),
           lambda s: batch_of(s, 1), lambda s: batch_of(s, 8), fixed_work=8.0),
    Recipe("logged_norms", "the norm of each gradient is read by the host", "overhead", ("O02",), ("remove-sync",),
           lambda s: logged_norms(s, True), lambda s: logged_norms(s, False)),
    Recipe("large_updates", "updates of two large matrices", "compute", (), ("fused-optimizer",),
           lambda s: large_updates(s, False), lambda s: large_updates(s, True), negative=True),
    Recipe("augmentation_compile", "a chain of pointwise operations on images", "memory", ("M01",), ("compile",),
           lambda s: augmentation(s, False), lambda s: augmentation(s, True), compiles=True),
    Recipe("gated_layers_compile", "gates and layer norms in eager mode, training", "memory", ("M01",), ("compile",),
           lambda s: gated_layers(s, False), lambda s: gated_layers(s, True), compiles=True),
)  # fmt: skip
