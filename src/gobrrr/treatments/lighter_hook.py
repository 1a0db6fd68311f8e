"""Take a hook on gradients out of most steps, or let it do less.

What it computes can be computed for all gradients at once behind the backward pass, and every N steps. Clipping has a
function of torch's own. A hook that is no longer needed is removed by the handle that registering it returned.

Replayed: at the most nothing of what the finding claims is left, at the least all of it: how much of it the program
needs is not known.
"""

from __future__ import annotations

from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import Plan
from gobrrr.treatments.framework.wording import place, said

NAME = "lighter-hook"
NUMERICS = "none"
CODE = """
if number % 100 == 0:  # behind loss.backward(), in place of a hook
    norms = torch._foreach_norm([one.grad for one in model.parameters()])
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of the finding's stake."""
    if found.finding.code != "O14":
        return None
    hooks = [place(one.source) for one in found.finding.where] or [""]
    how = "\n".join(
        said("every N steps, for all gradients at once behind backward(), or not at all", at) for at in hooks
    )
    return of_claim(evidence, found, how, "low: the program needs all of it", least=0.0)
