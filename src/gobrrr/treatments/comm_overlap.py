"""Communicate during the backward pass, in buckets, and once per accumulation.

`DistributedDataParallel` reduces a bucket as soon as its gradients are ready. `no_sync()` skips the reduction for all
micro-batches but the last. `fully_shard` on each block fetches the next block's parameters while this one computes.

Predicted: a step's collectives run in eight buckets beside the second half of the work that precedes them; the last
bucket has nothing to overlap with, and the host launches each bucket. Three quarters are expected to be hidden, none at
the low end. The ranks of a folder are replayed together.

Waiting for a slower rank does not disappear. Unused parameters need `find_unused_parameters`, which costs one more pass
over the graph.
"""

from __future__ import annotations

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.analysis.savings.reductions import overlapping
from gobrrr.treatments.framework.wording import changed_model, said

NAME = "comm-overlap"
NUMERICS = "none"
WRAPPED = "DistributedDataParallel"
"""A wrapped model shows by this name in torch's own annotations."""
CODE = """
model = torch.nn.parallel.DistributedDataParallel(model, static_graph=True, gradient_as_bucket_view=True)
for number, batch in enumerate(batches):  # an accumulation
    with contextlib.nullcontext() if number == len(batches) - 1 else model.no_sync():
        loss_fn(model(batch)).backward()
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """The collectives in buckets beside the backward pass."""
    if found.finding.code != "N01":
        return None
    assumes = "enough compute is left to hide it, and the ranks are in step; the last bucket is not hidden"
    return TreatmentPlan(_how(evidence), assumes, overlapping(evidence), once=True)


def _how(evidence: Evidence) -> str:
    """The wrapper, for a model that has none yet."""
    if any(WRAPPED in name for name in evidence.events.names):
        return said(f"smaller buckets in {WRAPPED} (bucket_cap_mb), and no_sync() in an accumulation")
    wrapper = f"torch.nn.parallel.{WRAPPED}({{}}, gradient_as_bucket_view=True)"
    return changed_model(evidence, wrapper, "no_sync() in an accumulation")
