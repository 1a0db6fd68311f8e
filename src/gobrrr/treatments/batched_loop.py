"""Put the turns of a loop on the host into one operation.

Turns that do not depend on each other become one batched operation (`bmm`, `torch.func.vmap`, a grouped matmul).
Timesteps that do become a call of the library's recurrent layer, which launches the same kernels without the host's
time between them.

Predicted saving: the finding's own interval: half of the idle time in the loop at the low end, all of it at the high
end, both as far as the interval of the step's estimated time goes.

It needs the turns' shapes to be equal, or padding, or the grouped form.
"""

from __future__ import annotations

from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.path import path_of
from gobrrr.model.diagnosis import Finding, Prescription
from gobrrr.treatments.base import prescription

NAME = "batched-loop"
NUMERICS = "rounding"
HOW = "one batched operation, or torch.nn.LSTM / GRU, for all turns"
CODE = """
h = torch.nn.LSTM(inputs, hidden)(x)[0]  # all timesteps in one call
y = torch.bmm(x.unflatten(0, (experts, -1)), w)  # all experts in one matmul
"""


def predict(evidence: Evidence, finding: Finding) -> Prescription | None:
    """What the docstring says, of the finding's stake."""
    if finding.code != "O04":
        return None
    low, high = finding.at_stake_ns
    assumes = "the turns have one shape, or a grouped form takes theirs"
    return prescription(NAME, finding, (low, path_of(evidence).at_most(high)), HOW, assumes)
