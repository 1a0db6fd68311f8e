"""A data loader in the training thread, whose items take 20 ms each."""

import time
from collections.abc import Iterator
from functools import partial

import torch
from torch.utils.data import DataLoader, Dataset

from gobrrr import Workload

CASE, CODE, RUNS_ON = "D01", "D01", "cpu"
ITEM_S = 0.02
ITEMS = 400
TURNS = 8


class _Slow(Dataset[torch.Tensor]):
    """As if each item had to be read and decoded."""

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(ITEM_S)
        return torch.full((256,), float(index))


class _Kept(Dataset[torch.Tensor]):
    """The same, decoded once and stored."""

    def __init__(self) -> None:
        self.items = torch.arange(ITEMS, dtype=torch.float32)[:, None].repeat(1, 256)

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.items[index]


def _batches(loader: DataLoader[torch.Tensor]) -> Iterator[torch.Tensor]:
    while True:
        yield from loader


def _made(device: str = "cpu", *, dataset: Dataset[torch.Tensor]) -> Workload:
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU()) for _ in range(8)]
    model = torch.nn.Sequential(*layers).to(device)
    batches = _batches(DataLoader(dataset, batch_size=2))

    def step() -> None:
        batch = next(batches).to(device, non_blocking=True)
        for _ in range(TURNS):
            model(batch.repeat(64, 1)).square().mean().backward()
            model.zero_grad(set_to_none=True)

    return Workload(model=model, step=step, name="a loader in the training thread")


faulty = partial(_made, dataset=_Slow())  # 40 ms of loading in front of each step
fixed = partial(_made, dataset=_Kept())  # Items that are there
