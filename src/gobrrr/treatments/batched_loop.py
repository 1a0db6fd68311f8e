"""Replace a loop on the host by one batched operation.

Turns that do not need each other's results become one operation: `bmm` or `matmul` on stacked tensors,
`torch.func.vmap` of the loop body, `torch.func.stack_module_state` for a list of modules, or a grouped matmul where the
shapes differ. A sum over the turns is taken of the results. The timesteps of a recurrence can't be batched: see
recurrent-layer.

Predicted: the loop launches what one turn launches; at the low end half of the loop's host time is added. The device's
work in the loop takes as long as now at the low end, and its floors at the high end. The host no longer waits in the
loop for values that decide about single turns. Where it is not known whether the turns need each other's results, as in
a trace, the expected saving is nothing.

The turns need equal shapes, padding, or the grouped form.
"""

from __future__ import annotations

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.host_loops import batchable, share_of, waits_within
from gobrrr.analysis.host.waits import inner_waits
from gobrrr.analysis.savings.effects import all_of, at_most, of_claim
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.analysis.savings.regions import as_one_turn, unread
from gobrrr.treatments.framework.wording import place, said

NAME = "batched-loop"
NUMERICS = "rounding"
HOW = "one operation for all turns: torch.bmm or torch.func.vmap on stacked tensors, torch._foreach_... on lists"
BRANCH = "; torch.where for what an if decides"
"""Added where the host waits in the loop: it reads a value to decide about a turn."""
CODE = """
y = torch.bmm(x.unflatten(0, (heads, -1)), w)  # as many products of one shape in one
y = torch.func.vmap(turn)(xs)  # or any function of one turn, on the stacked inputs of all
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """A loop launches what one turn launches, its kernels do the work of all turns, and the host does not wait in
    it."""
    loops = batchable(evidence)
    waits = waits_within(evidence, inner_waits(evidence), loops)
    if not loops or found.finding.code not in ("O04", "O02") or (found.finding.code == "O02" and not len(waits)):
        return None
    independent = all(loop.loop.apart for loop in loops)
    lines = dict.fromkeys(place(loop.loop.source or evidence.source(loop.loop.row)) for loop in loops)
    how = "\n".join(said(HOW + BRANCH * bool(len(waits)), line) for line in lines)
    assumes = "the turns have one shape, or a grouped form takes theirs"
    if not independent:
        assumes = f"only if the turns do not need each other's results, which is not known; {assumes}"
    if not evidence.device.asynchronous:
        share = share_of([host_loop for host_loop in evidence.host_loops if not host_loop.for_reading], loops)
        plan = of_claim(evidence, found, how, assumes, least=share if independent else 0.0, most=share)
    else:
        turns = [as_one_turn(evidence, loop) for loop in loops]
        plan = TreatmentPlan(how, assumes, all_of(unread(evidence, waits), *turns), once=True)
    return plan if independent else at_most(plan)
