"""What a user hands over to have a step looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One step of training or inference, and what it is made of.

    `step(*inputs)` runs it; without a `step` it is `model(*inputs)` under `torch.no_grad()`. `inputs` is what the step
    is called with, `optimizer` what it steps with, if it does.
    """

    model: Any = None
    step: Callable[..., Any] | None = None
    inputs: Sequence[Any] = field(default=())
    optimizer: Any = None
    name: str = ""
