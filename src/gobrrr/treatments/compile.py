"""Let torch.compile fuse the pointwise operations and generate their kernels.

A chain of pointwise operations, norms and conversions becomes one kernel: the intermediates stay in registers, and
the host launches less and runs less Python. Matmuls and convolutions are left as they are.

Replayed: for a chain (M01) what the finding claims, with one launch for all of it; for conversions (M04) and layout
copies (M05) between nothing and all of them, because a compiler fuses those that stand beside pointwise calls. For
batch norms (M03) whose layout is not the cause between nothing and their part of the stake. For a launch-bound step
(O01) chains are one launch each, and the host issues what is left in 0.75 of its time, from as long as now to 0.37 of
it: what the shipped pairs of an eager and a compiled step show (0.37, 0.67, 0.88 and 1.11).

The first calls compile for tens of seconds; varying shapes and branches on data compile again or break the graph.
The result is rounded differently: fused float32 intermediates where eager mode rounds to bfloat16 after each
operation.
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.claims import Found
from gobrrr.analysis.effects import of_claim
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan
from gobrrr.analysis.norms import batch_norm_share, outside_share
from gobrrr.analysis.path import path_of
from gobrrr.analysis.regions import compiled, compiled_share

NAME = "compile"
NUMERICS = "rounding"
CODE = """
model = torch.compile(model)  # or only the block that repeats: block.compile()
"""
HOW = "torch.compile(model)"
MOSTLY = 0.5
"""Of a step that launches more than this share from compiled code there is little left to compile."""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """Bytes for a chain, launches for a launch-bound step."""
    code = found.finding.code
    if code == "M01":
        written = "low: intermediates are still written; " if evidence.training else ""
        return of_claim(evidence, found, HOW, f"every chain becomes one kernel; {written}no graph breaks")
    if code == "M03":
        share = batch_norm_share(evidence) - outside_share(evidence)
        if share <= 0:
            return None
        assumes = "the activation behind each batch norm becomes part of it; in inference the convolution takes it in"
        return of_claim(evidence, found, HOW, assumes, least=0.0, most=share)
    if code in ("M04", "M05"):
        assumes = "high: all of them stand beside calls that they can be fused with; no graph breaks"
        return of_claim(evidence, found, HOW, assumes, least=0.0)
    if code != "O01" or compiled_share(evidence) >= MOSTLY:
        return None
    chains = [chain for one in evidence.fusion.chains if (chain := one.without_head()) is not None]
    gone = np.array([call for chain in chains for call in chain.calls[1:]], dtype=np.int64)
    of = f"{units.count(len(gone) / evidence.steps.count)} of {units.count(path_of(evidence).launches)}"
    assumes = f"{of} pieces of device work a step vanish by fusion; no graph breaks; low: dispatch costs as much as now"
    return Plan(HOW, assumes, compiled(evidence, gone))
