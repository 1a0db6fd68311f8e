"""Tensors that a step changed although nothing that it names leads to them, by torch's version counter of each tensor.

All living modules and optimizers are searched once before the step runs. Nothing is copied or hooked.
"""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from gobrrr.observe.live.apart import apart
from gobrrr.observe.live.state.snapshot import Snapshot


class Unreached:
    """The tensors of living modules and optimizers that no snapshot of `kept` holds, with their version counters."""

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
        counts: Counter[str] = Counter()
        with apart():
            for ref, version, holder in self._before.values():
                tensor = ref()
                if tensor is not None and _version(tensor) != version:
                    counts[holder] += 1
        return counts


def _living() -> Iterator[tuple[Any, str]]:
    """The tensors of each living module and optimizer, with the name of its class."""
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
    except RuntimeError:  # a tensor made in inference mode has none
        return None
