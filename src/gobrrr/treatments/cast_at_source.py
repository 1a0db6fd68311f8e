"""Convert float64 to float32 where it comes in: an array, the model's parameters, torch's default type.

Every operation after the one that mixed the types then stays in the model's own type. The results have the seven digits
that the model has anyway.

Predicted: what the finding claims, from its low to its high end: the float64 calls at float32's floors, with the share
of the roof that they reach now. A trace does not say whether the program lets float32 contractions run as TF32: there
they do so at the high end only. A live run has seen the switch, and the prediction follows it.
"""

from __future__ import annotations

from gobrrr.analysis.detect.doubles import CONVERTING_OPS, Float64Origin, origin, tf32_allowed
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.model.program import Float64Source
from gobrrr.treatments.framework.wording import (
    after,
    changed_inputs,
    changed_model,
    line,
    model_of,
    place,
    said,
    written_at,
)

NAME = "cast-at-source"
NUMERICS = "rounding"
CODE = """
scale = torch.as_tensor(array, dtype=torch.float32)  # numpy's arrays are float64
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """The finding's stake, for tensors that are converted where they come in."""
    finding = found.finding
    if finding.code != "C04":
        return None
    assumes = f"nothing behind it needs more than seven digits{_assumed(evidence)}"
    return of_claim(evidence, found, _how(evidence, origin(evidence)), assumes)


def _how(evidence: Evidence, came: Float64Origin) -> str:
    """One line for each source of float64: the default type, then the model, then tensors.

    Where the line that sets the default is known, the model needs no line of its own.
    """
    above = came.way == "default" and came.written is not None
    lines = [_narrowed(evidence, wide) for wide in came.wide if wide.kind != "parameters" or not above]
    if lines:
        return "\n".join(lines)
    if came.way == "parameters":
        model = changed_model(evidence, CAST_NAMED_CODE, "without what made it float64")
        return "\n".join([model, *changed_inputs(evidence, CAST_NAMED_CODE)])
    at, op = (place(evidence.source(came.row)), evidence.events.name_of(came.row)) if came.row is not None else ("", "")
    if op in CONVERTING_OPS:
        return said("no conversion to float64", at)
    return said(
        f"{CAST_ARRAY_CODE}, where an operand of {op} is made" if op else f"{CAST_ARRAY_CODE}, where it comes in", at
    )


CAST_NAMED_CODE = "{}.float()"
CAST_ARRAY_CODE = "torch.as_tensor(array, dtype=torch.float32)"
"""Code that makes float32 of a named object, and of an array."""


def _narrowed(evidence: Evidence, wide: Float64Source) -> str:
    at = written_at(wide.written)
    if wide.kind == "default":
        return line("torch.set_default_dtype(torch.float32)", at or "in place of what sets it to float64")
    name = wide.name or model_of(evidence)
    return line(f"{name} = {CAST_NAMED_CODE.format(name)}", after(at), _made_by(wide))


def _made_by(wide: Float64Source) -> str:
    """What makes a model's parameters float64: it can be left out instead."""
    call = wide.written.call if wide.written is not None and wide.kind == "parameters" else None
    return "or leave .double() out there" if call is not None and call.endswith(".double()") else ""


def _assumed(evidence: Evidence) -> str:
    return "; high: the program allows TF32" if tf32_allowed(evidence) is None else ""
