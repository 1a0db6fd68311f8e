"""Keep the weights in the type in which they are used.

In inference cast the module once and leave autocast out. In training keep bfloat16 parameters and float32 master
copies in the optimizer, which writes both: nothing is cast within the step. `MasterWeights` stands for such an
optimizer (FSDP's mixed precision, Megatron's and DeepSpeed's bfloat16 optimizers, torchao).

Replayed: of weights that are converted in every call (M06) what the finding claims; of conversions in training (M04)
those of weights do not run, and are not launched.

Norms and losses that need float32 convert their inputs all the same.
"""

from __future__ import annotations

from gobrrr import units
from gobrrr.analysis.claims import Found
from gobrrr.analysis.copies import casts, weight_casts
from gobrrr.analysis.effects import of_claim, without
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan

NAME = "cast-once"
NUMERICS = "rounding"
CODE = """
model = model.to(torch.bfloat16)  # inference
optimizer = MasterWeights(torch.optim.AdamW, model.parameters())  # training: float32 copies in the optimizer only
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """All conversions of weights."""
    if found.finding.code == "M06":
        how = "model.to(torch.bfloat16) once, without autocast; where a norm needs float32, a float32 weight"
        return of_claim(evidence, found, how, "the weights do not change between the calls")
    if found.finding.code != "M04":
        return None
    calls = casts(evidence)
    weights = calls[weight_casts(evidence, calls)]
    how = "model.to(torch.bfloat16) once; in training, float32 master weights in the optimizer"
    assumes = f"{units.count(len(weights) / evidence.steps.count)} conversions of weights a step vanish"
    return Plan(how, assumes, without(evidence, weights) if len(weights) else None)
