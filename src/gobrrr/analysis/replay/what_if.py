"""Changes of a step's graph: functions from a graph to a graph, which are applied one after the other.

The saving of a change is not the time that it removes, but the difference of the two runs. A shorter kernel saves
nothing where the host launches late; a removed wait saves what the host can then do ahead.

Work is given by index into `links.device`; spans are in recorded host time, as in `events.start_ns`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from gobrrr.analysis.events.intervals import inside_spans
from gobrrr.analysis.replay.graph import F8, Mask, StepGraph
from gobrrr.model.events import I8
from gobrrr.model.tree import sums_below

Change = Callable[[StepGraph], StepGraph]

FIXED_NS = 2_000.0
"""The part of a kernel's time that neither a faster machine nor less work shortens, its launch and ramp: an empty
kernel takes 1 to 2 us on an H100 (`small_kernel_us` and `graph_kernel_us` in the shipped article.json)."""

GRAPH_LAUNCH_NS = 10_000.0
"""The host's time to launch a captured graph."""

MOST_ENCLOSING_OPS = 64
"""How many enclosing operations are examined. Chosen, not measured: it bounds the time."""


def unchanged(graph: StepGraph) -> StepGraph:
    """The graph as it is."""
    return graph


def in_turn(changes: Sequence[Change]) -> Change:
    """The changes applied one after the other."""

    def all_changes(graph: StepGraph) -> StepGraph:
        for change in changes:
            graph = change(graph)
        return graph

    return all_changes


def shortened(graph: StepGraph, work: I8, share: F8, *, better: bool = False) -> StepGraph:
    """Each of `work` keeps `share` of its time and of its floor: it does less, as far below its roof as before.

    Of several remedies for the same work the best counts, not their product: each can save the same part only once.
    `better`: the same work by a better kernel; the floor stays.
    """
    duration, floor = graph.duration.copy(), graph.floor.copy()
    now = duration[work]
    duration[work] = np.where(share < 1.0, np.minimum(now, graph.base[work] * share), now * share)
    if better:
        floor[work] = np.minimum(floor[work], duration[work])  # unknown stays unknown
    else:
        floor[work] *= np.divide(duration[work], now, out=np.ones_like(now), where=now > 0)
    return replace(graph, duration=duration, floor=floor)


def lengthened(graph: StepGraph, work: I8, ns: float) -> StepGraph:
    """Each of `work` that still runs takes `ns` longer, for kernels that are launched with it."""
    duration, base = graph.duration.copy(), graph.base.copy()
    running = work[~graph.gone[work]]
    duration[running] += ns
    base[running] += ns
    return replace(graph, duration=duration, base=base)


def narrowed(graph: StepGraph, work: I8, share: F8) -> StepGraph:
    """Each of `work` keeps `share` of its time and of its floor, independently of other remedies.

    A narrower type also halves the bytes that a fusion leaves: the two savings multiply.
    """
    duration, floor, base = graph.duration.copy(), graph.floor.copy(), graph.base.copy()
    for column in (duration, floor, base):
        column[work] *= share
    return replace(graph, duration=duration, floor=floor, base=base)


def merged(graph: StepGraph, work: I8) -> StepGraph:
    """`work` is no longer launched on its own: each piece becomes part of the last piece before it on its stream that
    is not among `work`.

    Where that piece no longer runs (another change removed it), or there is none, the first of the merged pieces takes
    its place. The host's time to launch them is unchanged.
    """
    is_named = np.zeros(len(graph.gone), dtype=bool)
    is_named[work] = True
    moved = np.flatnonzero(is_named & ~graph.gone)
    if not len(moved):
        return graph
    heir = _heirs(graph, moved, _before(graph, is_named)[moved])
    duration, floor, gone, base = graph.duration.copy(), graph.floor.copy(), graph.gone.copy(), graph.base.copy()
    moved, heir = moved[heir != moved], heir[heir != moved]
    np.add.at(duration, heir, graph.duration[moved])
    np.add.at(floor, heir, graph.floor[moved])  # with a part that has no floor the whole has none
    np.add.at(base, heir, graph.base[moved])
    duration[moved] = floor[moved] = base[moved] = 0.0
    gone[moved] = True
    return replace(graph, gone=gone, duration=duration, floor=floor, base=base)


