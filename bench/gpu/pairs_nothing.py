"""Pairs in which a treatment suggests itself and gives nothing: the bound is another one."""

from __future__ import annotations

import torch

from bench.gpu.pairs_form import Recipe, Setting, Step, captured, inference
from bench.gpu.pairs_models import layers, perceptron


def matmuls(setting: Setting, compiled: bool) -> Step:
    """Wide layers in bfloat16: all but a few percent of the time is matmuls."""
    width = setting.size(8192, 64)
    model = perceptron(setting, width, setting.size(4, 2)).bfloat16().eval()
    x = setting.randn(setting.size(8192, 8), width, dtype=torch.bfloat16)
    forward = setting.compiled(model) if compiled else model
    return inference(lambda: forward(x))


def prefill(setting: Setting) -> Step:
    """A wide model on many tokens: the host is far ahead."""
    width = setting.size(2048, 64)
    model = layers(setting, width, setting.size(4, 1), setting.size(16, 2), causal=True).bfloat16().eval()
    x = setting.randn(setting.size(8, 2), setting.size(1024, 16), width, dtype=torch.bfloat16)
    return inference(lambda: model(x))


def short_rows(setting: Setting, fused: bool) -> Step:
    """Attention over 16 tokens in a wide model: the projections take the time."""
    width = setting.size(4096, 64)
    model = layers(setting, width, setting.size(2, 1), setting.size(32, 2), fused=fused).bfloat16().eval()
    x = setting.randn(setting.size(512, 2), 16, width, dtype=torch.bfloat16)
    return inference(lambda: model(x))


RECIPES = (
    Recipe(
        "device_bound_graph", "a CUDA graph of a step that keeps the device busy", "compute", (), ("cuda-graph",),
        prefill, lambda s: captured(prefill(s)), negative=True, needs_gpu=True,
    ),
    Recipe(
        "short_rows_sdpa", "attention written out over 16 tokens", "compute", (), ("sdpa",),
        lambda s: short_rows(s, fused=False), lambda s: short_rows(s, fused=True), negative=True,
    ),
    Recipe(
        "matmuls_compile", "torch.compile of wide matmuls", "compute", (), ("compile",),
        lambda s: matmuls(s, compiled=False), lambda s: matmuls(s, compiled=True), negative=True, compiles=True,
    ),
)  # fmt: skip
