"""Networks for images that are to be treated (`bench.gpu.treat`)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

import gobrrr
from bench import vision
from bench.gpu.pairs_form import Setting
from bench.gpu.treat_form import from_zoo, made, served, workload
from bench.gpu.workloads import DiT

CHANNELS_LAST = torch.channels_last


def _resnet(at: Setting, blocks: tuple[int, ...] = (3, 4, 6, 3)) -> nn.Module:
    return made(at, lambda: vision.resnet(1, blocks=(1, 1) if at.tiny else blocks)[0])


def _sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


@workload("ResNet-50 training in fp32, NCHW, without autocast")
def resnet50_nchw(at: Setting) -> gobrrr.Workload:
    model, batch, side = _resnet(at), at.size(64, 2), at.size(224, 32)
    images, labels = at.randn(batch, 3, side, side), at.tokens(1000, batch)
    return gobrrr.Workload(
        model=model, inputs=(images,), loss=F.cross_entropy, targets=(labels,), optimizer=_sgd(model),
        name="resnet50_nchw",
    )  # fmt: skip


class Photographs(Dataset):
    """Images in memory, cropped, mirrored, made brighter and normalised one at a time.

    What is done to an item follows from its index alone, so that workers do the same as the main process.
    """

    def __init__(self, count: int, side: int) -> None:
        self.count, self.side = count, side
        wide = side + side // 7
        self.stored = torch.randint(0, 256, (16, 3, wide, wide), dtype=torch.uint8)
        self.mean, self.std = (
            torch.tensor(one)[:, None, None] for one in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
        )

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        chance = torch.Generator().manual_seed(index)
        left, top = torch.randint(0, self.side // 7 + 1, (2,), generator=chance).tolist()
        image = self.stored[index % 16, :, top : top + self.side, left : left + self.side].float() / 255
        image = (image * (0.8 + 0.4 * torch.rand(1, generator=chance))).clamp(0, 1)
        if torch.rand(1, generator=chance) < 0.5:
            image = image.flip(-1)
        return (image - self.mean) / self.std, index % 1000


@workload("ResNet-50 training, channels-last under bf16 autocast, fed by a DataLoader without workers")
def resnet_slow_loader(at: Setting) -> gobrrr.Workload:
    model = _resnet(at).to(memory_format=CHANNELS_LAST)
    batch = at.size(32, 2)
    loader = DataLoader(Photographs(200 * batch, at.size(224, 32)), batch_size=batch, num_workers=0)
    return gobrrr.Workload(
        model=model, loader=loader, loss=F.cross_entropy, optimizer=_sgd(model), around=(at.autocast,),
        name="resnet_slow_loader",
    )  # fmt: skip


@workload("ViT-B/16 inference in bf16, batch 64")
def vit_b16(at: Setting) -> gobrrr.Workload:
    model, inputs = from_zoo(at, "vit_b16_b64", torch.bfloat16)
    return served("vit_b16", model, *inputs)


@workload("a diffusion transformer with AdaLN modulation in bf16, batch 8")
def dit_adaln(at: Setting) -> gobrrr.Workload:
    width = at.size(1152, 32)
    model = made(at, DiT, d=width, h=at.size(16, 2), L=at.size(14, 1)).to(torch.bfloat16)
    batch, seq = at.size(8, 1), at.size(1024, 4)
    x, c = at.randn(batch, seq, width, dtype=torch.bfloat16), at.randn(batch, width, dtype=torch.bfloat16)
    return served("dit_adaln", model, x, c)


@workload("a ResNet of few layers for small images in fp32, batch 64")
def small_convolutions(at: Setting) -> gobrrr.Workload:
    model = _resnet(at, (2, 2, 2))
    side = at.size(64, 32)
    return served("small_convolutions", model, at.randn(at.size(64, 2), 3, side, side))


@workload("a diffusion U-Net in fp32, batch 2")
def unet_fp32(at: Setting) -> gobrrr.Workload:
    model, inputs = from_zoo(at, "unet_b4_s64", torch.float32, batch=2)
    return served("unet_fp32", model, *inputs)
