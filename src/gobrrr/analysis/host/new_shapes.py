"""Operations that oneDNN makes code for anew in every step, because each step has other shapes.

It makes the code of a convolution or a product for the shapes that it is called with, and keeps 1,024 of them. Where
the shapes stay, that is done before the steps are timed; where none of the recorded steps has a shape of another one,
each step pays for its own.
"""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.events import I8

MADE = ("mkldnn", "onednn")
"""Of the names of operations that oneDNN computes."""

LEAST_STEPS = 3
"""Two steps may differ by chance: the last batch of an epoch is a smaller one."""


def new_shapes(evidence: Evidence) -> I8:
    """Calls (indices into `evidence.calls`) of oneDNN's operations on shapes that no other recorded step has; none
    unless each step has some, and most of these operations are such calls."""
    nothing = np.empty(0, dtype=np.int64)
    calls, count = evidence.calls, evidence.steps.count
    if not evidence.device.onednn or not evidence.steps.marked or count < LEAST_STEPS:
        return nothing
    made = np.array([any(part in group.call.name for part in MADE) for group in evidence.priced.groups] or [False])
    mine = np.flatnonzero(made[calls.group] & (calls.op >= 0))
    begun = evidence.replayed.start_ns[calls.op[mine]]
    step = np.searchsorted(np.array(evidence.steps.begins), begun, side="right")
    shapes = np.array([_shapes(evidence, call) for call in mine.tolist()], dtype=object)
    steps: dict[object, set[int]] = {}
    for shape, at in zip(shapes.tolist(), step.tolist(), strict=True):
        steps.setdefault(shape, set()).add(at)
    alone = np.array([len(steps[one]) == 1 for one in shapes.tolist()], dtype=bool)
    found: I8 = mine[alone]
    return found if len(np.unique(step[alone])) == count and 2 * len(found) > len(mine) else nothing


def _shapes(evidence: Evidence, call: int) -> str:
    given = evidence.group_of(call).call
    return f"{given.name} {[tensor.shape for tensor in given.tensors]}"
