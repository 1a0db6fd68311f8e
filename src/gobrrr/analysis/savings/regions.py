"""How remedies of whole regions change a step's graph: loops, optimizers, captured steps, input, larger batches."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from gobrrr.analysis.budget.idle import INPUT_CAUSE
from gobrrr.analysis.events.intervals import Spans, clip, covered, inside_spans, union
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import KERNEL_GAP_NS
from gobrrr.analysis.host.host_loops import CostlyLoop, together_share
from gobrrr.analysis.host.inputs import host_rows, input_gaps, input_stretches
from gobrrr.analysis.host.loops import work_of
from gobrrr.analysis.host.optimizers import OPTIMIZER_STEP, Updates, optimizer_spans
from gobrrr.analysis.host.waits import expert_loop, inner_waits, reading_ops
from gobrrr.analysis.pricing.price import WorkClass
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
"""The least pause of the device between kernels in a captured graph: in the shipped trace mlp_tiny.fixed the median is
256 ns, and three in four are up to 288. The most is `KERNEL_GAP_NS`."""

EMPTY_NS = 1_000.0
"""The least device time of an empty kernel (source: as `FIXED_NS`)."""

STEP_COUNT_LAUNCHES = 14
"""Extra launches per parameter of a for-loop Adam that counts its steps on the device (`capturable=True`), as a graph
needs it: 22 in tests/data/h200/small_parameters.cuda_graph.json.gz instead of 8. They compute powers of the betas, what
follows from them, and the new step number."""

STEP_COUNT_KERNEL_NS = 1_200.0
"""Device time of each of them, on one element: the median of that trace's kernels is 1,184 ns."""

ADAM_OPTIMIZERS = ("Adam", "AdamW")
"""Optimizers that count their steps as Adam does; others divide as Adam does but do not."""


def counting(evidence: Evidence, updates: Updates) -> I8:
    """One piece of work per parameter of an optimizer's updates, if it is a for-loop Adam that counts on the host."""
    spans = optimizer_spans(evidence.events)
    kinds = {evidence.events.name_of(row).removeprefix(OPTIMIZER_STEP).partition(".")[0] for row in spans.tolist()}
    names = [evidence.events.name_of(row) for row in evidence.priced.links.op[updates.work].tolist()]
    counts_on_device = any(name in ("aten::pow", "aten::reciprocal") for name in names)
    if not updates.annotated or not kinds <= set(ADAM_OPTIMIZERS) or counts_on_device:
        return updates.work[:0]
    divided: I8 = updates.work[[name == "aten::addcdiv_" for name in names]]
    return divided


def launching(evidence: Evidence) -> tuple[I8, I8]:
    """(begins, ends): each recorded step from its first to its last launch."""
    return step_spans(evidence, np.arange(len(evidence.priced.links.device)))


def as_graph(evidence: Evidence) -> Effect:
    """Each step is one launch of a captured graph, without its waits and its Python; loading input stays outside.

    At the least, the optimizer stays outside as well. Where the host still waits within the step, there is an effect
    only at the most. An optimizer that updates one parameter at a time counts its steps on the device in a graph, with
    extra launches.
    """
    whole, waits, updates = _step_but_input(evidence), inner_waits(evidence), evidence.updates
    updating, counts = step_spans(evidence, updates.work), counting(evidence, updates)

    def effect(share: float) -> Change:
        def change(graph: StepGraph) -> StepGraph:
            waiting = np.isin(graph.waits, waits) & ~graph.cut
            if waiting.any() and share < 1.0:
                return graph  # a graph can't hold a wait of the host
            if share < 0.25:
                return captured(graph, *without(launching(evidence), updating), KERNEL_GAP_NS)
            gap = KERNEL_GAP_NS + (IN_GRAPH_NS - KERNEL_GAP_NS) * share
            return captured(lengthened(graph, counts, STEP_COUNT_LAUNCHES * (STEP_COUNT_KERNEL_NS + gap)), *whole, gap)

        return change

    return effect


def _step_but_input(evidence: Evidence) -> tuple[I8, I8]:
    """(begins, ends): each recorded step from its begin to its last launch, without the loading of input."""
    steps = evidence.recorded_steps
    first, last = launching(evidence)
    marks = np.array(steps.begins, dtype=np.int64)
    begin = marks[np.searchsorted(marks, first, side="right") - 1] if steps.marked and len(marks) else first
    return without((begin, last), loading_spans(evidence))


def without(spans: tuple[I8, I8], taken: tuple[I8, I8]) -> tuple[I8, I8]:
    """The parts of `spans` that `taken` does not cover, by start."""
    left: list[tuple[int, int]] = []
    start, stop = union(*taken)
    nearest = np.searchsorted(stop, spans[0], side="right"), np.searchsorted(start, spans[1])
    for begin, end, low, high in zip(*(span.tolist() for span in (*spans, *nearest)), strict=True):
        at = begin
        for first, last in zip(start[low:high].tolist(), stop[low:high].tolist(), strict=True):
            if first > at:
                left.append((at, first))
            at = max(at, last)
        if at < end:
            left.append((at, end))
    begins, ends = np.array(left, dtype=np.int64).reshape(-1, 2).T
    return begins, ends


