"""Calls of scaled_dot_product_attention that run without a fused kernel, and their arguments."""

from __future__ import annotations

import json
from math import prod

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.events import I8

MATH_ATTENTION = "aten::_scaled_dot_product_attention_math"
"""The form of attention without a fused kernel."""


def math_form(evidence: Evidence, calls: I8) -> int | None:
    """The row of the first such attention around any of these calls; None where there is none."""
    events = evidence.events
    if MATH_ATTENTION not in events.names:
        return None
    around = (row for call in calls.tolist() for row in evidence.ancestors(int(evidence.calls.op[call])))
    return next((row for row in around if events.name_of(row) == MATH_ATTENTION), None)


def heads_a_group(evidence: Evidence, row: int) -> int:
    """How many query heads share one key head; 1 where no shapes were recorded."""
    try:
        q, k = json.loads(evidence.events.texts[int(evidence.events.dims[row])])[:2]
    except (ValueError, IndexError, TypeError):
        return 1
    if not all(isinstance(shape, list) and len(shape) >= 3 for shape in (q, k)) or not prod(k[:-2]):
        return 1
    return max(int(prod(q[:-2])) // int(prod(k[:-2])), 1)
