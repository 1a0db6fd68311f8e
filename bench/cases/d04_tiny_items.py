"""A small dataset in memory: there is nothing that worker processes could take over, and sending costs more."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from gobrrr import Workload

CASE, CODE, RUNS_ON = "D04", "D01", "cpu"
NEGATIVE = True
TEMPTING = ("dataloader-workers",)


def _batches(loader: DataLoader[Any]) -> Iterator[torch.Tensor]:
    while True:
        for (batch,) in loader:
            yield batch


def _slices(data: torch.Tensor) -> Iterator[torch.Tensor]:
    while True:
        yield from data.split(32)


def _made(device: str = "cpu", *, loading: bool) -> Workload:
    torch.manual_seed(0)
    data = torch.randn(10_000, 10)
    layers = [torch.nn.Linear(10, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers).to(device)
    batches = _batches(DataLoader(TensorDataset(data), batch_size=32)) if loading else _slices(data)

    def step() -> None:
        model(next(batches).to(device)).square().mean().backward()
        model.zero_grad(set_to_none=True)

    return Workload(model=model, step=step, name="a small dataset in memory")


faulty = partial(_made, loading=True)  # Item by item, through a loader
fixed = partial(_made, loading=False)  # Slices of the tensor
