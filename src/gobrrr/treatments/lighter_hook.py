"""Take a gradient hook out of most steps, or let it do less.

What a hook computes can often be computed for all gradients at once after the backward pass, every N steps. torch has
its own function for clipping. The handle that registration returned removes a hook that is no longer needed.

Predicted: from nothing to all that the finding claims, because it is not known how much of the hook's work the program
needs.
"""

from __future__ import annotations

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.treatments.framework.wording import place, said

NAME = "lighter-hook"
NUMERICS = "none"
CODE = """
if number % 100 == 0:  # after loss.backward(), in place of a hook
    norms = torch._foreach_norm([one.grad for one in model.parameters()])
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """From nothing to the finding's stake."""
    if found.finding.code != "O14":
        return None
    hooks = [place(spot.source) for spot in found.finding.where] or [""]
    how = "\n".join(
        said("every N steps, for all gradients at once after backward(), or not at all", at) for at in hooks
    )
    return of_claim(evidence, found, how, "low: the program needs all of it", least=0.0)
