"""Work that had been done before, as two looks at the step have seen it, on the calls of the recorded steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gobrrr.analysis.findings.claims import F8
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import Group
from gobrrr.model.events import I8
from gobrrr.model.recording import Again
from gobrrr.model.work import ITEM_BYTES, Tensor


@dataclass(frozen=True)
class Repeated:
    """What is done again at one place. `calls`: indices into `evidence.calls`; `low`, `high`: ns of each."""

    again: Again
    calls: I8
    low: F8
    high: F8

    @property
    def ns(self) -> float:
        """The most that the calls take for it, all steps together."""
        return float(self.high.sum())


def repeated(evidence: Evidence, *kinds: str) -> tuple[Repeated, ...]:
    """What is done again of these kinds, most time first; () for a trace."""
    seen = evidence.profile.seen
    if seen is None or not seen.again:
        return ()
    at = np.where(evidence.calls.op >= 0, evidence.dispatched[np.maximum(evidence.calls.op, 0)], -1)
    found = [_found(evidence, again, at) for again in seen.again if again.kind in kinds]
    return tuple(sorted((one for one in found if len(one.calls)), key=lambda one: -one.ns))


def _found(evidence: Evidence, again: Again, at: I8) -> Repeated:
    """`at`: for each call its position in the step that was looked at."""
    calls = np.flatnonzero(np.isin(at, np.array(again.calls, dtype=np.int64)))
    ns = evidence.calls.ns[calls]
    if again.kind != "rows":
        return Repeated(again, calls, ns, ns)
    rows = dict(zip(again.calls, again.rows, strict=True))
    numbers = [rows[position] for position in at[calls].tolist()]
    high = np.array([before / now for before, now in numbers])
    low = [1.0 - left_over(evidence.group_of(call), *pair) for call, pair in zip(calls.tolist(), numbers, strict=True)]
    return Repeated(again, calls, ns * np.clip(low, 0.0, high), ns * high)


def left_over(group: Group, before: int, now: int) -> float:
    """The share of its bytes that a call still moves where only the rows are computed that are new.

    Tensors have rows in a dimension of `now`, or of a multiple of it for a batch. Keys and values of attention stay.
    """
    tensors = list(group.call.tensors)
    if not tensors:
        return 1.0
    kept = 2 if group.work.family == "attention" else 0  # behind the queries: keys and values of all rows
    sizes = [(_bytes(tensor), any(size % now == 0 and size for size in tensor.shape)) for tensor in tensors]
    total = sum(size for size, _ in sizes)
    new = (now - before) / now
    left = sum(size * (new if grows and not 1 <= place <= kept else 1.0) for place, (size, grows) in enumerate(sizes))
    return left / total if total else 1.0


def _bytes(tensor: Tensor) -> float:
    return float(math.prod(tensor.shape)) * ITEM_BYTES.get(tensor.dtype, 1.0)
