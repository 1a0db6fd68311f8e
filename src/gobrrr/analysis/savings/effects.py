"""What remedies do to a step's graph, put together from what was found in its evidence.

An effect is a change at a share of what is possible: 0.0 the least, 0.5 what is expected, 1.0 the most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gobrrr.analysis.budget.idle import CAUSES
from gobrrr.analysis.findings.claims import Claim, Found
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
from gobrrr.analysis.savings.gains import EXPECTED, Effect, Plan
from gobrrr.model.events import I8
from gobrrr.model.tree import HOST_KINDS


def works_of(evidence: Evidence, calls: I8) -> tuple[I8, I8]:
    """(the pieces of device work of some calls, as indices into `links.device`; each one's position in `calls`)."""
    instance = evidence.priced.instance
    key = np.where(instance >= 0, instance, -2 - np.arange(len(instance)))
    wanted = key[evidence.calls.first[calls]]
    order = np.argsort(wanted, kind="stable")
    at = np.minimum(np.searchsorted(wanted[order], key), max(len(order) - 1, 0))
    found = (wanted[order][at] == key) if len(order) else np.zeros(len(key), dtype=bool)
    work = np.flatnonzero(found)
    return work, order[at[work]]


def between(low: F8 | float, high: F8 | float, share: float) -> F8:
    """`low` at share 0, `high` at 1."""
    return np.asarray(low + share * (np.asarray(high) - low), dtype=np.float64)


def all_of(*effects: Effect) -> Effect:
    """Several effects as one."""
    return lambda share: in_turn([effect(share) for effect in effects])


def claimed(evidence: Evidence, found: Found, least: float = 1.0, most: float = 1.0, *, better: bool = False) -> Effect:
    """What a finding claims of calls, idle time and copies is gone; what vanishes as a launch is launched no more.

    `least`, `most`: shares of the claim's low and high end that this remedy reaches; `better`: it does as much work
    with better kernels.
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
    found: Found,
    how: str,
    assumes: str,
    *,
    least: float = 1.0,
    most: float = 1.0,
    better: bool = False,
) -> Plan:
    """The plan of a remedy that takes away what its finding claims (`claimed`)."""
    claim, count = found.claim, evidence.steps.count
    effect: Effect | None = claimed(evidence, found, least, most, better=better) if len(claim.unit) else None
    if effect is None and claim.beyond > 0:
        effect = _nothing  # all that it saves lies outside of the analysed steps
    return Plan(how, assumes, effect, most * claim.beyond / count, least * claim.beyond_low / count)


def sooner(plan: Plan) -> Plan:
    """The plan with its most already expected: the low end alone is in doubt."""
    effect = plan.effect
    if effect is None:
        return plan
    return replace(plan, effect=lambda share: effect(min(2.0 * share, 1.0)))


def at_most(plan: Plan) -> Plan:
    """The plan with nothing at the least and nothing expected: what it may save rests on what is not known."""
    effect = plan.effect
    if effect is None:
        return plan
    return replace(plan, effect=lambda share: effect(share) if share > EXPECTED else unchanged)


def perhaps(effect: Effect) -> Effect:
    """An effect that may turn out to be none: nothing at the least."""
    return lambda share: effect(share) if share else unchanged


def _nothing(_: float) -> Change:
    return unchanged


def of_calls(evidence: Evidence, calls: I8, low: F8, high: F8, *, better: bool = False) -> Effect:
    """Each of `calls` gets shorter by `low` to `high` ns; `better`: it does as much work in it."""
    length = evidence.calls.ns[calls]
    return lambda share: _of_calls(evidence, calls, between(low, high, share), length, better)


def of_bytes(evidence: Evidence, calls: I8, low: F8, high: F8) -> Effect:
    """Each of `calls` moves less, which saves `low` to `high` ns of it as it is, and the same share of what other
    remedies leave of it."""
    work, at = works_of(evidence, calls)
    length = np.maximum(evidence.calls.ns[calls], 1.0)

    def effect(share: float) -> Change:
        left = np.clip(1.0 - between(low, high, share) / length, 0.0, 1.0)[at]
        return lambda graph: narrowed(graph, work, left)

    return effect


def vanishing(evidence: Evidence, calls: I8, most: float = 1.0) -> Effect:
    """`calls` are part of the kernels before them and launched no more; at the least that saves the host nothing."""
    work = works_of(evidence, calls)[0] if len(calls) else calls
    spans = launching_spans(evidence.graph, work) if len(calls) else (calls, calls)

    def effect(share: float) -> Change:
        kept = 1.0 - most * min(2.0 * share, 1.0)
        if not len(work):
            return unchanged
        return lambda graph: merged(unlaunched(graph, work, kept, spans), work)

    return effect


def without(evidence: Evidence, calls: I8, share_of_host: float = 0.0) -> Effect:
    """`calls` do not run any more, and are not launched."""
    work = works_of(evidence, calls)[0]
    spans = launching_spans(evidence.graph, work)
    return lambda _: lambda graph: dropped(unlaunched(graph, work, share_of_host, spans), work)


def recorded(evidence: Evidence) -> Callable[[I8], I8]:
    """From times on the replayed clock, on which the budget's gaps lie, to the recorded clock."""
    events, replayed = evidence.events, evidence.replayed
    rows = events.of(*HOST_KINDS)
    at = np.concatenate([events.start_ns[rows], events.end_ns[rows]])
    new = np.concatenate([replayed.start_ns[rows], replayed.end_ns[rows]])
    order = np.lexsort((at, new))
    at, new = np.maximum.accumulate(at[order]), new[order]
    return lambda when: np.rint(np.interp(when, new, at)).astype(np.int64)


def within(evidence: Evidence, gaps: I8) -> tuple[I8, I8]:
    """(begins, ends) on the recorded clock of idle stretches, given by index into the budget's gaps."""
    clock = recorded(evidence)
    return clock(evidence.budget.gaps.start[gaps]), clock(evidence.budget.gaps.stop[gaps])


def _split(evidence: Evidence, claim: Claim) -> tuple[I8, I8, I8]:
    """Positions in the claim of its calls, its gaps, and its other work."""
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
    """The host needs `ns` less within each idle stretch: of what it does there, in proportion."""
    if not len(units):
        return lambda graph: graph
    gap = (units - len(evidence.calls)) // len(CAUSES)
    gaps, where = np.unique(gap, return_inverse=True)
    less = np.bincount(where, weights=ns)
    begin, end = within(evidence, gaps)
    needed = host_of(evidence.graph, begin, end)
    share = 1.0 - np.divide(less, needed, out=np.ones_like(less), where=needed > 0)
    return lambda graph: hosted(graph, begin, end, np.clip(share, 0.0, 1.0))


def _of_others(evidence: Evidence, units: I8, ns: F8) -> Change:
    """Copies and collectives: what they have for themselves gets shorter by `ns` each."""
    if not len(units):
        return lambda graph: graph
    work = units - len(evidence.calls) - evidence.budget.gaps.ns.size
    length = evidence.events.duration_ns[evidence.priced.links.device[work]].astype(np.float64)
    share = np.clip(1.0 - ns / np.maximum(length, 1.0), 0.0, 1.0)
    return lambda graph: shortened(graph, work, share)


def spans_of(evidence: Evidence, rows: I8) -> tuple[I8, I8]:
    """(begins, ends) of host events by row, recorded, without those that lie within another of them."""
    events = evidence.events
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    begin, end = events.start_ns[rows], events.end_ns[rows]
    outer = end > np.concatenate([[-1], np.maximum.accumulate(end)[:-1]]) if len(rows) else np.zeros(0, dtype=bool)
    return begin[outer], end[outer]


def less_host(begin: I8, end: I8, least: float, most: float) -> Effect:
    """The host needs, within spans, a share of its time that goes from `least` (at the least effect) to `most`."""
    return lambda share: lambda graph: hosted(graph, begin, end, float(least + share * (most - least)))


def step_spans(evidence: Evidence, work: I8) -> tuple[I8, I8]:
    """For each recorded step the begin of the first launch of `work` in it and the end of its last; empty steps are
    left out.
    """
    events, links, steps = evidence.events, evidence.priced.links, evidence.recorded_steps
    launch = links.launch[work]
    launch = launch[launch >= 0]
    launch = launch[np.argsort(events.start_ns[launch], kind="stable")]
    edges = np.searchsorted(events.start_ns[launch], [*(steps.begins or (steps.start,)), steps.stop])
    first = edges[:-1][np.diff(edges) > 0]
    if not len(first):
        return launch[:0], launch[:0]
    # the last one ends with the steps, not with the recording
    return events.start_ns[launch[first]], np.maximum.reduceat(events.end_ns[launch[: edges[-1]]], first)
