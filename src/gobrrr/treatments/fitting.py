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
    with mode, torch.no_grad(), _quiet():
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


def _error(model: Any, inputs: Sequence[Any]) -> Exception | None:
    try:
        model(*inputs)
    except Exception as error:
        return error
    return None


def _line(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return first if len(first) <= SHOWN else first[: SHOWN - 3] + "..."
