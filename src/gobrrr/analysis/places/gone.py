"""How much shorter a step would be if one of its places took no time: the step's graph, replayed without the place."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.places.labels import PlaceSort
from gobrrr.analysis.places.tree import ROOT
from gobrrr.analysis.places.where import PlaceTimes
from gobrrr.analysis.replay.what_if import dropped, hosted, unwaited
from gobrrr.model.events import ABSENT, I8
from gobrrr.model.tree import HOST_KINDS

MOST_REPLAYED_PLACES = 2
"""How many places are left out, each in a replay of its own: the place that holds the step, and the heaviest other.
Chosen, not measured: it bounds the time."""

LEAST_REPLAYED_SHARE = 0.1
"""The least share of the step of a place that is left out in a replay. Chosen, not measured."""

PARENT_SHARE = 0.95
"""A place with at least this share of its parent's time replaces the parent. Chosen, not measured."""


def gone_without(evidence: Evidence, where: PlaceTimes, step: I8, wall_ns: float) -> dict[int, float]:
    """By node, how much shorter a step of `wall_ns` would be without each of the heaviest places. `step`: the time of
    each node, descendants included."""
    if not evidence.replayable or not step[ROOT]:
        return {}
    scale = wall_ns / evidence.wall_ns if evidence.wall_ns else 0.0
    candidates = dict.fromkeys([where.holding(step), *_heaviest(where, step)])
    candidates.pop(ROOT, None)
    return {at: _gone(evidence, where, at) * float(scale) for at in list(candidates)[:MOST_REPLAYED_PLACES]}


def _heaviest(where: PlaceTimes, step: I8) -> list[int]:
    """The heaviest places without an inner place that has nearly all of their time."""
    sort = np.array([kind for kind, _ in where.tree.labels])[where.tree.label]
    largest = np.zeros(len(step), dtype=np.int64)
    inner = np.flatnonzero((sort != PlaceSort.KERNEL) & (where.tree.parent >= 0))
    np.maximum.at(largest, where.tree.parent[inner], step[inner])
    wanted = (step >= LEAST_REPLAYED_SHARE * step[ROOT]) & (largest < PARENT_SHARE * step) & (sort != PlaceSort.KERNEL)
    wanted[ROOT] = False
    heavy = np.flatnonzero(wanted)
    result: list[int] = heavy[np.argsort(-step[heavy], kind="stable")][:MOST_REPLAYED_PLACES].tolist()
    return result


def _gone(evidence: Evidence, where: PlaceTimes, node: int) -> float:
    graph, events, links = evidence.graph, evidence.events, evidence.priced.links
    inside = _inside(where, node)
    rows = np.flatnonzero(inside[where.node_of] & np.isin(events.kind, [int(kind) for kind in HOST_KINDS]))
    around = where.parent[rows]
    outer = rows[(around == ABSENT) | ~inside[where.node_of[np.maximum(around, 0)]]]
    owner = np.where(links.op >= 0, links.op, links.launch)
    work = np.flatnonzero((owner >= 0) & inside[where.node_of[np.maximum(owner, 0)]])
    graph = dropped(hosted(graph, events.start_ns[outer], events.end_ns[outer], 0.0), work)
    if len(graph.waits):
        graph = unwaited(graph, graph.waits[inside[where.node_of[graph.waits]]])
    return max(float(evidence.wall_ns - evidence.length(graph)), 0.0)


def _inside(where: PlaceTimes, node: int) -> NDArray[np.bool_]:
    """Whether each node is this one or lies within it."""
    result = np.zeros(len(where.tree), dtype=bool)
    result[node] = True
    for at in range(node + 1, len(result)):  # a parent comes before its children
        result[at] = result[where.tree.parent[at]]
    return result
