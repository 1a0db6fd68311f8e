"""Let the compiler time several forms of each kernel and keep the fastest.

`torch.compile(model, mode="max-autotune")` times library matmuls against generated ones, and generated kernels with
several tile sizes. It turns the product of a matrix and one vector, as in decoding one sequence, into a generated sum,
because only that reaches the memory bandwidth (torch/_inductor/decomposition.py, mm and bmm, under
coordinate_descent_tuning, which this mode sets).

Predicted: such memory-bound products take from their present time down to the roof plus the fixed time of a launch. For
other matmuls nothing is predicted: the library's are usually the fastest, and are among the forms that are timed.

Compiling takes minutes, and again for each new shape. It does not pay where shapes change.
"""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.analysis.replay.what_if import FIXED_NS
from gobrrr.analysis.savings.effects import of_calls
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.treatments.framework.wording import changed_model

NAME = "max-autotune"
NUMERICS = "rounding"
CODE = """
model = torch.compile(model, mode="max-autotune")  # max-autotune-no-cudagraphs where a graph can't be
"""
ASSUMES = "high: products of a matrix and one vector become sums that reach the memory's bandwidth; low: no quicker"
VECTOR_PRODUCTS = {"aten::mm": 0, "aten::bmm": 1}
"""Products that become sums, and how many batch dimensions precede their rows."""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """None: no finding names it."""
    return None


def unasked(evidence: Evidence) -> TreatmentPlan | None:
    """The time of memory-bound matrix-vector products beyond their floor; None without such products."""
    if not evidence.device.bytes_alone or not evidence.priced.groups:
        return None
    chosen = np.array([_is_vector(group) for group in evidence.priced.groups])[evidence.calls.group]
    least = evidence.calls.floor_ns + FIXED_NS * np.maximum(evidence.calls.kernels, 1)
    calls = np.flatnonzero(chosen & (evidence.calls.ns > least))
    if not len(calls):
        return None
    most = evidence.calls.ns[calls] - least[calls]
    how = changed_model(evidence, 'torch.compile({}, mode="max-autotune")')
    return TreatmentPlan(how, ASSUMES, of_calls(evidence, calls, np.zeros_like(most), most, better=True))


def _is_vector(group: CallGroup) -> bool:
    """Whether a call is a memory-bound product of a matrix and one vector, or a batch of them."""
    at, tensors, floor = VECTOR_PRODUCTS.get(group.call.name), group.call.tensors, group.floor
    if at is None or floor is None or floor.bound != "memory" or len(tensors) != 2:
        return False
    first, second = (tensor.shape for tensor in tensors)
    if len(first) != at + 2 or len(second) != at + 2:
        return False
    return (first[at] == 1 or second[at + 1] == 1) and first[at + 1] > 1
