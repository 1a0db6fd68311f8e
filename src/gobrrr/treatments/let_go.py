"""Release what earlier steps made, or limit how much of it is kept.

A step then takes as long as the first one did. The numbers change only where the program meant to use the graph of
earlier steps: a backward pass through all of them gives another gradient than one through the last.

Predicted: what the finding claims, from its low to its high end. For results that are only held, nothing.
"""

from __future__ import annotations

from gobrrr.analysis.detect.growing import Grown, grown
from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import Plan
from gobrrr.treatments.framework.wording import place, said

NAME = "let-go"
NUMERICS = "statistics"
CODE = """
hidden = hidden.detach()  # between steps; total += loss.detach() or float(loss); no retain_graph=True
"""
CHAINED = (
    "this result carries its graph into the next step: detach() it first, or float(loss) where it is a number; "
    "no retain_graph=True"
)
FILLING = "this result is kept: reduce it to numbers in the step (a sum, a count), or keep only the last ones"
LISTED = "this result is kept with its graph: keep .detach() of it, float(loss) or .item() where it is a number"
COUNTED = (
    "more calls in each step: limit what it goes through (clear the list, keep the last ones, register once), or "
    "detach() what comes from the step before"
)
LARGER = (
    "larger in each step: allocate the largest size once and fill it in place, keep a running sum, a window or a "
    "sample, or clear the list"
)
HOOKED = "register the hook once before the loop, or handle.remove() at the end of the step"
TURNED = "ask for the gradients of this turn's own tensors alone, and detach() what comes from earlier turns"
"""Advice for each kind of growth, from CHAINED to TURNED."""
MOST_TOLD = 3
"""Lines of advice at most. Chosen, not measured."""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """The finding's stake, with one line of advice for each thing that grows."""
    what = grown(evidence) if found.finding.code == "R04" else None
    if what is None:
        return None
    how = "\n".join(list(dict.fromkeys(_told(what)))[:MOST_TOLD])
    return of_claim(evidence, found, how, "the program needs nothing of the earlier steps but their values")


def _told(what: Grown) -> list[str]:
    listed = LISTED if what.nodes is not None else FILLING
    lines = [said(CHAINED if result.chain else listed, place(result.source)) for result in what.results]
    if what.hooks is not None:
        lines += [said(HOOKED, place(source)) for source in what.hooked] or [said(HOOKED)]
    if not lines:
        lines = [said(COUNTED if rising.counted else LARGER, place(rising.source)) for rising in what.rising]
    if what.turns is not None:
        lines.append(said(TURNED, place(what.turns.source)))
    return lines or [said(LISTED)]
