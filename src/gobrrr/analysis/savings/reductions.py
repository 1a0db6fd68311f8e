"""What remedies of communication do to a rank's graph: reduced once and not each time, or beside the backward pass."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import Class
from gobrrr.analysis.replay.graph import StepGraph
from gobrrr.analysis.replay.ranks import collectives
from gobrrr.analysis.replay.what_if import Change, dropped, launching_spans, overlapped, unlaunched
from gobrrr.analysis.savings.gains import Effect
from gobrrr.model.events import I8

BUCKETS = 8
"""Gradients of a model in DistributedDataParallel's buckets of 25 MB, and the last bucket's share that nothing hides: a
model of 50 million parameters in float32 has eight."""

MOSTLY_HIDDEN = 0.75
"""Collectives slow down the computing that they run beside: as expected this share of them is hidden. At the least none
is: one rank's trace can't tell a transfer from waiting for another rank."""


def reduced_once(evidence: Evidence, times: int) -> Effect:
    """Of the collectives of each step only the last of `times` equal parts are left, and launched."""
    gone = np.concatenate([mine[: len(mine) - len(mine) // max(times, 1)] for mine in _by_step(evidence)] or [_NONE])
    spans = launching_spans(evidence.graph, gone)

    def effect(_: float) -> Change:
        return lambda graph: dropped(unlaunched(graph, gone, 0.0, spans), gone)

    return effect


def overlapping(evidence: Evidence) -> Effect:
    """The collectives of a step run beside the second half of what was computed before them, in `BUCKETS` buckets.

    A bucket can go once its gradients are there; the last one has nothing to run beside, and what follows waits for
    all. The host launches one collective a bucket. As expected `MOSTLY_HIDDEN` of them are moved, at the least none.
    """
    compute = np.flatnonzero(evidence.priced.kind == Class.COMPUTE)
    compute = compute[np.argsort(evidence.graph.called[compute], kind="stable")]
    plan = [_placed(evidence, compute, evidence.graph.called[compute], mine) for mine in _by_step(evidence)]
    every = np.concatenate([one[0] for one in plan] or [_NONE])
    spans = launching_spans(evidence.graph, every)
    kept = min(BUCKETS * len(plan) / max(len(every), 1), 1.0)

    def effect(share: float) -> Change:
        hidden = min(2 * share * MOSTLY_HIDDEN, MOSTLY_HIDDEN + (2 * share - 1) * (1 - MOSTLY_HIDDEN))

        def change(graph: StepGraph) -> StepGraph:
            graph = unlaunched(graph, every, 1.0 - hidden * (1.0 - kept), spans)
            each = [_moved(one, graph, hidden) for one in plan]
            return overlapped(graph, *(np.concatenate(parts) for parts in zip(*each, strict=True))) if each else graph

        return change

    return effect


_NONE = np.empty(0, dtype=np.int64)

Placed = tuple[I8, I8, I8, I8]
"""(collectives, the work that each has to wait for, the same where it is not hidden, the work that waits for each)"""


def _moved(placed: Placed, graph: StepGraph, hidden: float) -> tuple[I8, I8, I8]:
    """(collectives of one step, what each waits for, what waits for it) with a share of them hidden."""
    work, ready, latest, until = (each[~graph.gone[placed[0]]] for each in placed)
    moved = round(len(work) * hidden)
    return (work, np.concatenate([ready[:moved], latest[moved:]]), until) if moved else (_NONE, _NONE, _NONE)


def _by_step(evidence: Evidence) -> list[I8]:
    """The collectives of each recorded step, in the order in which they were launched."""
    graph, steps = evidence.graph, evidence.recorded_steps
    every = collectives(graph, evidence.priced)
    edges = [*(steps.begins or (steps.start,)), steps.stop]
    places = np.searchsorted(graph.called[every], edges)
    return [every[first:last] for first, last in pairwise(places.tolist())]


def _placed(evidence: Evidence, compute: I8, computed: I8, work: I8) -> Placed:
    """Where the collectives of one step go. `compute`: all computing, in the order in which it was `computed` (called).

    Of those that follow one another (a micro-batch's) all but the last bucket's share is ready in equal parts over the
    second half of the computing in front of the first one, behind the collectives before it.
    """
    graph, steps = evidence.graph, evidence.recorded_steps
    if not len(work):
        return work, work, work, work
    called = graph.called[work]
    opened = int(np.searchsorted(steps.begins, called.min(), side="right")) - 1
    opens = int(np.searchsorted(computed, steps.begins[opened] if opened >= 0 else steps.start))
    at = np.searchsorted(computed[opens:], called, side="left")
    compute = compute[opens:]
    rows, events = graph.links.device, evidence.events
    # what began before they were done did not wait for them
    done = events.end_ns[rows[work]].max()
    waited = next((one for one in compute[at.max() :] if events.start_ns[rows[one]] >= done), -1)
    until = np.full(len(work), waited, dtype=np.int64)
    ready, latest = np.full((2, len(work)), -1, dtype=np.int64)
    for first, last in pairwise([0, *np.unique(at[at > 0]).tolist()]):
        mine = np.arange(*np.searchsorted(at, [last, last + 1]))
        reached = np.cumsum(graph.duration[compute[first:last]])
        bucket = np.ceil((np.arange(len(mine)) + 1) * BUCKETS / len(mine)) / BUCKETS
        wanted = reached[-1:] * (0.5 + 0.5 * bucket)
        ready[mine] = compute[first + np.minimum(np.searchsorted(reached, wanted), last - first - 1)]
        latest[mine] = compute[last - 1]
    return work, ready, latest, until
