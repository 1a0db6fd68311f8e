"""Calls of scaled_dot_product_attention that take its form without a fused kernel, and what their arguments are."""

from __future__ import annotations

import json
from math import prod

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.events import I8

MATH = "aten::_scaled_dot_product_attention_math"


def math_form(evidence: Evidence, calls: I8) -> int | None:
    """The row of the first such attention around one of these calls; None where there is none."""
    events = evidence.events
    if MATH not in events.names:
        return None
    around = (row for call in calls.tolist() for row in evidence.ancestors(int(evidence.calls.op[call])))
    return next((row for row in around if events.name_of(row) == MATH), None)


def heads_a_group(evidence: Evidence, row: int) -> int:
    """How many heads of the queries share one of the keys; 1 where each has its own, or no shapes were recorded."""
    try:
        q, k = json.loads(evidence.events.texts[int(evidence.events.dims[row])])[:2]
    except (ValueError, IndexError, TypeError):
        return 1
    if not all(isinstance(one, list) and len(one) >= 3 for one in (q, k)) or not prod(k[:-2]):
        return 1
    return max(int(prod(q[:-2])) // int(prod(k[:-2])), 1)
