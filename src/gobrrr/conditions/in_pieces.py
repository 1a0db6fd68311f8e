"""The cost of functions that do not run as one graph: host time in them, and chains that are not fused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from gobrrr import units
from gobrrr.analysis.budget.idle import LAUNCHING, PYTHON_CAUSE
from gobrrr.analysis.events.intervals import inside_spans
from gobrrr.analysis.findings.claims import F8, ClaimedFinding, TimeClaim, of_calls, of_gaps
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of
from gobrrr.analysis.findings.scopes import FunctionScope, idle_under, scope_of, spans_of
from gobrrr.analysis.savings.compiled import REGIONS
from gobrrr.conditions.m01_unfused_chain import check as chains_found
from gobrrr.model.events import I8, EventKind


@dataclass(frozen=True)
class SplitGraphCost:
    """`saving`: the most that one step gains if each function becomes one graph, in ns; the least is 0.

    `known`: their Python frames were recorded; otherwise the saving is that of the whole step.
    """

    saving: float
    claim: TimeClaim
    known: bool
    facts: list[str]


def pieces_of(evidence: Evidence, lines: Iterable[str]) -> SplitGraphCost:
    """The cost of the functions that contain `lines` ("path/file.py(12): function")."""
    scope, path, count = scope_of(evidence, lines), path_of(evidence), evidence.steps.count
    if not scope.known:
        scope = _around_regions(evidence, scope)
    ns = evidence.budget.gaps.of(LAUNCHING, PYTHON_CAUSE)[scope.gaps] * _outside(evidence, scope.gaps)
    calls, fused = _fusible(evidence, scope.calls)
    host, device = float(ns.sum()) / count, float(fused.sum()) / count
    saving = path.host_saving(0.0, host)[1] + path.device_saving(0.0, device)[1]
    nothing = np.zeros_like(ns)
    claim = of_gaps(evidence, scope.gaps, ns, nothing, causes=(LAUNCHING, PYTHON_CAUSE))
    claim += of_calls(calls, np.zeros_like(fused), fused)
    where = "in these functions" if scope.known else "in the step (no frame of these functions was recorded)"
    outside = ", outside of compiled code" if len(_regions(evidence)) else ""
    facts = [f"launching and Python leave the device idle for {units.duration(host)} a step {where}{outside}"]
    if device > 0:
        facts.append(f"fusing the pointwise chains there shortens the device's work by up to {units.duration(device)}")
    return SplitGraphCost(saving, claim, scope.known, facts)


def _regions(evidence: Evidence) -> I8:
    """Rows of the calls of compiled code within the steps."""
    events, steps = evidence.replayed, evidence.steps
    named = np.array([name.startswith(REGIONS) for name in events.names] or [False], dtype=bool)
    rows = np.flatnonzero(named[events.name] & np.isin(events.kind, (EventKind.OP, EventKind.ANNOTATION)))
    return rows[(events.start_ns[rows] >= steps.start) & (events.start_ns[rows] < steps.stop)]


def _outside(evidence: Evidence, gaps: I8) -> F8:
    """The share of each idle stretch outside of compiled code. A single graph would still need the rest."""
    inside = idle_under(evidence, spans_of(evidence, _regions(evidence)))[gaps]
    length = np.maximum(evidence.budget.gaps.stop[gaps] - evidence.budget.gaps.start[gaps], 1)
    share: F8 = 1.0 - inside / length
    return share


def _around_regions(evidence: Evidence, scope: FunctionScope) -> FunctionScope:
    """The scope without frames: in each step, from the first to the last call of compiled code."""
    events, rows = evidence.replayed, _regions(evidence)
    if not len(rows):
        return scope
    edges = np.array(evidence.steps.begins or [evidence.steps.start], dtype=np.int64)
    step = np.searchsorted(edges, events.start_ns[rows], side="right")
    by_step = [rows[step == number] for number in np.unique(step)]
    begin = np.array([int(events.start_ns[regions].min()) for regions in by_step], dtype=np.int64)
    end = np.array([int(events.end_ns[regions].max()) for regions in by_step], dtype=np.int64)
    gaps = scope.gaps[inside_spans(evidence.budget.gaps.start[scope.gaps], begin, end)]
    launch = evidence.priced.links.launch[evidence.calls.first[scope.calls]]
    called = inside_spans(events.start_ns[np.maximum(launch, 0)], begin, end) & (launch >= 0)
    return replace(scope, gaps=gaps, calls=scope.calls[called])


def _fusible(evidence: Evidence, calls: I8) -> tuple[I8, F8]:
    """(those of `calls` that are in chains of M01, the ns that fusing saves of each)."""
    chains = chains_found(evidence)
    if not isinstance(chains, ClaimedFinding) or chains.hidden:
        return np.empty(0, dtype=np.int64), np.empty(0)
    inside = np.isin(chains.claim.unit, calls)
    return chains.claim.unit[inside], chains.claim.ns[inside]
