"""Load and transform batches in worker processes, ahead of the step.

With N workers the step waits for input only as long as item time * batch / N exceeds the step itself.

Predicted saving: at the low end the idle time in loaders and host operations; at the high end the same with the
freeing and Python between them, but not the copy to the device (see prefetch-pinned). Both ends go as far as the
interval of the step's estimated time. A step never gets shorter than the device's busy time.

For a small dataset in memory it gives nothing or harms: sending a batch between processes costs more than indexing
it. Workers that each open a thread for every core slow each other down: `torch.set_num_threads(1)` in
`worker_init_fn`.
"""

from __future__ import annotations

from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.inputs import input_gaps
from gobrrr.analysis.path import path_of
from gobrrr.model.diagnosis import Finding, Prescription
from gobrrr.treatments.base import prescription

NAME = "dataloader-workers"
NUMERICS = "none"
CODE = """
loader = DataLoader(dataset, batch_size, num_workers=8, prefetch_factor=2, persistent_workers=True, pin_memory=True)
"""


def predict(evidence: Evidence, finding: Finding) -> Prescription | None:
    """The idle time in front of the input, without the copies."""
    if finding.code != "D01":
        return None
    idle = sum(gap.stop - gap.start for gap in input_gaps(evidence)) / evidence.steps.count
    low, high = finding.at_stake_ns
    path = path_of(evidence)
    saving = low, path.at_most(min(high, idle, path.idle))
    how = "DataLoader(..., num_workers=8, persistent_workers=True), with the transforms in the dataset"
    return prescription(NAME, finding, saving, how, "enough cores: item time * batch / workers is below the step")
