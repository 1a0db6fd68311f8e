"""torch.tensor of an object that is like an array but is none: it is read element by element."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from gobrrr import Workload

SOURCE = "https://github.com/pytorch/pytorch/issues/28761"
MECHANISM = 1
CAUSE = "torch.tensor goes through a data set of h5py as through nested lists"
REPORTED = "421 ms, 2.8 ms by way of numpy.array"
NAMES = r"(?:torch\.|\b)tensor\(|from a list|element by element|sequence|building (?:a )?tensor"


class _Stored:
    """Rows on a disk, as h5py gives them: a length, items, and an array when asked for one."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return self.rows


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    stored = _Stored(np.random.default_rng(0).standard_normal((64, 256), dtype=np.float32))
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).to(device)

    def step() -> torch.Tensor:
        x = torch.tensor(stored, dtype=torch.float32) if sick else torch.from_numpy(np.array(stored))  # cause
        with torch.no_grad():
            return model(x.to(device))

    return Workload(model=model, step=step, name="classifier of stored rows")
