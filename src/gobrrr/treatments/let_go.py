"""Release what earlier steps made, or limit how much of it is kept.

A step then takes as long as the first one did. The numbers change only where the program meant to use the graph of
earlier steps: a backward pass through all of them gives another gradient than one through the last.

Predicted: what the finding claims, from its low to its high end. For results that are only held, nothing.
"""

from __future__ import annotations

from gobrrr.analysis.detect.growing import RunGrowth, grown
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.treatments.framework.wording import place, said

NAME = "let-go"
NUMERICS = "statistics"
CODE = """
hidden = hidden.detach()  # between steps; total += loss.detach() or float(loss); no retain_graph=True
"""
CHAINED_GRAPH_ADVICE = (
    "this result carries its graph into the next step: detach() it first, or float(loss) where it is a number; "
    "no retain_graph=True"
)
KEPT_RESULT_ADVICE = (
    "this result is kept: reduce it to numbers in the step (a sum, a count), or keep only the last ones"
)
KEPT_GRAPH_ADVICE = (
    "this result is kept with its graph: keep .detach() of it, float(loss) or .item() where it is a number"
)
MORE_CALLS_ADVICE = (
    "more calls in each step: limit what it goes through (clear the list, keep the last ones, register once), or "
    "detach() what comes from the step before"
)
LARGER_CALLS_ADVICE = (
    "larger in each step: allocate the largest size once and fill it in place, keep a running sum, a window or a "
    "sample, or clear the list"
)
HOOK_ADVICE = "register the hook once before the loop, or handle.remove() at the end of the step"
TURN_GRADIENT_ADVICE = (
    "ask for the gradients of this turn's own tensors alone, and detach() what comes from earlier turns"
)
"""Advice for each kind of growth, from CHAINED to TURNED."""
MOST_RELEASE_LINES = 3
"""Lines of advice at most. Chosen, not measured."""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """The finding's stake, with one line of advice for each thing that grows."""
    what = grown(evidence) if found.finding.code == "R04" else None
    if what is None:
        return None
    how = "\n".join(list(dict.fromkeys(_told(what)))[:MOST_RELEASE_LINES])
    return of_claim(evidence, found, how, "the program needs nothing of the earlier steps but their values")


def _told(what: RunGrowth) -> list[str]:
    listed = KEPT_GRAPH_ADVICE if what.nodes is not None else KEPT_RESULT_ADVICE
    lines = [said(CHAINED_GRAPH_ADVICE if result.chain else listed, place(result.source)) for result in what.results]
    if what.hooks is not None:
        lines += [said(HOOK_ADVICE, place(source)) for source in what.hooked] or [said(HOOK_ADVICE)]
    if not lines:
        lines = [
            said(MORE_CALLS_ADVICE if rising.counted else LARGER_CALLS_ADVICE, place(rising.source))
            for rising in what.rising
        ]
    if what.turns is not None:
        lines.append(said(TURN_GRADIENT_ADVICE, place(what.turns.source)))
    return lines or [said(KEPT_GRAPH_ADVICE)]
