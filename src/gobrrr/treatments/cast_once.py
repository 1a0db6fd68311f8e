"""Keep the weights in the type in which they are used.

For inference, cast the module once and leave autocast out. For training, keep bfloat16 parameters, and float32 master
copies in the optimizer, which writes both: the step then casts no weights. The mixed precision of FSDP and the bfloat16
optimizers of Megatron and DeepSpeed work this way.

Predicted: for weights that are converted in every call (M06), what the finding claims. For conversions in training
(M04), those of weights are neither run nor launched.

Norms and losses that need float32 still convert their inputs.
"""

from __future__ import annotations

from gobrrr import units
from gobrrr.analysis.detect.copies import casts, weight_casts
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import of_claim, without
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.model.diagnosis import Finding
from gobrrr.treatments.framework.wording import changed_model, place, said

NAME = "cast-once"
NUMERICS = "rounding"
CODE = """
model = model.to(torch.bfloat16)  # inference: once, and no autocast around it
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """Removes all conversions of weights."""
    if found.finding.code == "M06":
        return of_claim(evidence, found, _how(evidence, found.finding), "the weights do not change between the calls")
    if found.finding.code != "M04":
        return None
    calls = casts(evidence)
    weights = calls[weight_casts(evidence, calls)]
    how = said(MASTERS) if evidence.training else changed_model(evidence, f"{{}}.to(torch.{_narrow(evidence)})")
    assumes = f"{units.a_step(len(weights) / evidence.steps.count, 'conversion of weights')} vanish"
    return TreatmentPlan(how, assumes, without(evidence, weights) if len(weights) else None)


MASTERS = "parameters in bfloat16, and float32 copies of them in the optimizer alone (FSDP's mixed precision)"


def _how(evidence: Evidence, finding: Finding) -> str:
    """Casts the model to the type in which it is used; where the program converts one weight itself, names that
    weight."""
    first = finding.where[0] if finding.where else None
    if first is not None and first.op == COPY and evidence.profile.uses is not None:
        name = f"{first.module}'s weight" if first.module else "this weight"
        return said(f"keep {name} in the type that it is used in", place(first.source))
    if evidence.training:
        return said("one cast a step: autocast around the whole forward pass, with its cache (cache_enabled=True)")
    return changed_model(evidence, f"{{}}.to(torch.{_narrow(evidence)})", "without autocast")


COPY = "aten::_to_copy"
"""The operation by which a program converts a tensor itself."""


def _narrow(evidence: Evidence) -> str:
    """The type that autocast casts to, as far as a live run has seen it."""
    switches = evidence.profile.switches
    return (switches.autocast if switches is not None else None) or "bfloat16"
