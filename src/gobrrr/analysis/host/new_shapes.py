"""Operations for which oneDNN generates code in every step, because each step has new shapes.

oneDNN generates the code of a convolution or a product for its shapes, and caches 1,024 of them. Where the shapes stay,
this happens before the steps are timed; where no two recorded steps share a shape, each step pays for its own code.
"""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.events import I8

ONEDNN_NAMES = ("mkldnn", "onednn")
"""Parts of the names of oneDNN's operations."""

LEAST_STEPS_WITH_SHAPES = 3
"""Steps that must be recorded: two may differ by chance, because the last batch of an epoch is smaller."""


def new_shapes(evidence: Evidence) -> I8:
    """Calls (indices into `evidence.calls`) of oneDNN's operations with shapes that no other recorded step has; none
    unless each step has such calls, and they are most of oneDNN's calls."""
    none = np.empty(0, dtype=np.int64)
    calls, count = evidence.calls, evidence.steps.count
    if not evidence.device.onednn or not evidence.steps.marked or count < LEAST_STEPS_WITH_SHAPES:
        return none
    is_onednn = np.array(
        [any(part in group.call.name for part in ONEDNN_NAMES) for group in evidence.priced.groups] or [False]
    )
    by_onednn = np.flatnonzero(is_onednn[calls.group] & (calls.op >= 0))
    begun = evidence.replayed.start_ns[calls.op[by_onednn]]
    step = np.searchsorted(np.array(evidence.steps.begins), begun, side="right")
    shapes = np.array([_shapes(evidence, call) for call in by_onednn.tolist()], dtype=object)
    steps: dict[object, set[int]] = {}
    for shape, at in zip(shapes.tolist(), step.tolist(), strict=True):
        steps.setdefault(shape, set()).add(at)
    alone = np.array([len(steps[shape]) == 1 for shape in shapes.tolist()], dtype=bool)
    new: I8 = by_onednn[alone]
    return new if len(np.unique(step[alone])) == count and 2 * len(new) > len(by_onednn) else none


def _shapes(evidence: Evidence, call: int) -> str:
    call_ = evidence.group_of(call).call
    return f"{call_.name} {[tensor.shape for tensor in call_.tensors]}"