def _heirs(graph: StepGraph, moved: I8, before: I8) -> I8:
    """For each of `moved`, the piece that it joins: the one `before` it, or the first of `moved` in its place."""
    runs = (before >= 0) & ~graph.gone[np.maximum(before, 0)]
    begin = graph.events.start_ns[graph.links.device[moved]]
    order = np.lexsort((begin, before, graph.stream[moved]))
    key = np.column_stack([graph.stream[moved], before])[order]
    opens = np.ones(len(order), dtype=bool)
    opens[1:] = (key[1:] != key[:-1]).any(axis=1)
    first = np.empty(len(order), dtype=np.int64)
    first[order] = moved[order][np.maximum.accumulate(np.where(opens, np.arange(len(order)), 0))]
    return np.where(runs, before, first)


def dropped(graph: StepGraph, work: I8) -> StepGraph:
    """`work` no longer runs. The host's time to launch it is unchanged."""
    gone, duration, floor = graph.gone.copy(), graph.duration.copy(), graph.floor.copy()
    gone[work], duration[work], floor[work] = True, 0.0, 0.0
    return replace(graph, gone=gone, duration=duration, floor=floor)


def _before(graph: StepGraph, gone: Mask) -> I8:
    """For each piece of work, the last piece before it on its stream that is not `gone`; -1 for none."""
    begin = graph.events.start_ns[graph.links.device]
    order = np.lexsort((begin, graph.stream))
    place = np.where(gone[order], -1, np.arange(len(order)))
    last = np.maximum.accumulate(place) if len(place) else place
    same = (last >= 0) & (graph.stream[order[np.maximum(last, 0)]] == graph.stream[order])
    result = np.full(len(order), -1, dtype=np.int64)
    result[order] = np.where(same, order[np.maximum(last, 0)], -1)
    return result


def launching_spans(graph: StepGraph, work: I8) -> tuple[I8, I8]:
    """(begins, ends) of the outermost host operations that launch only work among `work`.

    Where no operation is known, those of the launch call.
    """
    links, events = graph.links, graph.events
    known = np.flatnonzero(links.launch >= 0)
    every, own = np.zeros(len(events), dtype=np.int64), np.zeros(len(events), dtype=np.int64)
    np.add.at(every, links.launch[known], 1)
    chosen = np.intersect1d(known, work)
    np.add.at(own, links.launch[chosen], 1)
    every, own = (count + sums_below(links.op_parent, count) for count in (every, own))
    row = links.launch[chosen]
    row = row[own[row] == every[row]]
    for _ in range(MOST_ENCLOSING_OPS):
        parent = links.op_parent[row]
        up = (parent >= 0) & (own[np.maximum(parent, 0)] == every[np.maximum(parent, 0)])
        if not up.any():
            break
        row = np.where(up, parent, row)
    row = np.unique(row)
    return events.start_ns[row], events.end_ns[row]


def hosted(graph: StepGraph, begin: I8, end: I8, share: F8 | float) -> StepGraph:
    """The host needs only `share` (one for all, or one per span) of its time within the spans, which may overlap."""
    if not len(begin) or not len(graph.left):
        return graph
    less = np.broadcast_to(1.0 - np.asarray(share, dtype=np.float64), begin.shape)
    edges, where = np.unique(np.concatenate([begin, end]), return_inverse=True)
    if isinstance(share, float):
        depth = np.cumsum(np.bincount(where, weights=np.concatenate([np.ones(len(begin)), -np.ones(len(end))])))
        rate = np.where(depth > 0, 1.0 - share, 0.0)
    else:
        rate = np.minimum(np.cumsum(np.bincount(where, weights=np.concatenate([less, -less]))), 1.0)
    reached = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(edges))])
    inside = np.diff(np.interp(graph.at, edges, reached))
    length = np.maximum(np.diff(graph.at), 1)
    return replace(graph, left=graph.left * np.clip(1.0 - inside / length, 0.0, None))


def host_of(graph: StepGraph, begin: I8, end: I8) -> F8:
    """The host's time within each span, without waits, in ns."""
    needed: F8 = graph.passed(end) - graph.passed(begin)
    return needed


def burdened(graph: StepGraph, work: I8, ns: F8 | float) -> StepGraph:
    """The host needs `ns` more before each of `work` (one for all, or one each; at the recorded pace)."""
    if not len(graph.left):
        return graph
    at = np.clip(np.searchsorted(graph.at, graph.called[work], side="left") - 1, 0, len(graph.left) - 1)
    more, left = np.broadcast_to(ns, work.shape), graph.left.copy()
    np.add.at(left, at, more * graph.pace)
    return replace(graph, left=left, burden=graph.burden + float(more.sum()))


