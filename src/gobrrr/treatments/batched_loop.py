"""Put the turns of a loop on the host into one operation.

Turns that do not depend on each other become one batched operation (`bmm`, `torch.func.vmap`, a grouped matmul).
Timesteps that do become a call of the library's recurrent layer, which launches the same kernels without the host's
time between them.

Replayed: the turns' launches are those of one turn, at the least with half of the loop's host time on top; the
device's work there takes as long as now at the least, and what its floors say at the most.

It needs the turns' shapes to be equal, or padding, or the grouped form.
"""

from __future__ import annotations

from gobrrr.analysis.claims import Found
from gobrrr.analysis.effects import all_of, of_claim
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan
from gobrrr.analysis.loops import find_loops
from gobrrr.analysis.regions import as_one_turn
from gobrrr.treatments.wording import said, where

NAME = "batched-loop"
NUMERICS = "rounding"
HOW = "one batched operation for all turns; of a recurrence torch.nn.LSTM, GRU or RNN"
CODE = """
h = torch.nn.LSTM(inputs, hidden)(x)[0]  # all timesteps of a recurrence in one call
y = torch.bmm(x.unflatten(0, (experts, -1)), w)  # as many products of one shape in one
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """One turn's launches for all of a loop's, whose kernels then do the work of all turns."""
    if found.finding.code != "O04":
        return None
    how = said(HOW, where(found.finding))
    assumes = "the turns have one shape, or a grouped form takes theirs"
    if evidence.on_cpu:
        return of_claim(evidence, found, how, assumes)
    return Plan(how, assumes, all_of(*(as_one_turn(evidence, loop) for loop in find_loops(evidence))), once=True)
