"""Tensors that grow by concatenation: each call copies what is there and adds a small piece."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events.ratios import share
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.fusion import tensors
from gobrrr.analysis.pricing.price import Group
from gobrrr.model.events import I8

CAT = "aten::cat"

SMALL = 0.25
"""A piece of at most this share of what is there is one that a cache grows by."""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Growth:
    """Calls in which a tensor grows along one dimension; `old`: share of what each writes that was there before.

    `first`, `last`: the lengths at the first and after the last of them.
    """

    calls: I8
    old: NDArray[np.float64]
    dimension: int
    first: int
    last: int


@dataclass(frozen=True)
class _Joined:
    """A concatenation: the shape of what was there, the dimension, what is added along it."""

    shape: Shape
    dimension: int
    added: int

    @property
    def rest(self) -> tuple[Shape, int]:
        """What stays the same while it grows."""
        return (*self.shape[: self.dimension], *self.shape[self.dimension + 1 :]), self.dimension

    @property
    def length(self) -> int:
        """Along the dimension, before."""
        return self.shape[self.dimension]


def growing(evidence: Evidence) -> list[Growth]:
    """Concatenations in the window of which at least half take what another one left: `x = cat([x, piece])`."""
    known = {at: joined for at, group in enumerate(evidence.priced.groups) if (joined := _joined(group)) is not None}
    series: dict[tuple[Shape, int], list[tuple[int, _Joined]]] = defaultdict(list)
    for call, group in enumerate(evidence.calls.group.tolist()):
        if group in known:
            series[known[group].rest].append((call, known[group]))
    return [found for one in series.values() if (found := _growth(one)) is not None]


def _growth(calls: list[tuple[int, _Joined]]) -> Growth | None:
    """The calls of one kind that grow: each begins where another one ended, or ends where another one begins."""
    begins = {joined.length for _, joined in calls}
    ends = {joined.length + joined.added for _, joined in calls}
    mine = [(call, joined) for call, joined in calls if joined.length in ends or joined.length + joined.added in begins]
    if len(mine) < 2 or 2 * len(mine) < len(calls):
        return None
    return Growth(
        calls=np.array([call for call, _ in mine], dtype=np.int64),
        old=np.array([share(joined.length, joined.length + joined.added) or 0.0 for _, joined in mine]),
        dimension=mine[0][1].dimension,
        first=min(joined.length for _, joined in mine),
        last=max(joined.length + joined.added for _, joined in mine),
    )


def _joined(group: Group) -> _Joined | None:
    """A concatenation of one tensor and pieces that are much smaller, all along one dimension; None for any other."""
    given = [tensor.shape for tensor in tensors(group.call) if math.prod(tensor.shape)]
    if group.call.name != CAT or len(given) < 2 or any(len(one) != len(given[0]) for one in given):
        return None
    pairs = ((at, *sizes) for one in given[1:] for at, sizes in enumerate(zip(one, given[0], strict=True)))
    differing = {at for at, piece, whole in pairs if piece != whole}
    if len(differing) != 1:
        return None
    dimension = differing.pop()
    added = sum(one[dimension] for one in given[1:])
    return _Joined(given[0], dimension, added) if 0 < added <= SMALL * given[0][dimension] else None
