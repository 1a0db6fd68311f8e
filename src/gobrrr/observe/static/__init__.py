"""The static door: a step run on fake tensors. No device, no memory, no weights: only what would be computed.

`record` runs the step with every tensor replaced by its shape, dtype and strides, and writes down each operation that
reaches a device. The user's program is as it was afterwards: gradients, optimizer state, buffers and settings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gobrrr.errors import UsageError
from gobrrr.model.recording import Recording
from gobrrr.model.workload import Workload

__all__ = ["need_torch", "record", "record_target", "record_workload"]

OLDEST = (2, 6)


def need_torch() -> None:
    """Raises UsageError where torch is missing or too old to run a step without its tensors."""
    try:
        import torch
    except ImportError:
        raise UsageError("predicting runs the step on fake tensors and needs torch: pip install torch") from None
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2] if part.isdigit())
    if version < OLDEST:
        raise UsageError(f"torch {torch.__version__} is too old to predict with: 2.6 or newer")


def record(
    step: Callable[..., Any], inputs: Sequence[Any] = (), *, keywords: dict[str, Any] | None = None, target: str = ""
) -> Recording:
    """Record one call `step(*inputs, **keywords)`. Raises UsageError where the step needs real data."""
    need_torch()
    from gobrrr.observe.static.session import record_step

    return record_step(step, inputs, keywords or {}, target)


def record_workload(workload: Workload) -> Recording:
    """Record the step of a Workload. Raises UsageError where it has none, or where it needs real data."""
    need_torch()
    from gobrrr.observe.static import session

    return session.record_workload(workload)


def record_target(target: str) -> Recording:
    """Record the step behind "file.py:callable" or "package.module:callable".

    The callable runs one step, or returns a Workload. Raises UsageError (can't be run) or InputError (no such file).
    """
    need_torch()
    from gobrrr.observe.static.session import record_named

    return record_named(target)
