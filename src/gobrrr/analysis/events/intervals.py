"""Set arithmetic on intervals of integer nanoseconds. Overlaps are never added twice; everything is exact."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gobrrr.model.events import I8


class Spans(NamedTuple):
    """Disjoint intervals [start, stop), sorted, none empty."""

    start: I8
    stop: I8

    @property
    def length(self) -> int:
        """Total nanoseconds covered."""
        return int((self.stop - self.start).sum())


NO_SPANS = Spans(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
"""No spans."""


def union(start: I8, stop: I8) -> Spans:
    """The union of intervals in any order; empty ones vanish, touching ones join."""
    kept = stop > start
    start, stop = start[kept], stop[kept]
    if not len(start):
        return NO_SPANS
    order = np.argsort(start, kind="stable")
    start, stop = start[order], stop[order]
    reach = np.maximum.accumulate(stop)
    opens = np.concatenate([[True], start[1:] > reach[:-1]])
    closes = np.concatenate([opens[1:], [True]])
    return Spans(start[opens], reach[closes])


def clip(spans: Spans, start: int, stop: int) -> Spans:
    """The part of `spans` in [start, stop)."""
    return union(np.clip(spans.start, start, stop), np.clip(spans.stop, start, stop))


def complement(spans: Spans, start: int, stop: int) -> Spans:
    """The part of [start, stop) that no span covers."""
    inside = clip(spans, start, stop)
    opens = np.concatenate([[start], inside.stop])
    closes = np.concatenate([inside.start, [stop]])
    return union(opens, closes)


def intersection(left: Spans, right: Spans) -> Spans:
    """What both `left` and `right` cover."""
    if not len(left.start) or not len(right.start):
        return NO_SPANS
    low = int(min(left.start[0], right.start[0]))
    high = int(max(left.stop[-1], right.stop[-1]))
    outside = union(
        np.concatenate([complement(left, low, high).start, complement(right, low, high).start]),
        np.concatenate([complement(left, low, high).stop, complement(right, low, high).stop]),
    )
    return complement(outside, low, high)


def subtract(left: Spans, right: Spans) -> Spans:
    """What `left` covers and `right` does not."""
    if not len(left.start):
        return NO_SPANS
    low, high = int(left.start[0]), int(left.stop[-1])
    return intersection(left, complement(right, low, high))


def covered(spans: Spans, start: I8, stop: I8) -> I8:
    """For each [start, stop): how many of its nanoseconds `spans` covers."""
    return until(spans, stop) - until(spans, start)


def until(spans: Spans, at: I8) -> I8:
    """Nanoseconds that `spans` covers before each instant."""
    return ruler(spans).until(at)


def inside_spans(when: I8, begin: I8, end: I8) -> NDArray[np.bool_]:
    """Whether each instant lies within a span; the spans are sorted and do not overlap."""
    if not len(begin):
        return np.zeros(len(when), dtype=bool)
    at = np.searchsorted(begin, when, side="right") - 1
    inside: NDArray[np.bool_] = (at >= 0) & (when < end[np.maximum(at, 0)])
    return inside


def latest(at: I8, value: I8, when: I8) -> I8:
    """For each `when`: itself, or the largest `value` whose `at` is before it, whichever is later."""
    if not len(at):
        return when
    order = np.argsort(at, kind="stable")
    reach = np.maximum.accumulate(value[order])
    before = np.searchsorted(at[order], when) - 1
    result: I8 = np.maximum(when, np.where(before >= 0, reach[np.maximum(before, 0)], when))
    return result


class Ruler(NamedTuple):
    """Spans prepared for many measurements. `before`: nanoseconds covered before each span begins."""

    spans: Spans
    before: I8

    def until(self, at: I8) -> I8:
        """Nanoseconds covered before each instant."""
        start, stop = self.spans
        if not len(start):
            return np.zeros_like(at)
        index = np.searchsorted(start, at, side="right")
        span = np.maximum(index - 1, 0)
        inside = np.clip(at - start[span], 0, None)
        result: I8 = np.where(index == 0, 0, self.before[span] + np.minimum(inside, stop[span] - start[span]))
        return result


def ruler(spans: Spans) -> Ruler:
    """`spans`, prepared for many measurements."""
    width = spans.stop - spans.start
    return Ruler(spans, np.cumsum(width) - width)


def exclusive(start: I8, stop: I8) -> I8:
    """For intervals sorted by start: the nanoseconds of each that no earlier one covers. They sum to the union."""
    if not len(start):
        return np.empty(0, dtype=np.int64)
    reach = np.maximum.accumulate(stop)
    before = np.concatenate([[start[0]], reach[:-1]])
    result: I8 = np.maximum(stop - np.maximum(start, before), 0)
    return result
