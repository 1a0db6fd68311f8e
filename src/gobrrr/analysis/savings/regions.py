"""What remedies of whole regions do to a step's graph: loops, optimizers, captured steps, input, larger batches."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from gobrrr.analysis.budget.idle import INPUT
from gobrrr.analysis.events.intervals import Spans, clip, covered, inside_spans, union
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import KERNEL_GAP_NS
from gobrrr.analysis.host.host_loops import HostLoop, together_share
from gobrrr.analysis.host.inputs import host_rows, input_gaps, input_stretches
from gobrrr.analysis.host.loops import work_of
from gobrrr.analysis.host.optimizers import STEP, Updates, optimizer_spans
from gobrrr.analysis.host.waits import expert_loop, inner_waits, reading_ops
from gobrrr.analysis.pricing.price import Class
from gobrrr.analysis.replay.graph import F8, StepGraph
from gobrrr.analysis.replay.what_if import (
    FIXED_NS,
    Change,
    captured,
    freed,
    host_of,
    hosted,
    in_turn,
    launching_spans,
    lengthened,
    merged,
    scaled,
    shortened,
    unlaunched,
    unwaited,
)
from gobrrr.analysis.savings.batches import factors
from gobrrr.analysis.savings.effects import less_host, spans_of, step_spans, within, works_of
from gobrrr.analysis.savings.gains import Effect
from gobrrr.model.events import I8

IN_GRAPH_NS = 300.0
"""The device's pause from kernel to kernel in a captured graph, at least: in the shipped trace mlp_tiny.fixed the
median is 256 ns, and three in four are up to 288. At most it is `KERNEL_GAP_NS`."""


EMPTY_NS = 1_000.0
"""What an empty kernel takes of the device at least (`FIXED_NS` says from where)."""

COUNTING = 14
"""Launches for each parameter that an Adam written out has more where it counts its steps on the device
(`capturable=True`), as a graph needs it: 22 in tests/data/h200/small_parameters.cuda_graph.json.gz, where it has 8
without: powers of the betas, what is made of them and the step's own sum."""

COUNTING_NS = 1_200.0
"""Each of them, of one element: the median of that trace's kernels is 1,184 ns."""


ADAMS = ("Adam", "AdamW")
"""Of the optimizers that divide as an Adam does, those that count as one."""


def counting(evidence: Evidence, found: Updates) -> I8:
    """Of an optimizer's updates one piece of work of each parameter, where it is an Adam written out that counts its
    steps on the host."""
    none = np.array([], dtype=np.int64)
    spans = optimizer_spans(evidence.events)
    kinds = {evidence.events.name_of(row).removeprefix(STEP).partition(".")[0] for row in spans.tolist()}
    if not found.annotated or not kinds <= set(ADAMS):
        return none
    names = [evidence.events.name_of(row) for row in evidence.priced.links.op[found.work].tolist()]
    if any(name in ("aten::pow", "aten::reciprocal") for name in names):
        return none  # on the device already
    divided: I8 = found.work[[name == "aten::addcdiv_" for name in names]]
    return divided


def launching(evidence: Evidence) -> tuple[I8, I8]:
    """(begins, ends): in each recorded step from its first to its last launch."""
    return step_spans(evidence, np.arange(len(evidence.priced.links.device)))


def as_graph(evidence: Evidence) -> Effect:
    """Each step is one launch of a captured graph, its waits and its Python gone; what loads input stays outside.

    At the least all but the optimizer. Where the host still waits within the step, nothing but at the most. An
    optimizer that goes from parameter to parameter counts on the device in a graph, in launches of their own.
    """
    whole, waits, found = _step_but_input(evidence), inner_waits(evidence), evidence.updates
    own, counts = step_spans(evidence, found.work), counting(evidence, found)

    def effect(share: float) -> Change:
        def change(graph: StepGraph) -> StepGraph:
            held = np.isin(graph.waits, waits) & ~graph.cut
            if held.any() and share < 1.0:
                return graph  # a graph can't hold a wait of the host
            if share < 0.25:
                return captured(graph, *without(launching(evidence), own), KERNEL_GAP_NS)
            gap = KERNEL_GAP_NS + (IN_GRAPH_NS - KERNEL_GAP_NS) * share
            return captured(lengthened(graph, counts, COUNTING * (COUNTING_NS + gap)), *whole, gap)

        return change

    return effect


