"""The host's threads on the timeline of a step: each visit of a listed place."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.places.listed import ListedPlaces
from gobrrr.analysis.places.timeline import MOST_TIMELINE_WORK, typical_step
from gobrrr.analysis.places.tree import ROOT
from gobrrr.analysis.places.where import PlaceTimes
from gobrrr.model.diagnosis import HostTrack, Timeline
from gobrrr.model.events import ABSENT, I8
from gobrrr.model.tree import HOST_KINDS, depths


def with_host(line: Timeline, evidence: Evidence, where: PlaceTimes, tree: ListedPlaces) -> Timeline:
    """The timeline with the host's threads; of more than `MOST_WORK` entries the shortest are left out."""
    start, stop = typical_step(evidence)
    rows = _shown(evidence, where, tree, start, stop)
    events = evidence.replayed
    low, high = np.clip(events.start_ns[rows], start, stop), np.clip(events.end_ns[rows], start, stop)
    longest = np.sort(np.argsort(low - high, kind="stable")[:MOST_TIMELINE_WORK])
    left_out = len(rows) - len(longest)
    rows, low, high = rows[longest], low[longest], high[longest]
    depth = _depths(where.enclosing, rows)
    thread = events.thread[rows]
    threads = sorted(np.unique(thread).tolist(), key=lambda number: (number != where.main, number))
    host = []
    for number in threads:
        of_thread = np.flatnonzero(thread == number)
        of_thread = of_thread[np.lexsort((depth[of_thread], low[of_thread]))]
        host.append(
            HostTrack(
                thread=events.threads[number],
                start_ns=(low[of_thread] - start).tolist(),
                duration_ns=(high[of_thread] - low[of_thread]).tolist(),
                place=tree.id_of[where.node_of[rows[of_thread]]].tolist(),
                depth=depth[of_thread].tolist(),
            )
        )
    return replace(line, host=host, host_left_out=left_out)


def _shown(evidence: Evidence, where: PlaceTimes, tree: ListedPlaces, start: int, stop: int) -> I8:
    """The host events of the step that enter a listed place."""
    events = evidence.replayed
    inside = (
        (events.start_ns < stop) & (events.end_ns > start) & np.isin(events.kind, [int(kind) for kind in HOST_KINDS])
    )
    rows = np.flatnonzero(inside)
    node = where.node_of[rows]
    around = where.parent[rows]
    outer = np.where(around >= 0, where.node_of[np.maximum(around, 0)], ROOT)
    own: NDArray[np.bool_] = (node != outer) & (node != ROOT)
    within = where.tree.parent[node[own]]
    result: I8 = rows[own][tree.id_of[node[own]] != tree.id_of[within]]
    return result


def _depths(enclosing: I8, rows: I8) -> I8:
    """How many of the events `rows` enclose each of them, on its own thread."""
    position = np.full(len(enclosing), ABSENT, dtype=np.int64)
    position[rows] = np.arange(len(rows))
    above = enclosing[rows]
    while len(open_ := np.flatnonzero((above >= 0) & (position[np.maximum(above, 0)] == ABSENT))):
        above[open_] = enclosing[above[open_]]
    return depths(np.where(above >= 0, position[np.maximum(above, 0)], ABSENT))
