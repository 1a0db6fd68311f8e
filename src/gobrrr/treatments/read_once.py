"""Compute the values of a loop in one call, and read them once.

A loop that takes the norm of each parameter's gradient with `.item()`, or a metric of each class, dispatches several
operations and a read in every turn. `torch._foreach_norm`, or the same operation on stacked tensors, computes all
values in one call; `.tolist()` reads them in one. What is computed from them, such as the total norm, can often stay a
tensor: `torch.nn.utils.clip_grad_norm_` reads nothing.

Predicted: the launches of one turn are left of a loop's; at the low end half of the loop's host time is added. The host
does not wait in the loop.

Functions named `_foreach_` are not part of torch's stable interface.
"""

from __future__ import annotations

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.host_loops import waits_within
from gobrrr.analysis.host.waits import inner_waits
from gobrrr.analysis.savings.effects import all_of, of_claim
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.analysis.savings.regions import as_one_turn, unread
from gobrrr.treatments.framework.wording import place, said

NAME = "read-once"
NUMERICS = "rounding"
HOW = "make the values in one call (torch._foreach_norm, torch.stack) and read them once (.tolist())"
CODE = """
norms = torch._foreach_norm([p.grad for p in model.parameters()])  # one call for all
values = torch.stack(norms).tolist()  # one read
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """A loop launches what one turn launches, and the host does not wait in it."""
    loops = [host_loop for host_loop in evidence.host_loops if host_loop.for_reading]
    if found.finding.code != "O02" or not loops:
        return None
    lines = dict.fromkeys(place(loop.loop.source) for loop in loops)
    how = "\n".join(said(HOW, line) for line in lines)
    assumes = "the same operation makes all the values"
    if not evidence.device.asynchronous:
        return of_claim(evidence, found, how, assumes)
    waits = waits_within(evidence, inner_waits(evidence), loops)
    return TreatmentPlan(
        how, assumes, all_of(unread(evidence, waits), *(as_one_turn(evidence, loop) for loop in loops)), once=True
    )
