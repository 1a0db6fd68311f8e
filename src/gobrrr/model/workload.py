"""The step that a user hands over to be diagnosed or treated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One step of training or inference, and what it is made of.

    `step(*inputs)` runs it. Without a `step` it is `loss(model(*inputs), *targets)`, backward, `optimizer.step()` and
    `optimizer.zero_grad()` where there is a `loss` (without an optimizer the gradients are dropped), else
    `model(*inputs)` under `torch.no_grad()`. `optimizer` is what it steps with, if it does.

    `loader` replaces `inputs` and `targets`: each step takes its next batch, and starts over after the last. A step is
    called with a batch, a tuple or a list item by item; with a `loss` the first item is the model's input and the
    others go to the loss. Without a `step` the batch's tensors are moved to the model's device.

    `reset` restores what a step changes beyond model and optimizer: a cache's position, say. The context managers that
    `around` makes are entered around the forward pass and the loss, or around the whole `step`:
    `lambda: torch.autocast("cuda")`.
    """

    model: Any = None
    step: Callable[..., Any] | None = None
    inputs: Sequence[Any] = field(default=())
    optimizer: Any = None
    name: str = ""
    loss: Callable[..., Any] | None = None
    targets: Sequence[Any] = field(default=())
    loader: Iterable[Any] | None = None
    reset: Callable[[], None] | None = None
    around: tuple[Callable[[], AbstractContextManager[Any]], ...] = ()
