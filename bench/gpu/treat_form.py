"""What a workload that is to be treated is: a function without arguments that a process of its own can call by name.

`@workload("what it stands for")` over a function of a Setting makes `name(device=None, tiny=None) -> gobrrr.Workload`;
what is not given is taken from GOBRRR_BENCH_DEVICE ("cuda") and GOBRRR_BENCH_TINY (""). All weights and data are
random, with one seed; nothing is downloaded.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import gobrrr
from bench.gpu.pairs_form import Setting
from bench.models import ZOO, convert, converted

DEVICE, TINY = "GOBRRR_BENCH_DEVICE", "GOBRRR_BENCH_TINY"
Make = Callable[[Setting], gobrrr.Workload]


@dataclass(frozen=True)
class Known:
    """A workload by name; `make` takes a device and whether it is tiny. `gains`: something is known to help."""

    name: str
    target: str
    what: str
    make: Callable[..., gobrrr.Workload]
    gains: bool = True
    library: bool = False


KNOWN: dict[str, Known] = {}
"""All workloads of the modules that were imported."""


def workload(what: str, *, gains: bool = True, library: bool = False) -> Callable[[Make], Callable[..., Any]]:
    """Register a function of a Setting as a workload; `library`: it needs transformers."""

    def register(make: Make) -> Callable[..., gobrrr.Workload]:
        def named(device: str | None = None, tiny: bool | None = None) -> gobrrr.Workload:
            where = os.environ.get(DEVICE, "cuda") if device is None else device
            small = os.environ.get(TINY, "") not in ("", "0") if tiny is None else tiny
            torch.manual_seed(0)
            return make(Setting(where, small))

        named.__name__, named.__qualname__ = make.__name__, make.__qualname__
        named.__module__, named.__doc__ = make.__module__, make.__doc__
        target = f"{make.__module__}:{make.__name__}"
        KNOWN[make.__name__] = Known(make.__name__, target, what, named, gains, library)
        return named

    return register


def made(setting: Setting, make: Callable[..., nn.Module], *args: Any, **sizes: Any) -> nn.Module:
    """A model whose weights are drawn on the device, which takes less time than on the host."""
    with torch.device(setting.device):
        return make(*args, **sizes)


def from_zoo(setting: Setting, name: str, dtype: torch.dtype, **sizes: Any) -> tuple[Any, tuple[Any, ...]]:
    """(model, inputs) of the zoo's recipe `name` in `dtype`; `sizes` go over its full ones."""
    recipe = ZOO[name]
    with torch.device(setting.device):
        model, inputs, _ = recipe.make(**{**recipe.full, **sizes, **(recipe.tiny if setting.tiny else {})})
        given = tuple(inputs())
    convert(model, dtype, recipe.channels_last)
    return model, tuple(converted(one, dtype, recipe.channels_last) for one in given)


def served(name: str, model: nn.Module, *inputs: Any) -> gobrrr.Workload:
    """Inference: the model with its inputs."""
    return gobrrr.Workload(model=model.eval(), inputs=inputs, name=name)
