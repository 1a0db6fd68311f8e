"""Run matmuls and convolutions in bfloat16 under autocast.

Twice the rate of TF32 and half the bytes; weights, norms, softmax and losses stay float32. For inference cast the
module once: autocast does not cache casts of weights that need no gradient.

Predicted saving: each float32 contraction at the 16-bit peak with the same share of the peak as now, up to that.
The low end allows for the casts that autocast adds: one launch a contraction on the host's path, and a host slower
by half.

For single float32 contractions in a model of 16 bit (C03) it is the finding's own interval: their operands are cast.

It gives nothing in a launch-bound step, where the casts make it slower. float16 needs a gradient scaler; bfloat16
does not.
"""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.path import HOST_SPREAD, path_of
from gobrrr.model.diagnosis import Finding, Prescription
from gobrrr.treatments.base import prescription

NAME = "bf16-autocast"
NUMERICS = "rounding"
CODE = """
with torch.autocast("cuda", torch.bfloat16):
    loss = loss_fn(model(x), y)
loss.backward()
"""


def predict(evidence: Evidence, finding: Finding) -> Prescription | None:
    """The finding's high end, bounded by a host that launches the casts as well."""
    if finding.code == "C03":
        how = "cast the operands of these contractions to the model's type (or keep them inside autocast)"
        return prescription(NAME, finding, finding.at_stake_ns, how, "nothing in front of them needs float32's range")
    if finding.code != "C01":
        return None
    path = path_of(evidence)
    contractions = np.array([group.work.matrix_dtype == "float32" for group in evidence.priced.groups], dtype=bool)
    casts = len(evidence.calls_where(contractions)) / evidence.steps.count
    host = path.host + casts * path.host_per_launch
    high = finding.at_stake_ns[1]
    low = min(finding.at_stake_ns[0], max(path.wall - HOST_SPREAD * host, 0.0))
    kind = "cpu" if evidence.on_cpu else "cuda"
    how = f'with torch.autocast("{kind}", torch.bfloat16): around forward and loss'
    return prescription(
        NAME, finding, (low, high), how, "one cast more for each contraction; bfloat16 is accurate enough"
    )
