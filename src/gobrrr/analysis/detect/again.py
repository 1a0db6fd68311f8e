"""Repeated work: what was seen to be computed again when the step was observed twice, on the recorded calls."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gobrrr.analysis.findings.claims import F8
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.model.events import I8
from gobrrr.model.recording import RepeatedWork
from gobrrr.model.work import DTYPE_BYTES, Tensor


@dataclass(frozen=True)
class RepeatedAtPlace:
    """Repeated work at one place. `calls`: indices into `evidence.calls`; `low`, `high`: the repeated ns of each."""

    again: RepeatedWork
    calls: I8
    low: F8
    high: F8

    @property
    def ns(self) -> float:
        """The high end of all calls, in all steps together."""
        return float(self.high.sum())


def repeated(evidence: Evidence, *kinds: str) -> tuple[RepeatedAtPlace, ...]:
    """Repeated work of these kinds, most time first; () for a trace."""
    seen = evidence.profile.seen
    if seen is None or not seen.again:
        return ()
    at = np.where(evidence.calls.op >= 0, evidence.dispatched[np.maximum(evidence.calls.op, 0)], -1)
    places = [_at_place(evidence, again, at) for again in seen.again if again.kind in kinds]
    return tuple(sorted((place for place in places if len(place.calls)), key=lambda place: -place.ns))


def _at_place(evidence: Evidence, again: RepeatedWork, at: I8) -> RepeatedAtPlace:
    """`at`: for each call its position in the observed step, or -1."""
    calls = np.flatnonzero(np.isin(at, np.array(again.calls, dtype=np.int64)))
    ns = evidence.calls.ns[calls]
    if again.kind != "rows":
        return RepeatedAtPlace(again, calls, ns, ns)
    rows = dict(zip(again.calls, again.rows, strict=True))
    numbers = [rows[position] for position in at[calls].tolist()]
    high = np.array([before / now for before, now in numbers])
    low = [1.0 - left_over(evidence.group_of(call), *pair) for call, pair in zip(calls.tolist(), numbers, strict=True)]
    return RepeatedAtPlace(again, calls, ns * np.clip(low, 0.0, high), ns * high)


def left_over(group: CallGroup, before: int, now: int) -> float:
    """The share of its bytes that a call still moves if it computes only the rows that are new.

    A tensor has rows if a dimension is `now` long, or a multiple of it for a batch. Attention still reads all rows of
    its keys and values.
    """
    whole = (1, 2) if group.work.family == "attention" else ()  # keys and values
    new = (now - before) / now
    total = left = 0.0
    for place, tensor in enumerate(group.call.tensors):
        has_rows = any(size % now == 0 and size for size in tensor.shape)
        total += _bytes(tensor)
        left += _bytes(tensor) * (new if has_rows and place not in whole else 1.0)
    return left / total if total else 1.0


def _bytes(tensor: Tensor) -> float:
    return float(math.prod(tensor.shape)) * DTYPE_BYTES.get(tensor.dtype, 1.0)
