"""Give the device more work for each launch.

The host issues the same launches whatever the batch. Until the device's time reaches the host's, a larger batch
costs no time: the time for today's amount of work falls by the factor of the batch.

Predicted saving: for the work of one of today's steps, between nothing (kernels grow as fast as the batch, or
memory is full) and wall minus busy (the device's time for that work is all that is left). The step itself gets no
shorter.

It changes the optimisation: learning rate, schedule and generalisation. Gradient accumulation with fewer, larger
micro-batches keeps them.
"""

from __future__ import annotations

from gobrrr import units
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.path import path_of
from gobrrr.model.diagnosis import Finding, Prescription
from gobrrr.treatments.base import prescription

NAME = "larger-batch"
NUMERICS = "statistics"
CODE = """
loader = DataLoader(dataset, batch_size=4 * batch_size)  # and scale the learning rate with it
"""


def predict(evidence: Evidence, finding: Finding) -> Prescription | None:
    """At most the idle time, for the work of one of today's steps."""
    if finding.code != "O01":
        return None
    path = path_of(evidence)
    high = min(path.idle, finding.at_stake_ns[1])
    factor = f"{path.wall / path.busy:.1f}" if path.busy else units.UNKNOWN
    how = f"the host's time is enough for about {factor} times the batch"
    return prescription(NAME, finding, (0.0, high), how, "the saving is for today's amount of work; memory allows it")
