"""Convolutional networks."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import gobrrr
from bench import vision
from bench.gpu.pairs_form import Setting
from bench.gpu.treatment_workloads.form import made, served, sgd, trained, workload

MOBILE = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 2, 2, 3), (6, 64, 2, 2, 3), (6, 96, 2, 1, 3))
EFFICIENT = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 2, 2, 3), (6, 112, 2, 1, 5))


def resnet(at: Setting, blocks: tuple[int, ...]) -> torch.nn.Module:
    """A ResNet of bottleneck blocks for 1000 classes."""
    return made(at, lambda: vision.resnet(1, blocks=(1, 1) if at.tiny else blocks)[0])


def images(at: Setting, batch: int, side: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images with labels."""
    count = at.size(batch, 2)
    wide = at.size(side, 32)
    return at.randn(count, 3, wide, wide), at.tokens(1000, count)


@workload("convolution", "ResNet-26 training in fp32, batch 96 of 160 x 160, SGD")
def conv_resnet26_train(at: Setting) -> gobrrr.Workload:
    x, y = images(at, 96, 160)
    model = resnet(at, (2, 2, 2, 2))
    return trained(model, F.cross_entropy, (x,), (y,), optimizer=sgd(model))


@workload("convolution", "ResNet-50 training under bf16 autocast, NCHW, batch 48", typed=True)
def conv_resnet50_train_amp(at: Setting) -> gobrrr.Workload:
    x, y = images(at, 48, 224)
    model = resnet(at, (3, 4, 6, 3))
    return trained(model, F.cross_entropy, (x,), (y,), optimizer=sgd(model), around=(at.autocast,))


@workload("convolution", "MobileNetV2-like training in fp32, batch 64, AdamW")
def conv_mobilenet_train(at: Setting) -> gobrrr.Workload:
    x, y = images(at, 64, 192)
    model = made(at, lambda: vision.mbconv(1, MOBILE[: at.size(5, 2)], False)[0])
    return trained(model, F.cross_entropy, (x,), (y,))


@workload("convolution", "ConvNeXt-like training in fp32, batch 32, AdamW")
def conv_convnext_train(at: Setting) -> gobrrr.Workload:
    x, y = images(at, 32, 192)
    depths, widths = ((1, 1), (16, 32)) if at.tiny else ((2, 2, 4, 2), (96, 192, 384, 768))
    return trained(made(at, lambda: vision.convnext(1, depths, widths)[0]), F.cross_entropy, (x,), (y,))


@workload("convolution", "ResNet-50 inference in fp32, one image")
def conv_resnet50_serve_one(at: Setting) -> gobrrr.Workload:
    side = at.size(224, 32)
    return served(resnet(at, (3, 4, 6, 3)), at.randn(1, 3, side, side))


@workload("convolution", "EfficientNet-like inference in fp32, batch 32")
def conv_efficientnet_serve(at: Setting) -> gobrrr.Workload:
    x, _ = images(at, 32, 224)
    return served(made(at, lambda: vision.mbconv(1, EFFICIENT[: at.size(5, 2)], True)[0]), x)