def as_one_launch(evidence: Evidence, work: I8, pass_share: float) -> Effect:
    """`work` becomes one kernel per step, which moves at best `pass_share` of the bytes.

    All other kernels are gone with their fixed time: `EMPTY_NS` each at the least, `FIXED_NS` at the most. So are the
    operations that launch them and, at the most, the host's time between those where it launches nothing else.
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
    gone = np.ones(len(work))
    gone[first] = 0.0  # one kernel per step is still launched
    least = np.maximum(length - EMPTY_NS * gone, 0.0) / length
    most = pass_share * np.maximum(length - FIXED_NS * gone, 0.0) / length

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
    """(begins, ends) between successive launches of `work` in a step that have no other launch between them."""
    events, links = evidence.events, evidence.priced.links
    rows = np.unique(links.launch[links.launch >= 0])
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    of_work = np.isin(rows, links.launch[work])
    together = np.flatnonzero(of_work[:-1] & of_work[1:])
    begin, end = events.end_ns[rows[together]], events.start_ns[rows[together + 1]]
    edges = np.array(evidence.recorded_steps.begins or [evidence.recorded_steps.start], dtype=np.int64)
    same = np.searchsorted(edges, begin, side="right") == np.searchsorted(edges, end, side="right")
    wanted = same & (end > begin)
    return begin[wanted], end[wanted]


def as_one_turn(evidence: Evidence, host_loop: CostlyLoop) -> Effect:
    """All turns of a loop take the launches of one turn.

    The device's work takes as long as now, at best as long as the floor of one operation on all turns.
    """
    loop, turns = host_loop.loop, max(host_loop.deep, host_loop.turns, 1)
    work = work_of(evidence, loop)
    begin, end = np.array([int(loop.begins[0])]), np.array([loop.stop])
    launch = evidence.priced.links.launch[work]
    called = evidence.events.start_ns[np.maximum(launch, 0)]
    outside = work[(launch >= 0) & ((called < begin[0]) | (called >= end[0]))]  # of the backward pass
    spans = launching_spans(evidence.graph, outside)
    calls = np.flatnonzero(np.isin(evidence.calls.first, work))
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
    """Between the first and the last of a loop's waits in a step, the host keeps `least` to `most` of its time.

    The device's work there takes as long as now, at best as long as its floors: one product for many small ones.
    """
    begin, end = loop_spans(evidence, waits)
    work = np.flatnonzero(inside_spans(evidence.graph.called, begin, end) & (evidence.priced.links.launch >= 0))
    best, host = at_floors(evidence, work), less_host(begin, end, least, most)

    def effect(share: float) -> Change:
        kept = np.full(len(work), 1.0 - share * (1.0 - best))
        return in_turn([lambda graph: shortened(graph, work, kept), host(share)])

    return effect


def at_floors(evidence: Evidence, work: I8) -> float:
    """The floors of some work as a share of its time; work without a known floor counts with its time."""
    duration = evidence.graph.duration[work]
    now = float(duration.sum())
    floor = float(np.fmin(duration, evidence.priced.floor_ns[work]).sum())
    return min(floor / now, 1.0) if now else 1.0


def loop_spans(evidence: Evidence, waits: I8) -> tuple[I8, I8]:
    """(begins, ends): in each recorded step from its first wait to the end of the turn with its last one.

    A turn may wait several times. It lasts from a wait to the next wait of the same operation.
    """
    events, steps = evidence.events, evidence.recorded_steps
    at = np.sort(events.start_ns[waits])
    waits_a_turn = max(round(len(at) / (expert_loop(evidence, waits) or len(at)) / steps.count), 1)
    edges = [*(steps.begins or (steps.start,)), steps.stop]
    begins, ends = [], []
    places = np.searchsorted(at, edges).tolist()
    for last, (place, beyond) in zip(edges[1:], pairwise(places), strict=True):
        inside = at[place:beyond]
        if len(inside) > waits_a_turn:
            turn = int(np.median(inside[waits_a_turn:] - inside[:-waits_a_turn]))
            begins.append(int(inside[0]))
            ends.append(int(min(inside[-waits_a_turn] + turn, last)))
    return np.array(begins, dtype=np.int64), np.array(ends, dtype=np.int64)


def loading_spans(evidence: Evidence) -> tuple[I8, I8]:
    """(begins, ends) of loaders and host operations on the path to the device's input, on the recorded clock."""
    rows = host_rows(evidence)
    gaps = input_gaps(evidence)
    spans = union(np.array([gap.start for gap in gaps]), np.array([gap.stop for gap in gaps]))
    inside = covered(spans, evidence.replayed.start_ns[rows], evidence.replayed.end_ns[rows]) > 0
    return spans_of(evidence, rows[inside])


