"""Compute a product for all turns at once, before the loop, where it depends on no other turn.

A hand-written recurrence multiplies two things in each turn: the state from the turn before, and the input of this
timestep, which is known from the beginning. One product can serve all timesteps for the second. Take it apart with
`unbind`: with an index in each turn, the backward pass fills a tensor for all timesteps in every turn.

Predicted: nothing at the low end. At the high end the host needs for these products, their backward pass and the Python
before them what it needs for one turn, and their work takes its floors.
"""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.host_loops import CostlyLoop
from gobrrr.analysis.savings.effects import all_of
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.analysis.savings.hoisting import hoisted
from gobrrr.treatments.framework.wording import place, said

NAME = "hoist-product"
NUMERICS = "rounding"
CODE = """
parts = (x @ w_ih).unbind(0)  # before the loop; x: [timesteps, batch, features]
for part in parts:
    state = torch.tanh(part + state @ w_hh)
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """One product in place of one per turn."""
    loops = [host_loop for host_loop in evidence.host_loops if host_loop.loop.free and not host_loop.for_reading]
    if found.finding.code != "O04" or not loops:
        return None
    how = said("one product for all turns, taken apart with .unbind(0), before the loop", _line(evidence, loops[0]))
    assumes = "the inputs of all turns are there before the loop"
    return TreatmentPlan(how, assumes, all_of(*(hoisted(evidence, loop.loop) for loop in loops)), once=True)


def _line(evidence: Evidence, loop: CostlyLoop) -> str:
    """The line of the product."""
    rows = np.flatnonzero(evidence.dispatched == loop.loop.free[0])
    source = evidence.source(int(rows[0])) if len(rows) else None
    return place(source or loop.loop.source)