def _step_but_input(evidence: Evidence) -> tuple[I8, I8]:
    """Each recorded step from its begin to its last launch, without the spans in which input is loaded."""
    steps = evidence.recorded_steps
    first, last = launching(evidence)
    marks = np.array(steps.begins, dtype=np.int64)
    begin = marks[np.searchsorted(marks, first, side="right") - 1] if steps.marked and len(marks) else first
    return without((begin, last), loading_spans(evidence))


def without(spans: tuple[I8, I8], taken: tuple[I8, I8]) -> tuple[I8, I8]:
    """Spans less others, by start."""
    begins: list[int] = []
    ends: list[int] = []
    start, stop = union(*taken)
    nearest = np.searchsorted(stop, spans[0], side="right"), np.searchsorted(start, spans[1])
    for begin, end, low, high in zip(*(span.tolist() for span in (*spans, *nearest)), strict=True):
        at = begin
        for first, last in zip(start[low:high].tolist(), stop[low:high].tolist(), strict=True):
            if first > at:
                begins.append(at)
                ends.append(first)
            at = max(at, last)
        if at < end:
            begins.append(at)
            ends.append(end)
    return np.array(begins, dtype=np.int64), np.array(ends, dtype=np.int64)


def as_one_launch(evidence: Evidence, work: I8, pass_share: float) -> Effect:
    """`work` is one kernel a step, which moves at best `pass_share` of the bytes.

    The launch and ramp of all others are gone: `EMPTY_NS` of each at the least, `FIXED_NS` at the most. So are the
    operations that launch them, and at the most what the host does between those, where it launches nothing else there.
    """
    events, links, steps = evidence.events, evidence.priced.links, evidence.recorded_steps
    launch = links.launch[work]
    edges = np.array([*(steps.begins or (steps.start,)), steps.stop])
    step = np.searchsorted(edges, events.start_ns[np.maximum(launch, 0)], side="right")
    _, first = np.unique(step, return_index=True)
    others = np.delete(work, first)
    spans = launching_spans(evidence.graph, others)
    begin, end = _alone(evidence, work)
    length = np.maximum(evidence.graph.base[work], 1.0)
    again = np.ones(len(work))
    again[first] = 0.0  # one is still launched
    least = np.maximum(length - EMPTY_NS * again, 0.0) / length
    most = pass_share * np.maximum(length - FIXED_NS * again, 0.0) / length

    def effect(share: float) -> Change:
        kept = least + share * (most - least)
        return in_turn(
            [
                lambda graph: shortened(graph, work, kept),
                lambda graph: merged(unlaunched(graph, others, 0.0, spans), others),
                lambda graph: hosted(graph, begin, end, 1.0 - share),
            ]
        )

    return effect


def _alone(evidence: Evidence, work: I8) -> tuple[I8, I8]:
    """(begins, ends) of the stretches from one launch of `work` to the next one with no other launch between them."""
    events, links = evidence.events, evidence.priced.links
    rows = np.unique(links.launch[links.launch >= 0])
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    mine = np.isin(rows, links.launch[work])
    together = np.flatnonzero(mine[:-1] & mine[1:])
    begin, end = events.end_ns[rows[together]], events.start_ns[rows[together + 1]]
    edges = np.array(evidence.recorded_steps.begins or [evidence.recorded_steps.start], dtype=np.int64)
    same = np.searchsorted(edges, begin, side="right") == np.searchsorted(edges, end, side="right")
    wanted = same & (end > begin)
    return begin[wanted], end[wanted]


def as_one_turn(evidence: Evidence, one: HostLoop) -> Effect:
    """All turns of a loop in the launches of one: the device's work takes as long as now, at best as the floor says of
    one operation on all turns."""
    loop, turns = one.loop, max(one.deep, one.turns, 1)
    work = work_of(evidence, loop)
    begin, end = np.array([int(loop.begins[0])]), np.array([loop.stop])
    launch = evidence.priced.links.launch[work]
    called = evidence.events.start_ns[np.maximum(launch, 0)]
    outside = work[(launch >= 0) & ((called < begin[0]) | (called >= end[0]))]  # of the backward pass
    spans = launching_spans(evidence.graph, outside)
    mine = np.zeros(len(evidence.priced.links.device), dtype=bool)
    mine[work] = True
    calls = np.flatnonzero(mine[evidence.calls.first])
    best = at_floors(evidence, work) * together_share(evidence, loop, calls)

    def effect(share: float) -> Change:
        kept = np.full(len(work), 1.0 - share * (1.0 - best))
        host = float(min(1.0 / turns + (1.0 - min(2 * share, 1.0)) * 0.5, 1.0))
        return in_turn(
            [
                lambda graph: shortened(graph, work, kept),
                lambda graph: hosted(unlaunched(graph, outside, host, spans), begin, end, host),
            ]
        )

    return effect


