"""The place of a finding: where most of the time that it claims is."""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.budget.idle import IDLE_CAUSES
from gobrrr.analysis.findings.claims import TimeClaim
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.places.listed import ListedPlaces
from gobrrr.analysis.places.where import HOLDING_SHARE, PlaceTimes
from gobrrr.model.diagnosis import Finding
from gobrrr.model.events import F8, I8


def place_of(
    evidence: Evidence, where: PlaceTimes, tree: ListedPlaces, finding: Finding, claim: TimeClaim
) -> int | None:
    """The id of the finding's place: its line, else the deepest place with more than half of the claimed time, else its
    operation; None where it has none of these."""
    sources = {place.source for place in finding.where[:1] if place.source}
    lines = [node for node in tree.nodes if node.kind == "line" and node.source in sources]
    if lines:
        return max(lines, key=lambda line: line.step_ns).id
    weight = _weights(evidence, where, claim)
    if weight.any():
        own = np.bincount(tree.id_of, weights=weight, minlength=len(tree.nodes))
        return _deepest(tree, own.astype(np.float64))
    names = {place.op for place in finding.where[:1] if place.op}
    ops = [node for node in tree.nodes if node.kind == "op" and node.name in names]
    return max(ops, key=lambda node: node.step_ns).id if ops else None


def _deepest(tree: ListedPlaces, own: F8) -> int:
    """The deepest place with more than half of the sum of `own`; a kernel counts to what launches it."""
    total = own.copy()
    for node in reversed(tree.nodes[1:]):
        assert node.parent is not None
        total[node.parent] += total[node.id]
    return max(node.id for node in tree.nodes if node.kind != "kernel" and total[node.id] > HOLDING_SHARE * total[0])


def _weights(evidence: Evidence, where: PlaceTimes, claim: TimeClaim) -> F8:
    """The claimed time at each node of the tree."""
    calls, gaps, links = evidence.calls, evidence.budget.gaps, evidence.priced.links
    result = np.zeros(len(where.tree))
    own = claim.unit < len(calls)
    _put(result, where, calls.op[claim.unit[own]], claim.ns[own])
    gap = claim.unit - len(calls)
    idle = ~own & (gap < gaps.ns.size)
    claimed = np.zeros(gaps.ns.shape)
    claimed.reshape(-1)[gap[idle]] = claim.ns[idle]
    rate = np.divide(claimed, gaps.ns, out=np.zeros_like(claimed), where=gaps.ns > 0)
    if idle.any():
        _put(result, where, where.idle.row, (where.idle.part * rate[where.idle.gap]).sum(axis=1))
    work = gap[~own & ~idle] - len(gaps) * len(IDLE_CAUSES)
    _put(result, where, np.where(links.op[work] >= 0, links.op[work], links.launch[work]), claim.ns[~own & ~idle])
    return result


def _put(result: F8, where: PlaceTimes, row: I8, ns: F8) -> None:
    """Add `ns` to the nodes of host events; where no event is known (-1), to none."""
    known = row >= 0
    np.add.at(result, where.node_of[row[known]], ns[known])