def unlaunched(graph: StepGraph, work: I8, share: float = 0.0, spans: tuple[I8, I8] | None = None) -> StepGraph:
    """The host's operations that launch only work among `work` keep `share` of their time.

    `spans`: the result of `launching_spans`, where the caller has it: it is the same for all graphs of a trace.
    """
    if not len(work):
        return graph
    return hosted(graph, *(spans or launching_spans(graph, work)), share)


def unwaited(graph: StepGraph, rows: I8 | None = None) -> StepGraph:
    """The host does not wait for the device in the waits `rows` (None: in no wait)."""
    cut = np.ones(len(graph.waits), dtype=bool) if rows is None else graph.cut | np.isin(graph.waits, rows)
    return replace(graph, cut=cut)


def captured(graph: StepGraph, begin: I8, end: I8, gap_ns: float, launch_ns: F8 | float = GRAPH_LAUNCH_NS) -> StepGraph:
    """Within each span the host only launches a captured graph, whose kernels follow one another; waits are gone.

    `launch_ns`: the host's time to launch a graph, one for all or one per span, at the recorded pace; `gap_ns`: the
    device's pause between two kernels of a graph.
    """
    changed = hosted(graph, begin, end, 0.0)
    left = changed.left.copy()
    at = np.clip(np.searchsorted(graph.at, begin, side="right") - 1, 0, max(len(left) - 1, 0))
    if len(left):
        np.add.at(left, at, np.asarray(launch_ns) * graph.pace)
    inside = inside_spans(graph.called, begin, end) & (graph.links.launch >= 0)
    place = graph.place & ~inside
    place[_first_within(graph, begin, inside)] = True
    waits = graph.events.start_ns[graph.waits]
    return replace(
        changed,
        left=left,
        place=place,
        gap=np.where(inside, gap_ns, graph.gap),
        cut=graph.cut | inside_spans(waits, begin, end),
    )


def _first_within(graph: StepGraph, begin: I8, within: Mask) -> I8:
    """The first work of each span."""
    inside = np.flatnonzero(within)
    inside = inside[np.argsort(graph.called[inside], kind="stable")]
    span = np.searchsorted(begin, graph.called[inside], side="right")
    return inside[np.unique(span, return_index=True)[1]]


def freed(graph: StepGraph, work: I8) -> StepGraph:
    """`work` runs on a stream of its own, and neither host nor device waits for it: a copy made a step ahead."""
    stream, after = graph.stream.copy(), graph.after.copy()
    stream[work] = stream.max(initial=0) + 1
    after[work] = -1
    after[np.isin(after, work)] = -1
    blocked = graph.links.launch[work]
    waiting = np.isin(graph.waits, blocked[blocked >= 0]) | np.isin(graph.awaited, work)
    return replace(graph, stream=stream, after=after, cut=graph.cut | waiting)


def overlapped(graph: StepGraph, work: I8, ready: I8, until: I8) -> StepGraph:
    """Collectives overlap with computing: each of `work` begins once its `ready` is done (-1: at once), and its `until`
    (-1: none) waits for it."""
    stream, after = graph.stream.copy(), graph.after.copy()
    called, issued = graph.called.copy(), graph.issued.copy()
    stream[work] = stream.max(initial=0) + 1
    after[np.isin(after, work)] = -1
    after[work] = ready
    moved = ready >= 0
    called[work[moved]] = graph.called[ready[moved]]
    issued[work[moved]] = graph.issued[ready[moved]]
    held, latency = graph.held.copy(), graph.latency.copy()
    held[work] = 0.0
    latency[work] = np.minimum(latency[work], FIXED_NS)
    waiting = until >= 0
    after[until[waiting]] = work[waiting]
    return replace(graph, stream=stream, after=after, called=called, issued=issued, held=held, latency=latency)


def scaled(graph: StepGraph, work: I8, factor: F8, floor: F8 | None = None) -> StepGraph:
    """The time of `work` beyond `FIXED_NS` is multiplied by `factor`, but stays at least the new `floor` (ns)."""
    duration, floors = graph.duration.copy(), graph.floor.copy()
    now = duration[work]
    fixed = np.minimum(now, 0.0 if graph.serial else FIXED_NS)
    floors[work] = floors[work] * factor if floor is None else floor
    duration[work] = np.maximum(fixed + (now - fixed) * factor, np.nan_to_num(floors[work]))
    base = graph.base.copy()
    base[work] *= np.divide(duration[work], now, out=np.ones_like(now), where=now > 0)
    return replace(graph, duration=duration, floor=floors, base=base)
