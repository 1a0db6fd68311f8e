"""Whether a model takes other inputs, told by their shapes alone: without memory, and nothing of the model changes."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gobrrr.treatments import applying

SHOWN = 160
"""Characters of an error that are shown."""


def refusal(model: Any, inputs: Sequence[Any], change: Callable[[Any], Any]) -> str:
    """Why a model's forward fails with each tensor of `inputs` changed; "" where it does not, or it can't be told.

    It can't where the model can't be copied, is compiled, has hooks (which may keep what they see), or runs with
    stand-ins for tensors not even as it is (values are read on the host, say). The copies hold torch's FakeTensors,
    which have shapes and no values.
    """
    import torch

    if not isinstance(model, torch.nn.Module) or any(_is_special(one) for one in model.modules()):
        return ""
    try:
        from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode

        mode = FakeTensorMode()
        with FakeCopyMode(mode):
            copies = [copy.deepcopy((model, tuple(inputs))) for _ in range(2)]
    except Exception:  # what can't be copied
        return ""
    with mode, _writes(), torch.no_grad(), _quiet():
        if _error(*copies[0]) is not None:
            return ""
        changed = copies[1][0], applying.mapped(copies[1][1], change)
        found = _error(*changed)
    return "" if found is None else _line(found)


def _is_special(module: Any) -> bool:
    if getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod"):
        return True
    return bool(module._forward_hooks or module._forward_pre_hooks)


@contextmanager
def _quiet() -> Iterator[None]:
    """Torch logs what fails on stand-ins with its whole traceback."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _writes() -> Any:
    """A mode in which what is written into a tensor has to fit it: torch checks that of values alone.

    A cache of keys for one sequence is written with as many rows as the batch has: by `index_copy_` (some versions of
    torch check its shapes without values) or by `cache[:, :, at] = keys` (none does).
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten

    class Writes(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.overloadpacket in (aten.index_copy_, aten.index_copy, aten.index_add_, aten.index_add):
                into, along, _, source = args[:4]
                _fits(_without(source.shape, along), _without(into.shape, along))
            elif func.overloadpacket in (aten.index_put_, aten.index_put, aten._index_put_impl_):
                _fits(args[2].shape, aten.index(args[0], args[1]).shape, spread=True)
            return func(*args, **(kwargs or {}))

    return Writes()


def _without(shape: Sequence[int], along: int) -> list[int]:
    """A shape without one dimension."""
    left = list(shape)
    if left:
        del left[along]
    return left


def _fits(source: Sequence[int], place: Sequence[int], *, spread: bool = False) -> None:
    """`spread`: a dimension of 1, or one that is missing in front, is written to all of the place's."""
    source, place = list(source), list(place)
    if not spread:
        fits = source == place
    else:
        padded = [1] * (len(place) - len(source)) + source
        fits = len(padded) == len(place) and all(one in (1, other) for one, other in zip(padded, place, strict=True))
    if not fits:
        raise RuntimeError(f"{source} is written into a place of {place}")


def _error(model: Any, inputs: Sequence[Any]) -> Exception | None:
    try:
        model(*inputs)
    except Exception as error:
        return error
    return None


def _line(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return first if len(first) <= SHOWN else first[: SHOWN - 3] + "..."
