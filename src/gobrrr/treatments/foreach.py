"""Update a list of tensors with one operation.

`torch._foreach_lerp_`, `_foreach_mul_`, `_foreach_add_` and their like take lists: a few launches for all tensors of a
type, and one way through Python and the dispatcher. For averages over weights `torch.optim.swa_utils` has
`get_ema_multi_avg_fn`; metrics can be stacked into one tensor and added once.

Replayed: what the finding claims: half of the idle time in front of the updates at the least, all of it at the most.

Names with `_foreach_` are not part of torch's stable interface. Large tensors gain nothing: memory is their bound.
"""

from __future__ import annotations

from gobrrr.analysis.claims import Found
from gobrrr.analysis.effects import of_claim
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan

NAME = "foreach"
NUMERICS = "rounding"
CODE = """
torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 0.001)
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """One launch for all updates of a step."""
    if found.finding.code != "O11":
        return None
    how = "torch._foreach_lerp_(averages, parameters, weight), or swa_utils.get_ema_multi_avg_fn"
    return of_claim(evidence, found, how, "the updates do not depend on each other")
