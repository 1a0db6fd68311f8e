"""Make float32 of an array where it comes in, before the first operation on it.

Everything behind the operation that mixed the types stays in the model's own type. The numbers have the seven digits
that the model has anyway.

Replayed: what the finding claims, from its low to its high end, the float64 calls at float32's floors with the share
of the roof that they reach now. Whether the program lets float32 contractions run as TF32 is not in a trace: where it
is not known they do at the most, where a live run has seen the switch it is as that says.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gobrrr.analysis.claims import Found
from gobrrr.analysis.doubles import double_calls, float32_share
from gobrrr.analysis.effects import all_of, of_calls, of_claim
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Effect, Plan
from gobrrr.analysis.what_if import unchanged

NAME = "cast-at-source"
NUMERICS = "rounding"
CODE = """
scale = torch.as_tensor(array, dtype=torch.float32)  # numpy's arrays are float64
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of the finding's stake."""
    finding = found.finding
    if finding.code != "C04":
        return None
    first = next((one for one in finding.where if one.source), None)
    at = f" in front of {first.op} ({first.source})" if first is not None else ""
    how = f"torch.as_tensor(array, dtype=torch.float32){at}"
    plan = of_claim(evidence, found, how, f"nothing behind it needs more than seven digits{_assumed(evidence)}")
    return plan if plan.effect is None else replace(plan, effect=all_of(plan.effect, _on_matrix_units(evidence)))


def _allowed(evidence: Evidence) -> bool | None:
    """Whether float32 matmuls may run as TF32; None where nothing says so."""
    if evidence.on_cpu:
        return False
    switches = evidence.live.switches if evidence.live is not None else None
    return switches.matmul_tf32 if switches is not None else None


def _assumed(evidence: Evidence) -> str:
    return "; high: the program allows TF32" if _allowed(evidence) is None else ""


def _on_matrix_units(evidence: Evidence) -> Effect:
    """Of the float64 contractions what TF32 takes less than float32."""
    calls, allowed = double_calls(evidence), _allowed(evidence)
    wide = np.array([bool(evidence.group_of(call).work.matrix_flop) for call in calls.tolist()], dtype=bool)
    calls = calls[wide]
    if allowed is False or not len(calls):
        return lambda _: unchanged
    ns = evidence.calls.ns[calls]
    less = ns * (1 - np.nan_to_num(float32_share(evidence, calls, tf32=True), nan=1.0))
    return of_calls(evidence, calls, less if allowed else np.zeros(len(calls)), less)
