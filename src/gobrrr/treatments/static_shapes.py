"""Keep a step from having code made for it again.

Mark the dimensions that vary as dynamic, pad to a few lengths, hand numbers that change over as tensors, and run the
step a few times before measuring. `TORCH_LOGS=recompiles` names the guard that failed.

Replayed: all of the finding's stake, in steps that would compile again; nothing at the low end, because a warm-up
that was recorded does not come back, and because a compiled function need not be faster than an eager one. Of shapes
that are new to oneDNN in each step: padding computes more, which is not in it.
"""

from __future__ import annotations

from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.new_shapes import new_shapes
from gobrrr.analysis.host.program import program_of
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import Plan
from gobrrr.treatments.framework.wording import said, where

NAME = "static-shapes"
NUMERICS = "none"
SHAPES = ("size", "stride", "shape", "rank mismatch")
"""Words in the guards of a tensor's shape."""
CODE = """
torch._dynamo.mark_dynamic(x, 0)  # the dimension that varies
step = torch.compile(step)
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of the finding's stake."""
    finding = found.finding
    if finding.code != "O05":
        return None
    if len(new_shapes(evidence)):
        how = said(
            "pad to a few sizes, or sort the inputs by size: code that was made for a size is kept", where(finding)
        )
        assumes = "high: all that these operations take beyond their floors makes their code; padding costs nothing"
        return of_claim(evidence, found, how, assumes, least=0.0)
    assumes = "high: every step would compile as the recorded ones did"
    return of_claim(evidence, found, _how(evidence), assumes, least=0.0)


def _how(evidence: Evidence) -> str:
    """By the guard that failed last, where a live run knows it."""
    compiled = evidence.profile.compiled
    first = compiled.recompiles[0] if compiled is not None and compiled.recompiles else None
    if first is None or not first.reason or any(word in first.reason for word in SHAPES):
        inputs = program_of(evidence).inputs
        return f"torch._dynamo.mark_dynamic({inputs[0].name if inputs else 'x'}, 0)  # or pad to a few lengths"
    reason = " ".join(first.reason.split())
    return said(f"hand over as a tensor what changes from call to call in {first.function}: {reason}")
