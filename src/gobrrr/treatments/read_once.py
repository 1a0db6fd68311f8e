"""Compute the values of a loop in one call, and read them once.

A loop that takes the norm of each parameter's gradient with `.item()`, or a metric of each class, dispatches a few
operations and a read for every turn. `torch._foreach_norm`, or the same operation on the stacked tensors, makes all the
values in one call; `.tolist()` reads them in one. What is computed from them, such as the total norm, can often stay a
tensor: `torch.nn.utils.clip_grad_norm_` reads nothing.

Replayed: of a loop of `n` turns one turn's launches stay, at the least with half of the loop's host time on top, and
the host does not wait in it.

Names with `_foreach_` are not part of torch's stable interface.
"""

from __future__ import annotations

from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.host_loops import waits_within
from gobrrr.analysis.host.waits import inner_waits
from gobrrr.analysis.savings.effects import all_of, of_claim
from gobrrr.analysis.savings.gains import Plan
from gobrrr.analysis.savings.regions import as_one_turn, unread
from gobrrr.treatments.framework.wording import place, said

NAME = "read-once"
NUMERICS = "rounding"
HOW = "make the values in one call (torch._foreach_norm, torch.stack) and read them once (.tolist())"
CODE = """
norms = torch._foreach_norm([p.grad for p in model.parameters()])  # one call for all
values = torch.stack(norms).tolist()  # one read
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """One turn's launches for all of a loop's, and no wait in it."""
    loops = [host_loop for host_loop in evidence.host_loops if host_loop.for_reading]
    if found.finding.code != "O02" or not loops:
        return None
    lines = dict.fromkeys(place(loop.loop.source) for loop in loops)
    how = "\n".join(said(HOW, line) for line in lines)
    assumes = "the same operation makes all the values"
    if not evidence.device.asynchronous:
        return of_claim(evidence, found, how, assumes)
    mine = waits_within(evidence, inner_waits(evidence), loops)
    return Plan(
        how, assumes, all_of(unread(evidence, mine), *(as_one_turn(evidence, loop) for loop in loops)), once=True
    )
