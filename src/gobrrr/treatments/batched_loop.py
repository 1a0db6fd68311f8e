"""Put the turns of a loop on the host into one operation.

Turns that do not need each other's results become one batched operation: `bmm` or `matmul` on stacked tensors,
`torch.func.vmap` of the turn, `torch.func.stack_module_state` for a list of modules, a grouped matmul for shapes that
differ. A sum over the turns is made of the results. Timesteps of a recurrence can't be batched: see recurrent-layer.

Replayed: the turns' launches are those of one turn, at the least with half of the loop's host time on top; the
device's work there takes as long as now at the least, and what its floors say at the most; the host does not wait in
the loop, as what it reads there decides about single turns. Where it is not known
whether the turns need each other, as from a trace, nothing is promised nor expected.

It needs the turns' shapes to be equal, or padding, or the grouped form.
"""

from __future__ import annotations

from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.host_loops import batchable, share_of, waits_within
from gobrrr.analysis.host.waits import inner_waits
from gobrrr.analysis.savings.effects import all_of, at_most, of_claim
from gobrrr.analysis.savings.gains import Plan
from gobrrr.analysis.savings.regions import as_one_turn, unread
from gobrrr.treatments.framework.wording import place, said

NAME = "batched-loop"
NUMERICS = "rounding"
HOW = "one operation for all turns: torch.bmm or torch.func.vmap on stacked tensors, torch._foreach_... on lists"
BRANCH = "; torch.where for what an if decides"
CODE = """
y = torch.bmm(x.unflatten(0, (heads, -1)), w)  # as many products of one shape in one
y = torch.func.vmap(turn)(xs)  # or any function of one turn, on the stacked inputs of all
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """One turn's launches for all of a loop's, whose kernels then do the work of all turns, and no wait in it."""
    mine = batchable(evidence)
    waits = waits_within(evidence, inner_waits(evidence), mine)
    if not mine or found.finding.code not in ("O04", "O02") or (found.finding.code == "O02" and not len(waits)):
        return None
    known = all(loop.loop.apart for loop in mine)
    lines = dict.fromkeys(place(loop.loop.source or evidence.source(loop.loop.row)) for loop in mine)
    how = "\n".join(said(HOW + BRANCH * bool(len(waits)), line) for line in lines)
    assumes = "the turns have one shape, or a grouped form takes theirs"
    if not known:
        assumes = f"only if the turns do not need each other's results, which is not known; {assumes}"
    if not evidence.device.asynchronous:
        share = share_of([host_loop for host_loop in evidence.host_loops if not host_loop.for_reading], mine)
        plan = of_claim(evidence, found, how, assumes, least=share if known else 0.0, most=share)
    else:
        turns = [as_one_turn(evidence, loop) for loop in mine]
        plan = Plan(how, assumes, all_of(unread(evidence, waits), *turns), once=True)
    return plan if known else at_most(plan)
