"""Let torch.compile fuse the pointwise operations and generate their kernels.

A chain of pointwise operations, norms and conversions becomes one kernel: the intermediates stay in registers, and
the host launches less and runs less Python. Matmuls and convolutions are left as they are.

Predicted saving for a chain (M01): the finding's own interval, which is bounded by what the device contributes to
the wall; for conversions (M04) and layout copies (M05) between nothing and all of them, because a compiler fuses
those that stand beside pointwise calls. For batch norms (M03) whose layout is not the cause between nothing and their
part of the stake. For a launch-bound step (O01): between nothing and the launches that its chains would lose, each at
the host's time for one launch. On a step whose device time is hidden behind the host, less traffic gives nothing.

The first calls compile for tens of seconds; varying shapes and branches on data compile again or break the graph.
The result is rounded differently: fused float32 intermediates where eager mode rounds to bfloat16 after each
operation.
"""

from __future__ import annotations

from gobrrr import units
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.norms import batch_norm_share, outside_share
from gobrrr.analysis.path import path_of
from gobrrr.model.diagnosis import Finding, Prescription
from gobrrr.treatments.base import prescription

NAME = "compile"
NUMERICS = "rounding"
CODE = """
model = torch.compile(model)  # or only the block that repeats: block.compile()
"""
HOW = "torch.compile(model)"


def predict(evidence: Evidence, finding: Finding) -> Prescription | None:
    """Bytes for a chain, launches for a launch-bound step."""
    if finding.code == "M01":
        written = "low: intermediates are still written; " if evidence.training else ""
        assumes = f"every chain becomes one kernel; {written}no graph breaks"
        return prescription(NAME, finding, finding.at_stake_ns, HOW, assumes)
    if finding.code == "M03":
        high = finding.at_stake_ns[1] * (batch_norm_share(evidence) - outside_share(evidence))
        if high <= 0:
            return None
        assumes = "the activation behind each batch norm becomes part of it; in inference the convolution takes it in"
        return prescription(NAME, finding, (0.0, high), HOW, assumes)
    if finding.code in ("M04", "M05"):
        assumes = "high: all of them stand beside calls that they can be fused with; no graph breaks"
        return prescription(NAME, finding, (0.0, finding.at_stake_ns[1]), HOW, assumes)
    if finding.code != "O01":
        return None
    path = path_of(evidence)
    gone = launches_fused(evidence)
    high = path.host_saving(0.0, gone * path.host_per_launch)[1]
    of = f"{units.count(gone)} of {units.count(path.launches)} pieces of device work a step"
    assumes = f"{of} vanish by fusion; no graph breaks"
    return prescription(NAME, finding, (0.0, path.at_most(min(high, finding.at_stake_ns[1]))), HOW, assumes)


def launches_fused(evidence: Evidence) -> float:
    """Launches of one step that vanish if each chain is one kernel; a contraction at its head keeps its own."""
    chains = (chain.without_head() for chain in evidence.fusion.chains)
    lost = sum(len(chain.calls) - 1 for chain in chains if chain is not None)
    return lost / evidence.steps.count
