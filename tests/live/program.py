"""A user's program, for the tests of observers: what they name must be a line of this file."""

from __future__ import annotations

import warnings
from typing import Any

import torch


def line_of(mark: str) -> int:
    """The line that ends in a comment of this mark."""
    with open(__file__, encoding="utf-8") as file:
        return next(at for at, line in enumerate(file, 1) if line.rstrip().endswith(f"# {mark}"))


def branches(x: Any) -> Any:
    y = x + 1
    if y.sum().item() > 0:  # item
        y = y * 2
    return torch.relu(y) * 3


def prints(x: Any) -> Any:
    y = x * 2
    print("a step")  # print
    return torch.relu(y)


def prints_in_a_loop(x: Any) -> Any:
    for _ in range(2):
        x = x + 1
        print("a turn")  # loop
    return x


def plain(x: Any) -> Any:
    return torch.relu(x + 1) * 3


def scaled(x: Any) -> Any:  # scaled
    return x * 2 + 1


class Counting(torch.nn.Module):
    """Its forward pass changes an int that it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Any) -> Any:  # counting
        self.calls += 1
        return x * self.calls


def waits() -> None:
    warnings.warn("called a synchronizing CUDA operation", stacklevel=1)  # waits


def waits_in_torch(model: Any, x: Any) -> Any:
    return model(x)  # calls torch


def asks_to_wait() -> None:
    torch.cuda.synchronize()  # asks
