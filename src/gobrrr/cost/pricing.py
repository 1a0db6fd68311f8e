"""From a call to its Work: find the rule, fill in what the arguments leave open, catch what can't be counted."""

from __future__ import annotations

import msgspec

from gobrrr.cost import families, registry
from gobrrr.cost.indexing import by_blocks
from gobrrr.cost.kernels import element_type
from gobrrr.cost.movement import by_events
from gobrrr.cost.optimizer import CHUNK_NOTE, fill
from gobrrr.cost.registry import Uncounted
from gobrrr.cost.tags import by_tag
from gobrrr.model.work import Argument, OpCall, Tensor, TensorList, Work

_BROKEN = (ArithmeticError, LookupError, TypeError, ValueError, RecursionError)
"""What a rule raises for arguments that are not those of the op: it is then unknown."""
_TYPES_NOTE = "element types read from kernel names"
_NO_TENSOR = "a shape that no tensor can have"
"""Notes of counts."""

LARGEST_STORAGE_BYTES = 2**63 - 1
"""Torch counts the bytes of a storage in 64 bits with a sign; elements: `parse`."""

_FAMILIES = families.FAMILIES  # importing them registered the rules


def price(call: OpCall, *, blocks: int | None = None) -> Work:
    """The work of one op. Never raises: what can't be counted is count "unknown" with the reason in `note`.

    `blocks`: how many thread blocks the op's kernels launched in all, where the trace says so. It bounds tensor lists
    and indices that the profiler didn't record (gobrrr.cost.optimizer, gobrrr.cost.indexing).
    """
    work = _price(call, blocks)
    moved = max(work.bytes_read or 0.0, work.bytes_written or 0.0)
    return Work(count="unknown", note=_NO_TENSOR) if moved > LARGEST_STORAGE_BYTES else work


def _price(call: OpCall, blocks: int | None) -> Work:
    found = registry.find(call.name)
    if found is None:
        return by_events(call) or _by_tag(call) or Work(count="unknown", note=f"no rule for {call.name}")
    function, family = found
    name = registry.canonical(call.name)
    if name != call.name:
        call = msgspec.structs.replace(call, name=name)
    filled = fill(call, blocks)
    typed, named = _with_types(filled or call)
    try:
        work = function(typed)
    except Uncounted as error:
        work = _without_arguments(typed, blocks, str(error))
    except _BROKEN as error:
        work = Work(count="unknown", note=f"the rule failed: {type(error).__name__}: {error}")
    return _labelled(work, family, named=named, filled=filled is not None)


def _by_tag(call: OpCall) -> Work | None:
    typed, named = _with_types(call)
    try:
        work = by_tag(typed)
    except Uncounted as error:
        return Work(count="unknown", note=str(error))
    return work if work is None else _labelled(work, work.family, named=named, filled=False)


def _without_arguments(call: OpCall, blocks: int | None, why: str) -> Work:
    return by_events(call) or by_blocks(call, blocks) or Work(count="unknown", note=why)


def _labelled(work: Work, family: str, *, named: bool, filled: bool) -> Work:
    if not work.family:
        work = msgspec.structs.replace(work, family=family)
    if work.count in ("unknown", "view") or not (named or filled):
        return work
    notes = (work.note, _TYPES_NOTE if named else "", CHUNK_NOTE if filled else "")
    # The lists' element type and size both come from the kernels.
    return msgspec.structs.replace(work, count="bounded", by_name=True, note="; ".join(filter(None, notes)))


def _with_types(call: OpCall) -> tuple[OpCall, bool]:
    """The call with unrecorded element types taken from the kernels' names, and whether there were any."""
    if not any(_untyped(argument) for argument in call.inputs):
        return call, False
    kind = element_type(call.kernels)
    if not kind:
        return call, False
    return msgspec.structs.replace(call, inputs=tuple(_typed(argument, kind) for argument in call.inputs)), True


def _untyped(value: Argument) -> bool:
    if isinstance(value, TensorList):
        return any(not item.dtype for item in value.items)
    return isinstance(value, Tensor) and not value.dtype


def _typed(value: Argument, kind: str) -> Argument:
    if isinstance(value, TensorList):
        return TensorList(tuple(Tensor(item.shape, item.dtype or kind, item.strides) for item in value.items))
    if isinstance(value, Tensor) and not value.dtype:
        return Tensor(value.shape, kind, value.strides)
    return value
