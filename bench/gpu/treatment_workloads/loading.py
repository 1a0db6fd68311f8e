"""Steps that wait for their data."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

import gobrrr
from bench.gpu.pairs_form import Setting
from bench.gpu.treatment_workloads.convolution import resnet
from bench.gpu.treatment_workloads.form import made, sgd, trained, workload
from bench.gpu.treatment_workloads.tables import dense


class Photographs(Dataset):
    """Images in memory, cropped, mirrored, made brighter and normalised one at a time.

    What is done to an item follows from its index alone, so that workers do the same as the main process.
    """

    def __init__(self, count: int, side: int) -> None:
        self.count, self.side = count, side
        wide = side + side // 7
        self.stored = torch.randint(0, 256, (16, 3, wide, wide), dtype=torch.uint8)
        self.mean, self.std = (
            torch.tensor(values)[:, None, None] for values in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
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


class Rows(Dataset):
    """Rows of a table, each made into tensors by itself."""

    def __init__(self, count: int, columns: int) -> None:
        self.table = torch.randn(1024, columns)
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Any, int]:
        row = self.table[index % 1024]
        return torch.cat([row, row.log1p().nan_to_num(), row.square()]), index % 2


def photographs(at: Setting, batch: int, side: int) -> Any:
    """A loader without workers over images that are augmented one at a time."""
    batch = at.size(batch, 2)
    return DataLoader(Photographs(64 * batch, at.size(side, 32)), batch_size=batch, num_workers=0)


def rows(batch: int) -> Any:
    """A loader without workers over rows of a table."""
    return DataLoader(Rows(64 * batch, 64), batch_size=batch, num_workers=0)


@workload(
    "loading", "ResNet-26 training under bf16 autocast, fed by a DataLoader without workers, batch 16", typed=True
)
def photographs_train_amp(at: Setting) -> gobrrr.Workload:
    model = resnet(at, (2, 2, 2, 2))
    return trained(model, F.cross_entropy, (), (), optimizer=sgd(model), loader=photographs(at, 16, 128),
                   around=(at.autocast,))  # fmt: skip


@workload("loading", "a network on a table whose rows come one by one from a DataLoader without workers, batch 512")
def rows_train(at: Setting) -> gobrrr.Workload:
    hidden = at.size(1024, 8)
    model = made(at, dense, (192, hidden, hidden, 2))
    return trained(model, F.cross_entropy, (), (), loader=rows(at.size(512, 4)))
