"""Tensors that grow by concatenation: each call copies the whole tensor and adds a small piece."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events.ratios import share
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.fusion import tensors
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.model.events import I8

CAT = "aten::cat"
"""The operation that concatenates."""

MOST_PIECE_SHARE = 0.25
"""A cache grows by a piece of at most this share of its length. Chosen, not measured."""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class GrowingTensor:
    """Calls in which a tensor grows along one dimension.

    `old`: the share of each call's result that was there before. `first`, `last`: the shortest length before and the
    longest length after a call.
    """

    calls: I8
    old: NDArray[np.float64]
    dimension: int
    first: int
    last: int


@dataclass(frozen=True)
class _Joined:
    """A concatenation: the shape before, the dimension that grows, and the length that is added."""

    shape: Shape
    dimension: int
    added: int

    @property
    def rest(self) -> tuple[Shape, int]:
        """What does not change while the tensor grows: the other sizes, and the dimension."""
        return (*self.shape[: self.dimension], *self.shape[self.dimension + 1 :]), self.dimension

    @property
    def length(self) -> int:
        """The length along the dimension before the call."""
        return self.shape[self.dimension]


def growing(evidence: Evidence) -> list[GrowingTensor]:
    """Series of concatenations of which at least half take the result of another one: `x = cat([x, piece])`."""
    known = {at: joined for at, group in enumerate(evidence.priced.groups) if (joined := _joined(group)) is not None}
    series: dict[tuple[Shape, int], list[tuple[int, _Joined]]] = defaultdict(list)
    for call, group in enumerate(evidence.calls.group.tolist()):
        if group in known:
            series[known[group].rest].append((call, known[group]))
    return [growth for calls in series.values() if (growth := _growth(calls)) is not None]


def _growth(calls: list[tuple[int, _Joined]]) -> GrowingTensor | None:
    """The calls of one series that grow: one's length before is another's length after, or the reverse."""
    before = {joined.length for _, joined in calls}
    after = {joined.length + joined.added for _, joined in calls}
    grow = [
        (call, joined) for call, joined in calls if joined.length in after or joined.length + joined.added in before
    ]
    if len(grow) < 2 or 2 * len(grow) < len(calls):
        return None
    return GrowingTensor(
        calls=np.array([call for call, _ in grow], dtype=np.int64),
        old=np.array([share(joined.length, joined.length + joined.added) or 0.0 for _, joined in grow]),
        dimension=grow[0][1].dimension,
        first=min(joined.length for _, joined in grow),
        last=max(joined.length + joined.added for _, joined in grow),
    )


def _joined(group: CallGroup) -> _Joined | None:
    """A concatenation of a tensor and much smaller pieces along one dimension; None for any other call."""
    shapes = [tensor.shape for tensor in tensors(group.call) if math.prod(tensor.shape)]
    if group.call.name != CAT or len(shapes) < 2 or any(len(shape) != len(shapes[0]) for shape in shapes):
        return None
    whole, *pieces = shapes
    differing = {at for piece in pieces for at, size in enumerate(piece) if size != whole[at]}
    if len(differing) != 1:
        return None
    dimension = differing.pop()
    added = sum(piece[dimension] for piece in pieces)
    return _Joined(whole, dimension, added) if 0 < added <= MOST_PIECE_SHARE * whole[dimension] else None
