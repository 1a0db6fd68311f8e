"""Calls' tensor arguments as text."""

from __future__ import annotations

from gobrrr import units
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.model.work import OpCall, Tensor, TensorList


def shapes_text(group: CallGroup) -> str | None:
    """The tensor arguments of a group's call; None where there are none."""
    return arguments_text(group.call)


def arguments_text(call: OpCall) -> str | None:
    """The tensor arguments of a call, "[8, 1024, 768] bfloat16, [768] bfloat16"; None where there are none."""
    parts = []
    for item in call.inputs:
        if isinstance(item, Tensor):
            parts.append(f"{list(item.shape)} {item.dtype}")
        elif isinstance(item, TensorList) and item.items:
            parts.append(
                f"{units.things(len(item.items), 'tensor')}, first {list(item.items[0].shape)} {item.items[0].dtype}"
            )
    return ", ".join(parts) or None
