"""Compute what does not change once, and keep the result.

Results of shapes and constants: in `__init__`, as a buffer. Results of weights: after loading. All others: before the
loop. The numbers stay the same, because it is the same result.

Predicted: the operations that the finding names are neither run nor launched.
"""

from __future__ import annotations

from gobrrr.analysis.detect.again import repeated
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.diagnosis import Finding
from gobrrr.model.recording import RepeatedWork
from gobrrr.treatments.framework.advice import advice
from gobrrr.treatments.framework.wording import place, said

NAME = "compute-once"
NUMERICS = "none"
CODE = """
self.register_buffer("mask", mask, persistent=False)  # in __init__, and self.mask in forward
"""
GENERAL = "compute it once before the loop, and keep the result"
"""The remedy where nothing says what the result depends on."""
MOST_CACHING_LINES = 3
"""Lines of advice at most; more would repeat themselves. Chosen, not measured."""

REMEDIES = {
    "numbers": "compute it once in __init__: self.register_buffer(name, value, persistent=False); where its length "
    "varies: for the longest, and take a slice here",
    "weights": "compute it once after loading, and keep the result; a parametrization: "
    "parametrize.remove_parametrizations, or with parametrize.cached() around the steps",
    "tensors": GENERAL,
}
"""The remedy, by what the repeated result is computed from."""


def _remedy(again: RepeatedWork) -> str:
    if again.kind == "turns":
        return f"compute it once in the step, not {again.times} times: keep the result and use it again"
    return REMEDIES.get(again.of, GENERAL)


def _how(evidence: Evidence, _: Finding) -> str:
    lines = [said(_remedy(result.again), place(result.again.source)) for result in repeated(evidence, "steps", "turns")]
    return "\n".join(list(dict.fromkeys(lines))[:MOST_CACHING_LINES]) or said(GENERAL)


predict = advice("R02", _how, "its inputs stay as they were in the two steps that were compared")