def not_loading(evidence: Evidence, handed_ns: float) -> Effect:
    """The host no longer prepares input. `handed_ns`: the least time per step to take over a prepared batch.

    Loaders and long operations before the input leave the host's path. Beyond the least effect, so does other
    preparation of input in the idle gaps before it, up to the call that copies it.
    """
    loads = loads_of(evidence)
    needed = loading_ns(evidence)
    handed = min(handed_ns / needed, 1.0) if needed > 0 else 0.0
    begin, end, rest = _before_input(evidence, loads)

    def effect(share: float) -> Change:
        def change(graph: StepGraph) -> StepGraph:
            kept = 1.0 if evidence.device.on_host else handed  # on a CPU, workers share the processors with the step
            graph = hosted(graph, loads.start, loads.stop, float(kept * (1.0 - share)))
            return hosted(graph, begin, end, np.clip(1.0 - min(2 * share, 1.0) * rest, 0.0, 1.0))

        return change

    return effect


def loads_of(evidence: Evidence) -> Spans:
    """When the host loads data or computes the next input of the device, within the recorded steps."""
    steps, (begin, end) = evidence.recorded_steps, loading_spans(evidence)
    every = union(np.concatenate([begin, evidence.loading.start]), np.concatenate([end, evidence.loading.stop]))
    return clip(every, steps.begins[0] if steps.begins else steps.start, steps.stop)


def loading_ns(evidence: Evidence) -> float:
    """The time for that in one step, without the profiler."""
    loads = loads_of(evidence)
    return float(host_of(evidence.graph, loads.start, loads.stop).sum()) / evidence.recorded_steps.count


def _before_input(evidence: Evidence, loads: Spans) -> tuple[I8, I8, F8]:
    """(begins, ends, share that prepares input) of idle gaps before input, without the part that `loads` covers."""
    gaps = input_stretches(evidence)
    begin, end = within(evidence, gaps)
    behind = evidence.budget.gaps.next_work[gaps]
    launch = np.full(len(evidence.events) + 1, -1, dtype=np.int64)
    launch[evidence.priced.links.device] = evidence.priced.links.launch
    called = np.where(launch[behind] >= 0, evidence.events.start_ns[launch[behind]], end)
    end = np.maximum(np.minimum(end, called), begin)
    length = np.maximum(end - begin, 1)
    covers = covered(loads, begin, end) / length
    prepares = np.minimum(evidence.budget.gaps.of(INPUT_CAUSE)[gaps] / length, 1.0)
    share = np.divide(prepares - covers, 1.0 - covers, out=np.zeros(len(gaps)), where=covers < 1.0)
    return begin, end, np.clip(share, 0.0, 1.0)


def prefetched(evidence: Evidence, copies: I8) -> Effect:
    """Copies of input from pinned memory, at the link's speed; beyond the least effect, during the step before.

    The host no longer stages copies from pageable memory.
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
    """Each step does `times` the work: all times that scale with the batch grow by that factor.

    Updates, collectives and the reading of weights (`gobrrr.analysis.savings.batches`) do not grow. At the least, the
    whole step's time grows with the work.
    """
    collectives = np.flatnonzero(evidence.priced.kind == WorkClass.COMMUNICATION)  # gradients are as large as before
    factor = np.full(len(evidence.priced.links.device), times)
    of_calls, call = works_of(evidence, np.arange(len(evidence.calls)))
    factor[of_calls] = factors(evidence, times)[call]
    work = np.setdiff1d(np.arange(len(factor)), np.concatenate([evidence.updates.work, collectives]))
    longer = factor[work]
    loads = loads_of(evidence)

    def effect(share: float) -> Change:
        grows = max(1.0 - 2.0 * share, 0.0)
        host = 1.0 + (times - 1.0) * grows
        return in_turn(
            [
                # loading takes `times` as long, as the batch has that many times the samples
                lambda graph: hosted(graph, loads.start, loads.stop, times / host),
                lambda graph: replace(graph, left=graph.left * host),
                lambda graph: scaled(graph, work, longer + (times - longer) * grows),
            ]
        )

    return effect


def unwaiting(evidence: Evidence) -> Effect:
    """The host no longer waits inside the step."""
    rows = inner_waits(evidence)
    return lambda _: lambda graph: unwaited(graph, rows)


def unread(evidence: Evidence, waits: I8) -> Effect:
    """The host no longer waits in `waits`; at the most, the operations that read a value take no time either."""
    begin, end = spans_of(evidence, reading_ops(evidence, waits))

    def effect(share: float) -> Change:
        return lambda graph: hosted(unwaited(graph, waits), begin, end, 1.0 - share)

    return effect
