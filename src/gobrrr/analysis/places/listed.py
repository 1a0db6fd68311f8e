"""The tree of places as listed in the diagnosis: without small places, in whole ns that sum exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.budget.idle import IDLE_CAUSES
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.places.gone import gone_without
from gobrrr.analysis.places.labels import PLACE_KINDS, PlaceSort
from gobrrr.analysis.places.tree import ROOT
from gobrrr.analysis.places.where import PlaceTimes
from gobrrr.model.events import ABSENT, I8, EventKind
from gobrrr.model.places import PlaceNode

LEAST_LISTED_SHARE = 0.001
"""The least share of the step of a listed place; the time of a smaller place is its parent's own. Chosen, not measured.
"""

ROOT_NAME = "the step"
"""The name of the root."""


@dataclass(frozen=True)
class ListedPlaces:
    """The places of a diagnosis. `id_of`: for each node of the whole tree, the listed place that is or encloses it.

    `held_by`: the id of the deepest place, kernels aside, with more than half of the step; without Python frames the
    operation with the largest part. `built_from`: where the places are known from, in words.
    """

    nodes: list[PlaceNode]
    held_by: int
    built_from: str
    id_of: I8


def listed(evidence: Evidence, where: PlaceTimes, wall_ns: float) -> ListedPlaces:
    """List the places of a step that takes `wall_ns`."""
    step = where.total(where.own)
    held = where.holding(step)
    parent = where.tree.parent
    kept = step >= LEAST_LISTED_SHARE * step[ROOT]
    kept[ROOT] = True
    id_of = _ids(kept, parent)
    parts = _whole(_sums(where, id_of, int(kept.sum())), wall_ns)
    within = _below(parts, id_of, kept, parent)
    around = _around(kept, parent, id_of)
    merged = np.bincount(id_of[~kept], minlength=len(parts))
    gone = gone_without(evidence, where, step, wall_ns)
    code = evidence.profile.seen.code if evidence.profile.seen is not None else {}
    nodes: list[PlaceNode] = []
    for at in np.flatnonzero(kept).tolist():
        number = int(id_of[at])
        sort, text = where.tree.labels[int(where.tree.label[at])]
        outer = int(around[number])
        calls = 1.0 if at == ROOT else float(where.calls[at]) / where.steps
        source = text if sort in (PlaceSort.LINE, PlaceSort.FUNCTION) else nodes[outer].source if outer >= 0 else None
        nodes.append(
            PlaceNode(
                id=number,
                parent=None if outer == ABSENT else outer,
                kind="unknown" if sort == PlaceSort.NONE and at != ROOT else PLACE_KINDS[sort],  # type: ignore[arg-type]
                name=ROOT_NAME if at == ROOT else code.get(text, text) if sort == PlaceSort.LINE else text,
                source=source,
                calls=None if sort in (PlaceSort.LINE, PlaceSort.INPUT) else calls,
                step_ns=int(within[number, :-1].sum()),
                own_ns=int(parts[number, :-1].sum()),
                device_ns=int(within[number, 0]),
                host_ns={
                    cause: int(ns)
                    for cause, ns in zip(IDLE_CAUSES, within[number, 1:-1].tolist(), strict=True)
                    if ns > 0
                },
                backward_ns=int(within[number, -1]),
                gone_ns=gone.get(at),
                merged=int(merged[number]),
            )
        )
    return ListedPlaces(nodes, int(id_of[held]), built_from(evidence), id_of)


def _ids(kept: NDArray[np.bool_], parent: I8) -> I8:
    """For each node, the number of itself or of the nearest node around it, among the kept nodes."""
    id_of = np.cumsum(kept) - 1
    for at in np.flatnonzero(~kept).tolist():  # a parent comes before its children
        id_of[at] = id_of[parent[at]]
    return id_of


def _around(kept: NDArray[np.bool_], parent: I8, id_of: I8) -> I8:
    """The id of the place around each listed place; -1 for the program."""
    outer = parent[kept]
    return np.where(outer >= 0, id_of[np.maximum(outer, 0)], ABSENT)


def _sums(where: PlaceTimes, id_of: I8, count: int) -> NDArray[np.float64]:
    """The own time of each listed place: the device's, the host's by cause, and the backward pass's part of both."""
    columns = np.column_stack([where.device, where.host, where.backward])
    result = np.zeros((count, columns.shape[1]))
    np.add.at(result, id_of, columns)
    return result


def _whole(parts: NDArray[np.float64], wall_ns: float) -> I8:
    """`parts` scaled to a step of `wall_ns`, in whole ns: each is off by less than one, and the sum is exact."""
    times, backward = parts[:, :-1], parts[:, -1]
    scale = wall_ns / times.sum() if times.sum() > 0 else 0.0
    ends = np.rint(np.cumsum(times.reshape(-1)) * scale).astype(np.int64)
    exact = np.diff(ends, prepend=0).reshape(times.shape)
    own = exact.sum(axis=1)
    whole_backward = np.minimum(np.rint(backward * scale).astype(np.int64), own)
    whole_backward = np.where(backward >= times.sum(axis=1), own, whole_backward)  # all of it stays all of it
    return np.column_stack([exact, whole_backward])


def _below(parts: I8, id_of: I8, kept: NDArray[np.bool_], parent: I8) -> I8:
    """Each listed place's parts, with those of all places within it."""
    around = _around(kept, parent, id_of)
    result = parts.copy()
    for at in range(len(result) - 1, 0, -1):
        result[around[at]] += result[at]
    return result


def built_from(evidence: Evidence) -> str:
    """Where the places are known from, in words."""
    if evidence.profile.seen is not None and evidence.profile.seen.lines:
        return "Python frames, with the line of each call"
    if not len(evidence.events.of(EventKind.PYTHON)):
        return "operations alone: there are no Python frames"
    if evidence.profile.frames:
        return "Python frames: functions are known, the lines of their calls are not"
    return "operations, and the longest Python frames alone: functions may be missing"
