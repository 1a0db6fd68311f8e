"""Compute what does not change once, and keep the result.

What shapes and constants make: in `__init__`, as a buffer; what weights make: after loading; all else: before the loop.
The numbers are the same: it is the result that was computed each time.

Replayed: the operations that the finding names are not there any more, nor what launching them costs the host.
"""

from __future__ import annotations

from gobrrr.analysis.detect.again import repeated
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.diagnosis import Finding
from gobrrr.model.recording import Again
from gobrrr.treatments.framework.advice import advice
from gobrrr.treatments.framework.wording import place, said

NAME = "compute-once"
NUMERICS = "none"
CODE = """
self.register_buffer("mask", mask, persistent=False)  # in __init__, and self.mask in forward
"""
GENERAL = "compute it once before the loop, and keep the result"
MOST_TOLD = 3

REMEDIES = {
    "numbers": "once, in __init__: self.register_buffer(name, value, persistent=False); of varying length: for the "
    "longest, and a slice of it here",
    "weights": "once after loading, and keep the result; a parametrization: parametrize.remove_parametrizations, or "
    "with parametrize.cached() around the steps",
    "tensors": GENERAL,
}


def _remedy(again: Again) -> str:
    if again.kind == "turns":
        return f"once in the step, not {again.times} times: keep the result and use it again"
    return REMEDIES.get(again.of, GENERAL)


def _how(evidence: Evidence, _: Finding) -> str:
    told = [said(_remedy(one.again), place(one.again.source)) for one in repeated(evidence, "steps", "turns")]
    return "\n".join(list(dict.fromkeys(told))[:MOST_TOLD]) or said(GENERAL)


predict = advice("R02", _how, "what it is computed from stays as it was in the two steps looked at")
