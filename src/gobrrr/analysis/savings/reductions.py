"""How remedies of communication change a rank's graph: gradients reduced once, or beside the backward pass."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import WorkClass
from gobrrr.analysis.replay.graph import StepGraph
from gobrrr.analysis.replay.ranks import collectives
from gobrrr.analysis.replay.what_if import Change, dropped, launching_spans, overlapped, unlaunched
from gobrrr.analysis.savings.gains import Effect
from gobrrr.model.events import I8

BUCKETS = 8
"""The number of buckets of gradients; nothing hides the last one. A model of 50 million parameters in float32 has
eight of DistributedDataParallel's 25 MB."""

MOSTLY_HIDDEN = 0.75
"""The share of the collectives that is expected to be hidden: they slow down the computing that they overlap with. At
the least none is hidden, for one rank's trace can't tell a transfer from waiting for another rank. Chosen."""

_NO_WORK = np.empty(0, dtype=np.int64)
"""Indices of no work."""


def reduced_once(evidence: Evidence, times: int) -> Effect:
    """Of each step's collectives, only the last of `times` equal parts is left."""
    gone = np.concatenate([work[: len(work) - len(work) // max(times, 1)] for work in _by_step(evidence)] or [_NO_WORK])
    spans = launching_spans(evidence.graph, gone)

    def effect(_: float) -> Change:
        return lambda graph: dropped(unlaunched(graph, gone, 0.0, spans), gone)

    return effect


def overlapping(evidence: Evidence) -> Effect:
    """The collectives of a step overlap with the second half of the computing before them, in `BUCKETS` buckets.

    A bucket is sent once its gradients are computed. The last one overlaps with nothing, and the work behind it waits
    for all buckets. The host launches one collective per bucket. `MOSTLY_HIDDEN` of them are expected to overlap; at
    the least none does.
    """
    compute = np.flatnonzero(evidence.priced.kind == WorkClass.COMPUTE)
    compute = compute[np.argsort(evidence.graph.called[compute], kind="stable")]
    plan = [_placed(evidence, compute, evidence.graph.called[compute], work) for work in _by_step(evidence)]
    every = np.concatenate([placed[0] for placed in plan] or [_NO_WORK])
    spans = launching_spans(evidence.graph, every)
    kept = min(BUCKETS * len(plan) / max(len(every), 1), 1.0)

    def effect(share: float) -> Change:
        hidden = min(2 * share * MOSTLY_HIDDEN, MOSTLY_HIDDEN + (2 * share - 1) * (1 - MOSTLY_HIDDEN))

        def change(graph: StepGraph) -> StepGraph:
            graph = unlaunched(graph, every, 1.0 - hidden * (1.0 - kept), spans)
            moves = [_moved(placed, graph, hidden) for placed in plan]
            return overlapped(graph, *map(np.concatenate, zip(*moves, strict=True))) if moves else graph

        return change

    return effect


Placed = tuple[I8, I8, I8, I8]
"""(collectives, the work that each waits for, the same where it is not hidden, the work that waits for each)"""


def _moved(placed: Placed, graph: StepGraph, hidden: float) -> tuple[I8, I8, I8]:
    """(collectives of one step, the work that each waits for, the work that waits for it), a share of them hidden."""
    work, ready, latest, until = (indices[~graph.gone[placed[0]]] for indices in placed)
    moved = round(len(work) * hidden)
    return (work, np.concatenate([ready[:moved], latest[moved:]]), until) if moved else (_NO_WORK, _NO_WORK, _NO_WORK)


def _by_step(evidence: Evidence) -> list[I8]:
    """The collectives of each recorded step, in the order of their launches."""
    graph, steps = evidence.graph, evidence.recorded_steps
    every = collectives(graph, evidence.priced)
    edges = [*(steps.begins or (steps.start,)), steps.stop]
    places = np.searchsorted(graph.called[every], edges)
    return [every[first:last] for first, last in pairwise(places.tolist())]


def _placed(evidence: Evidence, compute: I8, computed: I8, work: I8) -> Placed:
    """Where the collectives `work` of one step go. `compute`: all computing by launch time; `computed`: those times.

    Collectives that follow one another (those of a micro-batch) become ready, bucket by bucket, over the second half of
    the computing between the collectives before them and themselves.
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
    # work that began before they were done did not wait for them
    done = events.end_ns[rows[work]].max()
    waited = next((piece for piece in compute[at.max() :] if events.start_ns[rows[piece]] >= done), -1)
    until = np.full(len(work), waited, dtype=np.int64)
    ready, latest = np.full((2, len(work)), -1, dtype=np.int64)
    for first, last in pairwise([0, *np.unique(at[at > 0]).tolist()]):
        group = np.arange(*np.searchsorted(at, [last, last + 1]))
        reached = np.cumsum(graph.duration[compute[first:last]])
        bucket = np.ceil((np.arange(len(group)) + 1) * BUCKETS / len(group)) / BUCKETS
        wanted = reached[-1:] * (0.5 + 0.5 * bucket)
        ready[group] = compute[first + np.minimum(np.searchsorted(reached, wanted), last - first - 1)]
        latest[group] = compute[last - 1]
    return work, ready, latest, until
