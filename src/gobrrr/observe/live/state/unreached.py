"""What a step changed although nothing that it names leads there: by the counters that torch keeps of each tensor.

Modules and optimizers that live are looked through once before the step runs. Nothing is copied, and nothing is hooked.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from gobrrr.observe.live.apart import apart
from gobrrr.observe.live.state.snapshot import Snapshot


class Unreached:
    """The tensors of living modules and optimizers that no snapshot of `kept` holds, and how often each was changed."""

    def __init__(self, kept: list[Snapshot]) -> None:
        self._before: dict[int, tuple[weakref.ref[Any], int, str]] = {}
        with apart():
            for tensor, holder in _living():
                if id(tensor) not in self._before and not any(snapshot.holds(tensor) for snapshot in kept):
                    version = _version(tensor)
                    if version is not None:
                        self._before[id(tensor)] = weakref.ref(tensor), version, holder

    def changed(self) -> dict[str, int]:
        """How many of them were changed since, by the name of the class that holds them."""
        found: dict[str, int] = {}
        with apart():
            for held, version, holder in self._before.values():
                tensor = held()
                if tensor is not None and _version(tensor) != version:
                    found[holder] = found.get(holder, 0) + 1
        return found


def _living() -> Iterator[tuple[Any, str]]:
    """The tensors of each module and optimizer that lives, and the name of its class."""
    for thing in gc.get_objects():
        kind = type(thing)  # not isinstance, which asks a proxy for what it stands for
        if issubclass(kind, torch.nn.Module):
            places = [vars(thing).get(name) for name in ("_parameters", "_buffers")]
            held = [tensor for place in places if isinstance(place, dict) for tensor in place.values()]
        elif issubclass(kind, torch.optim.Optimizer):
            held = [tensor for group in vars(thing).get("param_groups", ()) for tensor in group["params"]]
        else:
            continue
        yield from ((tensor, kind.__name__) for tensor in held if isinstance(tensor, torch.Tensor))


def _version(tensor: Any) -> int | None:
    try:
        return int(tensor._version)
    except RuntimeError:  # one that was made for inference has none
        return None
