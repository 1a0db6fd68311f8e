"""How remedies change a step's graph: effects built from claims, calls and spans of the evidence.

An effect gives the change of the graph at a share of what is possible: 0.0 the least, 0.5 the expected, 1.0 the most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gobrrr.analysis.budget.idle import IDLE_CAUSES
from gobrrr.analysis.findings.claims import ClaimedFinding, TimeClaim
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.replay.graph import F8
from gobrrr.analysis.replay.what_if import (
    Change,
    dropped,
    host_of,
    hosted,
    in_turn,
    launching_spans,
    merged,
    narrowed,
    shortened,
    unchanged,
    unlaunched,
)
from gobrrr.analysis.savings.gains import EXPECTED_SHARE_OF_EFFECT, Effect, TreatmentPlan
from gobrrr.model.events import I8
from gobrrr.model.tree import HOST_KINDS


def works_of(evidence: Evidence, calls: I8) -> tuple[I8, I8]:
    """(the device work of some calls, as indices into `links.device`; for each piece, its call's index in `calls`)."""
    instance = evidence.priced.instance
    key = np.where(instance >= 0, instance, -2 - np.arange(len(instance)))
    wanted = key[evidence.calls.first[calls]]
    order = np.argsort(wanted, kind="stable")
    at = np.minimum(np.searchsorted(wanted[order], key), max(len(order) - 1, 0))
    owned = (wanted[order][at] == key) if len(order) else np.zeros(len(key), dtype=bool)
    work = np.flatnonzero(owned)
    return work, order[at[work]]


def between(low: F8 | float, high: F8 | float, share: float) -> F8:
    """`low` at share 0, `high` at share 1, linear in between."""
    return np.asarray(low + share * (np.asarray(high) - low), dtype=np.float64)


def all_of(*effects: Effect) -> Effect:
    """Several effects as one."""
    return lambda share: in_turn([effect(share) for effect in effects])


def claimed(
    evidence: Evidence, found: ClaimedFinding, least: float = 1.0, most: float = 1.0, *, better: bool = False
) -> Effect:
    """The time that a finding claims of calls, idle gaps and copies is gone, and so are the launches of `found.gone`.

    `least`, `most`: the shares of the claim's low and high end that the remedy saves. `better`: the work stays the same
    and its kernels are better.
    """
    claim = found.claim
    calls, gaps, others = _split(evidence, claim)
    gone = vanishing(evidence, found.gone, most)

    def effect(share: float) -> Change:
        if not least and not share:
            return unchanged  # it may do nothing at all
        ns = between(least * claim.low, most * claim.ns, share)
        return in_turn(
            [
                _of_gaps(evidence, claim.unit[gaps], ns[gaps]),
                _of_calls(evidence, claim.unit[calls], ns[calls], evidence.calls.ns[claim.unit[calls]], better),
                _of_others(evidence, claim.unit[others], ns[others]),
                gone(share),
            ]
        )

    return effect


def of_claim(
    evidence: Evidence,
    found: ClaimedFinding,
    how: str,
    assumes: str,
    *,
    least: float = 1.0,
    most: float = 1.0,
    better: bool = False,
) -> TreatmentPlan:
    """The plan of a remedy that saves the time that its finding claims (`claimed`)."""
    claim, count = found.claim, evidence.steps.count
    effect: Effect | None = claimed(evidence, found, least, most, better=better) if len(claim.unit) else None
    if effect is None and claim.beyond > 0:
        effect = lambda _: unchanged  # noqa: E731, all that it saves lies outside the analysed steps
    return TreatmentPlan(how, assumes, effect, most * claim.beyond / count, least * claim.beyond_low / count)


def sooner(plan: TreatmentPlan) -> TreatmentPlan:
    """The plan with its most as the expected effect: only the low end is uncertain."""
    effect = plan.effect
    if effect is None:
        return plan
    return replace(plan, effect=lambda share: effect(min(2.0 * share, 1.0)))


def at_most(plan: TreatmentPlan) -> TreatmentPlan:
    """The plan with no effect at the least and none expected: its saving depends on something that is not known."""
    effect = plan.effect
    if effect is None:
        return plan
    return replace(plan, effect=lambda share: effect(share) if share > EXPECTED_SHARE_OF_EFFECT else unchanged)


def perhaps(effect: Effect) -> Effect:
    """The effect with none at the least."""
    return lambda share: effect(share) if share else unchanged


def of_calls(evidence: Evidence, calls: I8, low: F8, high: F8, *, better: bool = False) -> Effect:
    """Each of `calls` gets shorter by `low` to `high` ns; `better`: by a better kernel for the same work."""
    length = evidence.calls.ns[calls]
    return lambda share: _of_calls(evidence, calls, between(low, high, share), length, better)


def of_bytes(evidence: Evidence, calls: I8, low: F8, high: F8) -> Effect:
    """Each of `calls` moves fewer bytes, which saves `low` to `high` ns of its time.

    After other remedies it saves the same share of the time that they leave.
    """
    work, at = works_of(evidence, calls)
    length = np.maximum(evidence.calls.ns[calls], 1.0)

    def effect(share: float) -> Change:
        left = np.clip(1.0 - between(low, high, share) / length, 0.0, 1.0)[at]
        return lambda graph: narrowed(graph, work, left)

    return effect


def vanishing(evidence: Evidence, calls: I8, most: float = 1.0) -> Effect:
    """`calls` become part of the kernels before them and are no longer launched; the host may save nothing by it."""
    work = works_of(evidence, calls)[0] if len(calls) else calls
    spans = launching_spans(evidence.graph, work) if len(calls) else (calls, calls)

    def effect(share: float) -> Change:
        kept = 1.0 - most * min(2.0 * share, 1.0)
        if not len(work):
            return unchanged
        return lambda graph: merged(unlaunched(graph, work, kept, spans), work)

    return effect


def without(evidence: Evidence, calls: I8, share_of_host: float = 0.0) -> Effect:
    """`calls` no longer run and are no longer launched; the host keeps `share_of_host` of the time to launch them."""
    work = works_of(evidence, calls)[0]
    spans = launching_spans(evidence.graph, work)
    return lambda _: lambda graph: dropped(unlaunched(graph, work, share_of_host, spans), work)


def recorded(evidence: Evidence) -> Callable[[I8], I8]:
    """A function from times on the replayed clock, which the budget uses, to times on the recorded clock."""
    events, replayed = evidence.events, evidence.replayed
    rows = events.of(*HOST_KINDS)
    at = np.concatenate([events.start_ns[rows], events.end_ns[rows]])
    new = np.concatenate([replayed.start_ns[rows], replayed.end_ns[rows]])
    order = np.lexsort((at, new))
    at, new = np.maximum.accumulate(at[order]), new[order]
    return lambda when: np.rint(np.interp(when, new, at)).astype(np.int64)


def within(evidence: Evidence, gaps: I8) -> tuple[I8, I8]:
    """(begins, ends) of idle gaps on the recorded clock, given by index into the budget's gaps."""
    clock = recorded(evidence)
    return clock(evidence.budget.gaps.start[gaps]), clock(evidence.budget.gaps.stop[gaps])


def _split(evidence: Evidence, claim: TimeClaim) -> tuple[I8, I8, I8]:
    """The claim's positions of calls, of gaps and of other work."""
    first = len(evidence.calls)
    beyond = first + evidence.budget.gaps.ns.size
    unit = claim.unit
    return (
        np.flatnonzero(unit < first),
        np.flatnonzero((unit >= first) & (unit < beyond)),
        np.flatnonzero(unit >= beyond),
    )


def _of_calls(evidence: Evidence, calls: I8, ns: F8, length: F8, better: bool = False) -> Change:
    work, at = works_of(evidence, calls) if len(calls) else (calls, calls)
    share = np.clip(1.0 - ns / np.maximum(length, 1.0), 0.0, 1.0)[at]
    return lambda graph: shortened(graph, work, share, better=better) if len(work) else graph


def _of_gaps(evidence: Evidence, units: I8, ns: F8) -> Change:
    """The host needs `ns` less within each idle gap, in proportion over what it does there."""
    if not len(units):
        return lambda graph: graph
    gap = (units - len(evidence.calls)) // len(IDLE_CAUSES)
    gaps, where = np.unique(gap, return_inverse=True)
    less = np.bincount(where, weights=ns)
    begin, end = within(evidence, gaps)
    needed = host_of(evidence.graph, begin, end)
    share = 1.0 - np.divide(less, needed, out=np.ones_like(less), where=needed > 0)
    return lambda graph: hosted(graph, begin, end, np.clip(share, 0.0, 1.0))


def _of_others(evidence: Evidence, units: I8, ns: F8) -> Change:
    """Copies and collectives get shorter by `ns` each."""
    if not len(units):
        return lambda graph: graph
    work = units - len(evidence.calls) - evidence.budget.gaps.ns.size
    length = evidence.events.duration_ns[evidence.priced.links.device[work]].astype(np.float64)
    share = np.clip(1.0 - ns / np.maximum(length, 1.0), 0.0, 1.0)
    return lambda graph: shortened(graph, work, share)


def spans_of(evidence: Evidence, rows: I8) -> tuple[I8, I8]:
    """(begins, ends) of host events on the recorded clock, given by row, without those inside another of them."""
    events = evidence.events
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    begin, end = events.start_ns[rows], events.end_ns[rows]
    outer = end > np.concatenate([[-1], np.maximum.accumulate(end)[:-1]]) if len(rows) else np.zeros(0, dtype=bool)
    return begin[outer], end[outer]


def less_host(begin: I8, end: I8, least: float, most: float) -> Effect:
    """Within spans, the host keeps a share of its time: `least` at the least effect, `most` at the most."""
    return lambda share: lambda graph: hosted(graph, begin, end, float(least + share * (most - least)))


def step_spans(evidence: Evidence, work: I8) -> tuple[I8, I8]:
    """For each recorded step, the begin of the first launch of `work` in it and the end of its last one.

    Steps without a launch of `work` are left out.
    """
    events, links, steps = evidence.events, evidence.priced.links, evidence.recorded_steps
    launch = links.launch[work]
    launch = launch[launch >= 0]
    launch = launch[np.argsort(events.start_ns[launch], kind="stable")]
    edges = np.searchsorted(events.start_ns[launch], [*(steps.begins or (steps.start,)), steps.stop])
    first = edges[:-1][np.diff(edges) > 0]
    if not len(first):
        return launch[:0], launch[:0]
    # launches after the last step do not count
    return events.start_ns[launch[first]], np.maximum.reduceat(events.end_ns[launch[: edges[-1]]], first)
