"""Diffusion models: U-Nets and transformers."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

import gobrrr
from bench import vision
from bench.gpu.pairs_form import Setting
from bench.gpu.treatment_workloads.form import made, served, trained, workload


def unet(at: Setting) -> Any:
    """A U-Net of three levels."""
    return made(at, vision.Unet, (32, 64) if at.tiny else (128, 256, 512), 64 if at.tiny else 512)


def noise(at: Setting, batch: int, side: int) -> tuple[Any, Any]:
    """Latents and the embedding of their time."""
    count, wide = at.size(batch, 1), at.size(side, 8)
    return at.randn(count, 4, wide, wide), at.randn(count, at.size(512, 64))


def dit(at: Setting, width: int, layers: int) -> Any:
    """A diffusion transformer with AdaLN modulation."""
    return made(at, vision.Dit, at.size(width, 32), at.size(layers, 1), at.size(width // 64, 2))


@workload("diffusion", "a diffusion U-Net training in fp32, batch 8 of 64 x 64 latents, AdamW")
def unet_train(at: Setting) -> gobrrr.Workload:
    x, t = noise(at, 8, 64)
    return trained(unet(at), F.mse_loss, (x, t), (torch.randn_like(x),))


@workload("diffusion", "a diffusion U-Net in bf16, one latent", typed=True)
def unet_serve_one(at: Setting) -> gobrrr.Workload:
    x, t = (tensor.to(torch.bfloat16) for tensor in noise(at, 1, 64))
    return served(unet(at).to(torch.bfloat16), x, t)


@workload("diffusion", "a diffusion transformer of 8 layers of 768 training in fp32, batch 8 of 256, AdamW")
def dit_train(at: Setting) -> gobrrr.Workload:
    width, batch, seq = at.size(768, 32), at.size(8, 2), at.size(256, 8)
    x, c = at.randn(batch, seq, width), at.randn(batch, width)
    return trained(dit(at, 768, 8), F.mse_loss, (x, c), (torch.randn_like(x),))
