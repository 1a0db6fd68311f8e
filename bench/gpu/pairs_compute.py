"""Pairs whose faulty step is bound by arithmetic: slower units, slower kernels, wider numbers than needed."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from bench.gpu.pairs_form import Recipe, Setting, Step, inference, training, with_precision
from bench.gpu.pairs_models import Language, Patches, perceptron


def wide_perceptron(setting: Setting, precision: str) -> Step:
    """Regression by wide layers in float32."""
    width = setting.size(4096, 64)
    model = perceptron(setting, width, setting.size(6, 2))
    x = setting.randn(setting.size(4096, 16), width)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    return with_precision(precision, training(setting, lambda: F.mse_loss(model(x), x), optimizer, amp=False))


def vision(setting: Setting, amp: bool) -> Step:
    """A vision transformer's training step in float32, or under autocast."""
    model = Patches(setting, setting.size(1024, 64), setting.size(3, 1), setting.size(16, 2))
    images = setting.randn(setting.size(32, 2), 3, setting.size(224, 32), setting.size(224, 32))
    classes = setting.tokens(1000, len(images))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    return training(setting, lambda: F.cross_entropy(model(images).float(), classes), optimizer, amp=amp)


def language(setting: Setting, padded: bool) -> Step:
    """A language model's training step with the vocabulary of GPT-2, or its head padded to a multiple of 64."""
    vocabulary = setting.size(50257, 257)
    rows = -(-vocabulary // 64) * 64 if padded else vocabulary
    model = Language(setting, vocabulary, setting.size(768, 64), setting.size(2, 1), setting.size(12, 2), rows)
    ids = setting.tokens(vocabulary, setting.size(8, 2), setting.size(1024, 32))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    return training(setting, lambda: model(ids, ids.roll(-1, 1)), optimizer)


def kernel_regression(setting: Setting, dtype: torch.dtype) -> Step:
    """Predictions of a kernel machine; its statistics and coefficients come from numpy."""
    rows, anchors, width = setting.size(8192, 64), setting.size(4096, 32), setting.size(2048, 16)
    x, centres = setting.randn(rows, width), setting.randn(anchors, width)
    drawn = np.random.default_rng(0)
    scale = torch.from_numpy(1.0 + drawn.random(width)).to(setting.device, dtype)
    coefficients = torch.from_numpy(drawn.random((anchors, 16))).to(setting.device, dtype)

    def forward() -> torch.Tensor:
        # the first operation that mixes the types decides for all behind it
        z, c = x / scale, centres / scale
        distances = z.square().sum(1, keepdim=True) + c.square().sum(1) - 2.0 * (z @ c.T)
        return torch.exp(-0.5 / width * distances) @ coefficients

    return with_precision("high", inference(forward))


RECIPES = (
    Recipe(
        "tf32_perceptron", "wide layers in float32, the precision left at highest", "compute", ("C01",), ("tf32",),
        lambda s: wide_perceptron(s, "highest"), lambda s: wide_perceptron(s, "high"),
    ),
    Recipe(
        "bf16_vision", "a vision transformer trained in float32", "compute", ("C01",), ("bf16-autocast",),
        lambda s: vision(s, amp=False), lambda s: vision(s, amp=True),
    ),
    Recipe(
        "padded_vocabulary", "a head of 50,257 columns", "compute", ("C02",), ("pad-dimensions",),
        lambda s: language(s, padded=False), lambda s: language(s, padded=True),
    ),
    Recipe(
        "float64_statistics", "numpy's float64 arrays widen a kernel matrix", "compute", ("C04",), ("cast-at-source",),
        lambda s: kernel_regression(s, torch.float64), lambda s: kernel_regression(s, torch.float32),
    ),
)  # fmt: skip
