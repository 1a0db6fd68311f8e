"""Keep the step from being compiled again.

Mark varying dimensions as dynamic, pad to a few lengths, pass changing numbers as tensors, and run the step a few times
before measuring. `TORCH_LOGS=recompiles` names the guard that failed.

Predicted: the finding's whole stake at the high end, where every step would compile again. Nothing at the low end,
because a recorded warm-up does not come back, and because a compiled function need not be faster than an eager one. For
shapes that are new to oneDNN in each step, the additional work on padding is not included.
"""

from __future__ import annotations

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.new_shapes import new_shapes
from gobrrr.analysis.host.program import program_of
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.treatments.framework.wording import said, where

NAME = "static-shapes"
NUMERICS = "none"
SHAPES = ("size", "stride", "shape", "rank mismatch")
"""Words that show that a guard is about a tensor's shape."""
CODE = """
torch._dynamo.mark_dynamic(x, 0)  # the dimension that varies
step = torch.compile(step)
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """From nothing to the finding's stake."""
    finding = found.finding
    if finding.code != "O05":
        return None
    if len(new_shapes(evidence)):
        how = said("pad to a few sizes, or sort the inputs by size: code compiled for a size is kept", where(finding))
        assumes = "high: all time of these operations beyond their floors is compilation; padding costs nothing"
        return of_claim(evidence, found, how, assumes, least=0.0)
    assumes = "high: every step would compile as the recorded ones did"
    return of_claim(evidence, found, _how(evidence), assumes, least=0.0)


def _how(evidence: Evidence) -> str:
    """Advice by the guard that failed last, where a live run has seen it."""
    compiled = evidence.profile.compiled
    first = compiled.recompiles[0] if compiled is not None and compiled.recompiles else None
    if first is None or not first.reason or any(word in first.reason for word in SHAPES):
        inputs = program_of(evidence).inputs
        return f"torch._dynamo.mark_dynamic({inputs[0].name if inputs else 'x'}, 0)  # or pad to a few lengths"
    reason = " ".join(first.reason.split())
    return said(f"pass as a tensor what changes from call to call in {first.function}: {reason}")
