"""The saving of one product for all turns of a loop, where the products do not depend on other turns."""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.events.intervals import covered, union
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.loops import StepLoop, nodes_of
from gobrrr.analysis.replay.what_if import Change, hosted, in_turn, shortened
from gobrrr.analysis.savings.gains import Effect
from gobrrr.analysis.savings.regions import at_floors
from gobrrr.model.events import I8, EventKind
from gobrrr.model.tree import outermost


def hoisted(evidence: Evidence, loop: StepLoop) -> Effect:
    """The products of a loop that do not depend on other turns become one.

    At the most, the host's time for them and for their backward pass is that of one turn, and their work takes as long
    as its floors.
    """
    events, turns = evidence.events, max(len(loop.begins), 1)
    inside = (events.start_ns >= loop.begins[0]) & (events.start_ns < loop.stop)
    rows = np.flatnonzero(np.isin(evidence.dispatched, loop.free) & inside)
    outer = _outermost(evidence, rows)
    nodes = _nodes_of(evidence, loop, outer)
    # the Python in front of an operation belongs to it: from the end of the operation before
    ops = np.flatnonzero((events.kind == EventKind.OP) & (evidence.priced.links.op_parent < 0))
    ops = ops[np.argsort(events.start_ns[ops], kind="stable")]
    before = np.searchsorted(events.end_ns[ops], events.start_ns[outer], side="right") - 1
    begin = np.where(before >= 0, events.end_ns[ops[np.maximum(before, 0)]], events.start_ns[outer])
    begin = np.concatenate([np.maximum(begin, int(loop.begins[0])), events.start_ns[nodes]])
    end = np.concatenate([events.end_ns[outer], events.end_ns[nodes]])
    links = evidence.priced.links
    called = events.start_ns[np.maximum(links.launch, 0)]
    work = np.flatnonzero((links.launch >= 0) & (covered(union(begin, end), called, called + 1) > 0))
    best = at_floors(evidence, work)

    def effect(share: float) -> Change:
        kept = np.full(len(work), 1.0 - share * (1.0 - best))
        host = 1.0 - share * (1.0 - 1.0 / turns)
        return in_turn([lambda graph: shortened(graph, work, kept), lambda graph: hosted(graph, begin, end, host)])

    return effect


def _outermost(evidence: Evidence, rows: I8) -> I8:
    """The outermost operations around some rows: those that the program calls."""
    mask = evidence.events.kind == EventKind.OP
    return np.unique(outermost(evidence.priced.links.op_parent, mask)[rows])


def _nodes_of(evidence: Evidence, loop: StepLoop, outer: I8) -> I8:
    """The nodes of the backward pass that differentiate the operations `outer` of a loop."""
    nodes = nodes_of(evidence, loop)
    if not len(nodes) or evidence.host_parents is None:
        return nodes[:0]
    forward = evidence.forward[nodes]
    parent = outermost(evidence.priced.links.op_parent, evidence.events.kind == EventKind.OP)
    return nodes[(forward >= 0) & np.isin(parent[np.maximum(forward, 0)], outer)]