def in_loop(evidence: Evidence, waits: I8, least: float, most: float) -> Effect:
    """The host between the first and the last of a loop's waits, a step, keeps `least` to `most` of its time.

    What the device does there takes as long as now, at best as its floors say: one product for many small ones.
    """
    begin, end = loop_spans(evidence, waits)
    work = np.flatnonzero(inside_spans(evidence.graph.called, begin, end) & (evidence.priced.links.launch >= 0))
    best, host = at_floors(evidence, work), less_host(begin, end, least, most)

    def effect(share: float) -> Change:
        kept = np.full(len(work), 1.0 - share * (1.0 - best))
        return in_turn([lambda graph: shortened(graph, work, kept), host(share)])

    return effect


def at_floors(evidence: Evidence, work: I8) -> float:
    """The share of some work's time that its floors are; what has none that is known keeps its time."""
    each = evidence.graph.duration[work]
    now = float(each.sum())
    floor = float(np.fmin(each, evidence.priced.floor_ns[work]).sum())
    return min(floor / now, 1.0) if now else 1.0


def loop_spans(evidence: Evidence, waits: I8) -> tuple[I8, I8]:
    """(begins, ends): in each recorded step from its first wait to the launches behind its last one, a turn's worth.

    A turn may wait several times: it is what lies between a wait and the next one of the same operation.
    """
    events, steps = evidence.events, evidence.recorded_steps
    at = np.sort(events.start_ns[waits])
    each = max(round(len(at) / (expert_loop(evidence, waits) or len(at)) / steps.count), 1)
    edges = [*(steps.begins or (steps.start,)), steps.stop]
    begins, ends = [], []
    places = np.searchsorted(at, edges).tolist()
    for last, (place, beyond) in zip(edges[1:], pairwise(places), strict=True):
        inside = at[place:beyond]
        if len(inside) > each:
            turn = int(np.median(inside[each:] - inside[:-each]))
            begins.append(int(inside[0]))
            ends.append(int(min(inside[-each] + turn, last)))
    return np.array(begins, dtype=np.int64), np.array(ends, dtype=np.int64)


def loading_spans(evidence: Evidence) -> tuple[I8, I8]:
    """(begins, ends), recorded: loaders and host operations on the path to the device's input."""
    rows = host_rows(evidence)
    gaps = input_gaps(evidence)
    spans = union(np.array([gap.start for gap in gaps]), np.array([gap.stop for gap in gaps]))
    inside = covered(spans, evidence.replayed.start_ns[rows], evidence.replayed.end_ns[rows]) > 0
    return spans_of(evidence, rows[inside])


def not_loading(evidence: Evidence, handed_ns: float) -> Effect:
    """The host does not prepare input any more; `handed_ns` a step is what taking a prepared batch costs at the least.

    Loaders and long operations in front of input leave its path; beyond the least, what else was found to be preparing
    input in the idle stretches in front of it does as well, up to the call that copies it.
    """
    loads = loads_of(evidence)
    needed = loading_ns(evidence)
    handed = min(handed_ns / needed, 1.0) if needed > 0 else 0.0
    begin, end, rest = _before_input(evidence, loads)

    def effect(share: float) -> Change:
        def change(graph: StepGraph) -> StepGraph:
            least = 1.0 if evidence.device.on_host else handed  # workers share a CPU with the step that it computes
            graph = hosted(graph, loads.start, loads.stop, float(least * (1.0 - share)))
            return hosted(graph, begin, end, np.clip(1.0 - min(2 * share, 1.0) * rest, 0.0, 1.0))

        return change

    return effect


def loads_of(evidence: Evidence) -> Spans:
    """When the host loads data or computes what is copied to the device next, as recorded, within the steps."""
    steps, (begin, end) = evidence.recorded_steps, loading_spans(evidence)
    every = union(np.concatenate([begin, evidence.loading.start]), np.concatenate([end, evidence.loading.stop]))
    return clip(every, steps.begins[0] if steps.begins else steps.start, steps.stop)


