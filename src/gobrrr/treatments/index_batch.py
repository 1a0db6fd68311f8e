"""Index a dataset in memory by batch, not item by item.

A loader asks its dataset for one item after another and stacks them: several operations and some Python for each item,
however small it is. An index of many numbers makes the same batch in one operation. Workers would only do the same work
elsewhere, and hand it over.

Predicted: picking and joining the items of each batch disappears, except for one copy of the batch. At the high end all
of the loading disappears but that copy, because the sampler then also draws the numbers of a batch at once.
"""

from __future__ import annotations

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.items import indexed
from gobrrr.analysis.replay.graph import StepGraph
from gobrrr.analysis.replay.what_if import Change, hosted
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.treatments.framework.wording import said

NAME = "index-batch"
NUMERICS = "none"
CODE = """
for at in torch.randperm(len(x)).split(1024):  # one index makes a batch
    step(x[at], y[at])
"""
HOW = "\n".join(
    [
        said("index by batch: one index makes a whole batch, no loader needed"),
        said("for at in torch.randperm(len(x)).split(batch_size): batch = x[at], y[at]"),
        said("with a loader: __getitems__(self, at) of the dataset returns x[at], y[at]; and collate_fn=lambda b: b"),
    ]
)


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """Less loading time, for a dataset that is indexed item by item."""
    seen = indexed(evidence) if found.finding.code == "D01" else None
    if seen is None:
        return None
    least, most = max(seen.picking - seen.copying, 0.0), 1.0 - seen.copying

    def effect(share: float) -> Change:
        left = 1.0 - (least + share * (most - least))

        def change(graph: StepGraph) -> StepGraph:
            return hosted(graph, seen.turns.start, seen.turns.stop, left)

        return change

    return TreatmentPlan(HOW, "the dataset is in memory, as one tensor or array per column", effect)
