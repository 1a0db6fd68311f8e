"""What some functions lose because they do not run as one graph: the host's time in them, chains that are not fused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gobrrr import units
from gobrrr.analysis.claims import F8, Claim, Found, of_calls, of_gaps
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.idle import LAUNCHING, PYTHON
from gobrrr.analysis.path import path_of
from gobrrr.analysis.scopes import scope_of
from gobrrr.conditions.m01_unfused_chain import check as chains_found
from gobrrr.model.events import I8


@dataclass(frozen=True)
class Pieces:
    """`saving`: the most that one step gains if the functions become one graph each, in ns; from 0.

    `known`: their Python frames were recorded; otherwise it is of the whole step.
    """

    saving: float
    claim: Claim
    known: bool
    facts: list[str]


def pieces_of(evidence: Evidence, lines: Iterable[str]) -> Pieces:
    """Of the functions that `lines` ("path/file.py(12): function") lie in."""
    scope, path, count = scope_of(evidence, lines), path_of(evidence), evidence.steps.count
    ns = evidence.budget.gaps.of(LAUNCHING, PYTHON)[scope.gaps].astype(np.float64)
    calls, fused = _fusible(evidence, scope.calls)
    host, device = float(ns.sum()) / count, float(fused.sum()) / count
    saving = path.host_saving(0.0, host)[1] + path.device_saving(0.0, device)[1]
    nothing = np.zeros_like(ns)
    claim = of_gaps(evidence, scope.gaps, ns, nothing, causes=(LAUNCHING, PYTHON))
    claim += of_calls(calls, np.zeros_like(fused), fused)
    where = "in these functions" if scope.known else "in the step, as no frame of these functions was recorded"
    facts = [f"launching and Python leave the device idle for {units.duration(host)} a step {where}"]
    if device > 0:
        facts.append(f"fusing the pointwise chains there shortens the device's work by up to {units.duration(device)}")
    return Pieces(saving, claim, scope.known, facts)


def _fusible(evidence: Evidence, calls: I8) -> tuple[I8, F8]:
    """(calls in chains that M01 finds among `calls`, what fusing saves of each, in ns)."""
    found = chains_found(evidence)
    if not isinstance(found, Found) or found.hidden:
        return np.empty(0, dtype=np.int64), np.empty(0)
    mine = np.isin(found.claim.unit, calls)
    return found.claim.unit[mine], found.claim.ns[mine]
