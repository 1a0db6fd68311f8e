"""Make float32 of what is float64 where it comes in: an array, the model's parameters, torch's default type.

Everything behind the operation that mixed the types stays in the model's own type. The numbers have the seven digits
that the model has anyway.

Replayed: what the finding claims, from its low to its high end, the float64 calls at float32's floors with the share
of the roof that they reach now. Whether the program lets float32 contractions run as TF32 is not in a trace: where it
is not known they do at the most, where a live run has seen the switch it is as that says.
"""

from __future__ import annotations

from gobrrr.analysis.detect.doubles import COPIES, Origin, origin, tf32_allowed
from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import Plan
from gobrrr.model.program import Wide
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


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of the finding's stake."""
    finding = found.finding
    if finding.code != "C04":
        return None
    assumes = f"nothing behind it needs more than seven digits{_assumed(evidence)}"
    return of_claim(evidence, found, _how(evidence, origin(evidence)), assumes)


def _how(evidence: Evidence, came: Origin) -> str:
    """Each thing that brings float64 in, in float32: the default, then the model, then the tensors.

    A model that is made under another default has float32 from there, where that line is known.
    """
    above = came.way == "default" and came.written is not None
    lines = [_narrowed(evidence, wide) for wide in came.wide if wide.kind != "parameters" or not above]
    if lines:
        return "\n".join(lines)
    if came.way == "parameters":
        model = changed_model(evidence, FLOAT, "without what made it float64")
        return "\n".join([model, *changed_inputs(evidence, FLOAT)])
    at, op = (place(evidence.source(came.row)), evidence.events.name_of(came.row)) if came.row is not None else ("", "")
    if op in COPIES:
        return said("no conversion to float64", at)
    return said(f"{CAST}, where an operand of {op} is made" if op else f"{CAST}, where it comes in", at)


FLOAT = "{}.float()"
CAST = "torch.as_tensor(array, dtype=torch.float32)"


def _narrowed(evidence: Evidence, wide: Wide) -> str:
    at = written_at(wide.written)
    if wide.kind == "default":
        return line("torch.set_default_dtype(torch.float32)", at or "in place of what sets it to float64")
    name = wide.name or model_of(evidence)
    return line(f"{name} = {FLOAT.format(name)}", after(at), _made_by(wide))


def _made_by(wide: Wide) -> str:
    """What makes a model's parameters float64: it can be left out instead."""
    call = wide.written.call if wide.written is not None and wide.kind == "parameters" else None
    return "or leave .double() out there" if call is not None and call.endswith(".double()") else ""


def _assumed(evidence: Evidence) -> str:
    return "; high: the program allows TF32" if tf32_allowed(evidence) is None else ""