def loading_ns(evidence: Evidence) -> float:
    """What that takes in one step, without the profiler."""
    loads = loads_of(evidence)
    return float(host_of(evidence.graph, loads.start, loads.stop).sum()) / evidence.recorded_steps.count


def _before_input(evidence: Evidence, loads: Spans) -> tuple[I8, I8, F8]:
    """(begins, ends, share that prepares input) of idle stretches in front of input, without what `loads` covers."""
    gaps = input_stretches(evidence)
    begin, end = within(evidence, gaps)
    behind = evidence.budget.gaps.next_work[gaps]
    launch = np.full(len(evidence.events) + 1, -1, dtype=np.int64)
    launch[evidence.priced.links.device] = evidence.priced.links.launch
    called = np.where(launch[behind] >= 0, evidence.events.start_ns[launch[behind]], end)
    end = np.maximum(np.minimum(end, called), begin)
    length = np.maximum(end - begin, 1)
    covers = covered(loads, begin, end) / length
    prepares = np.minimum(evidence.budget.gaps.of(INPUT)[gaps] / length, 1.0)
    share = np.divide(prepares - covers, 1.0 - covers, out=np.zeros(len(gaps)), where=covers < 1.0)
    return begin, end, np.clip(share, 0.0, 1.0)


def prefetched(evidence: Evidence, copies: I8) -> Effect:
    """Copies of input at the link's speed, from pinned memory; beyond the least, made while the step before runs.

    The host no longer stages what comes from pageable memory.
    """
    events, links = evidence.events, evidence.priced.links
    rows, launch = links.device[copies], links.launch[copies]
    link = evidence.machine.host_bytes_per_s if evidence.machine is not None else None
    now = np.maximum(events.duration_ns[rows].astype(np.float64), 1.0)
    pageable = np.array(["ageable" in events.name_of(int(row)) for row in rows], dtype=bool)
    share = np.ones(len(copies))
    if link is not None:
        best = np.maximum(events.bytes[rows], 0) / link.value * 1e9 / now
        share = np.where(pageable, np.clip(best, 0.0, 1.0), 1.0)
    calls = np.sort(launch[pageable & (launch >= 0)])
    begin, end = events.start_ns[calls], events.end_ns[calls]

    def effect(part: float) -> Change:
        def change(graph: StepGraph) -> StepGraph:
            quick = hosted(shortened(graph, copies, share), begin, end, 0.0)
            return quick if part < 0.25 else freed(quick, copies)

        return change

    return effect


def larger(evidence: Evidence, times: float) -> Effect:
    """Each step does `times` the work: what scales with the batch takes as many times as long, updates and the reading
    of weights (`gobrrr.analysis.savings.batches`) do not.

    At the least the step's time grows with the work.
    """
    talks = np.flatnonzero(evidence.priced.kind == Class.COMMUNICATION)  # gradients are as large as before
    rest = np.concatenate([evidence.updates.work, talks])
    every = np.full(len(evidence.priced.links.device), times)
    mine, call = works_of(evidence, np.arange(len(evidence.calls)))
    every[mine] = factors(evidence, times)[call]
    work = np.setdiff1d(np.arange(len(every)), rest)
    longer = every[work]

    loads = loads_of(evidence)

    def effect(share: float) -> Change:
        grows = max(1.0 - 2.0 * share, 0.0)
        host = 1.0 + (times - 1.0) * grows
        return in_turn(
            [
                # a batch of so many times the samples takes as many times as long to load
                lambda graph: hosted(graph, loads.start, loads.stop, times / host),
                lambda graph: _longer_host(graph, host),
                lambda graph: scaled(graph, work, longer + (times - longer) * grows),
            ]
        )

    return effect


def _longer_host(graph: StepGraph, times: float) -> StepGraph:
    return replace(graph, left=graph.left * times)


def unwaiting(evidence: Evidence) -> Effect:
    """The host does not wait inside the step."""
    rows = inner_waits(evidence)
    return lambda _: lambda graph: unwaited(graph, rows)


def unread(evidence: Evidence, waits: I8) -> Effect:
    """The host does not wait in `waits`, and at the most does nothing of what reads a value: operation, copy, wait."""
    begin, end = spans_of(evidence, reading_ops(evidence, waits))

    def effect(share: float) -> Change:
        return lambda graph: hosted(unwaited(graph, waits), begin, end, 1.0 - share)

    return effect
