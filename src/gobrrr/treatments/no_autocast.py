"""Leave autocast out of a step that it makes slower.

Autocast converts inputs, weights and gradients before products that are faster in 16 bits. On small layers the
conversions take longer than they save: each is an operation of its own, which costs a dispatch however few bytes it
moves. On a machine that is faster in float32 the products get slower as well (C08).

Predicted: no conversion between floating-point types is run or launched, and 16-bit products run in float32. Where
float32 is slower they take as long as now at the high end; at the low end they take longer by the ratio of the two
types' peaks, as far as they are at their floors. Where float32 is faster they save what C08 says.
"""

from __future__ import annotations

from gobrrr import units
from gobrrr.analysis.detect.copies import casts
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.autocasting import autocast_to, longer_in_float32
from gobrrr.analysis.savings.effects import all_of, of_claim, without
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.treatments.framework.wording import said, where

NAME = "no-autocast"
NUMERICS = "rounding"
CODE = """
loss = loss_of(model(x), y)  # without torch.autocast around it
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """No conversions, and products in float32."""
    if found.finding.code not in ("C08", "M04") or autocast_to(evidence) is None:
        return None
    if found.finding.code == "C08":
        how = said("no torch.autocast: float32 is faster on this machine", where(found.finding))
        return of_claim(evidence, found, how, "products reach half of the roof in float32, or more")
    calls = casts(evidence)
    how = said("no torch.autocast around layers this small", where(found.finding))
    assumes = f"{units.a_step(len(calls) / evidence.steps.count, 'conversion')} vanish; low: float32 is slower"
    return TreatmentPlan(how, assumes, all_of(without(evidence, calls), longer_in_float32(evidence)))
