"""Matmuls whose dimensions the tensor cores' loads don't divide: which, and how far the aligned ones get."""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.fusion import tensors
from gobrrr.analysis.price import Group
from gobrrr.model.events import I8
from gobrrr.model.work import ITEM_BYTES, Tensor

LOAD_BYTES = 16
"""A thread loads 16 bytes at once; rows that don't begin on a multiple of it are loaded in smaller pieces."""

USUAL_SHARE = 0.6
"""Share of the matrix peak taken for an aligned matmul where the trace has none (0.6 to 0.78 in the shipped traces)."""

LARGE_NS = 20_000
"""A shorter matmul is held up by its launch and its ramps rather than by its loads."""

_OPERANDS = {"mm": (0, 1), "bmm": (0, 1), "matmul": (0, 1), "linear": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2)}
_OPERANDS["_scaled_mm"] = (0, 1)


def odd_sizes(group: Group) -> tuple[int, ...]:
    """Sizes of a matmul, contiguous in memory, that are no multiple of what one load takes; () where all are."""
    places = _OPERANDS.get(group.call.name.removeprefix("aten::"))
    given = tensors(group.call)
    if places is None or len(given) <= max(places):
        return ()
    left, right = (given[place] for place in places)
    if min(len(left.shape), len(right.shape)) < 2 or not ITEM_BYTES.get(left.dtype):
        return ()
    each = int(LOAD_BYTES / ITEM_BYTES[left.dtype])
    columns = right.shape[-2] if group.call.name == "aten::linear" else right.shape[-1]
    found = {size for size in (_row(left), _row(right), columns) if size % each}
    return tuple(sorted(found))


def _row(one: Tensor) -> int:
    """Elements from one row to the next: the larger of the two last strides; the last size without strides."""
    if one.strides is None or len(one.strides) != len(one.shape) or min(one.shape[-2:]) <= 1:
        return one.shape[-1]
    return max(one.strides[-2:]) if min(one.strides[-2:]) == 1 else one.shape[-1]


def padded(group: Group) -> float:
    """How many times the FLOP grow when the odd sizes are padded."""
    each = int(LOAD_BYTES / ITEM_BYTES[tensors(group.call)[0].dtype])
    return float(np.prod([-(-size // each) * each / size for size in odd_sizes(group)] or [1.0]))


def large_matmuls(evidence: Evidence) -> I8:
    """Calls of compute-bound matmuls on the matrix units that take at least `LARGE_NS`."""
    wanted = [
        group.work.family == "matmul" and group.floor is not None and group.floor.bound == "compute"
        and "matrix" in group.floor.roof
        for group in evidence.priced.groups
    ]  # fmt: skip
    calls = evidence.calls_where(np.array(wanted, dtype=bool))
    return calls[evidence.calls.ns[calls] >= LARGE_NS]


def aligned_share(evidence: Evidence) -> float | None:
    """Share of the matrix peak of the large aligned matmuls together; None where the trace has none."""
    calls = [call for call in large_matmuls(evidence).tolist() if not odd_sizes(evidence.group_of(call))]
    ns = float(evidence.calls.ns[calls].sum())
    return float(evidence.calls.floor_ns[calls].sum()) / ns if calls and ns > 0 else None
