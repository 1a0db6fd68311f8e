"""Let the compiler time several forms of each kernel and keep the fastest.

`torch.compile(model, mode="max-autotune")` times libraries' matmuls against generated ones, and generated kernels with
several tile sizes. Of a matrix and one vector, as a step of decoding has them for one sequence, it makes a generated
sum, because only that reaches the memory's bandwidth (torch/_inductor/decomposition.py, mm and bmm, under
coordinate_descent_tuning, which this mode sets).

Replayed: such products that memory binds, from as they are to the roof and the fixed time of a launch. Of other
matmuls nothing is predicted: the library's are the fastest as a rule, and are among the forms.

Compiling takes minutes, and again for each new shape. Without shapes that stay it is not worth it.
"""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import Group
from gobrrr.analysis.replay.what_if import FIXED_NS
from gobrrr.analysis.savings.effects import of_calls
from gobrrr.analysis.savings.gains import Plan
from gobrrr.treatments.framework.wording import changed_model

NAME = "max-autotune"
NUMERICS = "rounding"
CODE = """
model = torch.compile(model, mode="max-autotune")  # max-autotune-no-cudagraphs where a graph can't be
"""
ASSUMES = "high: products of a matrix and one vector become sums that reach the memory's bandwidth; low: no quicker"
PRODUCTS = {"aten::mm": 0, "aten::bmm": 1}
"""Those that are turned into sums, with how many dimensions of batches stand before their rows."""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """None: no finding is for it."""
    return None


def unasked(evidence: Evidence) -> Plan | None:
    """What products of a matrix and one vector take beyond their floor; None where there are none that memory binds."""
    if not evidence.device.bytes_alone or not evidence.priced.groups:
        return None
    chosen = np.array([_is_vector(group) for group in evidence.priced.groups])[evidence.calls.group]
    least = evidence.calls.floor_ns + FIXED_NS * np.maximum(evidence.calls.kernels, 1)
    calls = np.flatnonzero(chosen & (evidence.calls.ns > least))
    if not len(calls):
        return None
    most = evidence.calls.ns[calls] - least[calls]
    how = changed_model(evidence, 'torch.compile({}, mode="max-autotune")')
    return Plan(how, ASSUMES, of_calls(evidence, calls, np.zeros_like(most), most, better=True))


def _is_vector(group: Group) -> bool:
    """Whether a call is a product of a matrix and one vector, or a batch of them, bound by memory."""
    at, tensors, floor = PRODUCTS.get(group.call.name), group.call.tensors, group.floor
    if at is None or floor is None or floor.bound != "memory" or len(tensors) != 2:
        return False
    first, second = (tensor.shape for tensor in tensors)
    if len(first) != at + 2 or len(second) != at + 2:
        return False
    return (first[at] == 1 or second[at + 1] == 1) and first[at + 1] > 1
