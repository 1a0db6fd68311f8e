"""Make a product of all turns at once, in front of the loop, where it needs no other turn.

A recurrence that is written by hand multiplies two things in each turn: the state, which the turn before made, and the
input of this timestep, which is there from the beginning. The second product can be one for all timesteps. Take its
parts with `unbind`: with an index in each turn, the backward pass fills a tensor of all timesteps for each of them.

Replayed: nothing at the least. At the most the host needs for these products, those of their backward pass and the
Python in front of them what it needs in one turn, and their work takes what its floors say.
"""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.host_loops import HostLoop
from gobrrr.analysis.savings.effects import all_of
from gobrrr.analysis.savings.gains import Plan
from gobrrr.analysis.savings.hoisting import hoisted
from gobrrr.treatments.framework.wording import place, said

NAME = "hoist-product"
NUMERICS = "rounding"
CODE = """
parts = (x @ w_ih).unbind(0)  # in front of the loop, x: [timesteps, batch, features]
for part in parts:
    state = torch.tanh(part + state @ w_hh)
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """One product for those of all turns."""
    mine = [host_loop for host_loop in evidence.host_loops if host_loop.loop.free and not host_loop.for_reading]
    if found.finding.code != "O04" or not mine:
        return None
    how = said("one product for all turns, taken apart with .unbind(0), in front of the loop", _line(evidence, mine[0]))
    assumes = "the inputs of all turns are there before the loop"
    return Plan(how, assumes, all_of(*(hoisted(evidence, loop.loop) for loop in mine)), once=True)


def _line(evidence: Evidence, loop: HostLoop) -> str:
    """The line of the product."""
    rows = np.flatnonzero(evidence.dispatched == loop.loop.free[0])
    source = evidence.source(int(rows[0])) if len(rows) else None
    return place(source or loop.loop.source)
