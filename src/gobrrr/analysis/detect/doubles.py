"""Work in float64: which calls do it, where it began, and what the same calls would need in float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.program import program_of
from gobrrr.analysis.pricing.price import Group
from gobrrr.analysis.pricing.roofline import floor
from gobrrr.cost import parse_inputs, price
from gobrrr.model.events import I8, Kind
from gobrrr.model.machine import Machine
from gobrrr.model.program import Wide, Written
from gobrrr.model.work import OpCall

F8 = NDArray[np.float64]
DOUBLE, LOWER = ("float64", "complex128"), ("float32", "bfloat16", "float16")
_NARROW = {"float64": "float32", "complex128": "complex64"}
WEIGHTS = {"aten::linear": 1, "aten::addmm": 2, "aten::convolution": 1, "aten::conv2d": 1, "aten::embedding": 0}
"""Which of a layer's tensors is its weight."""
COPIES = ("aten::copy_", "aten::_to_copy", "aten::to")


def double_calls(evidence: Evidence) -> I8:
    """Calls that read or write float64 tensors of one dimension or more."""
    return evidence.calls_where(np.array([_double(group.call) for group in evidence.priced.groups], dtype=bool))


def conversions(evidence: Evidence, calls: I8) -> NDArray[np.bool_]:
    """One flag a call: whether it is a copy between float64 and a lower floating type."""
    return np.array([_converts(evidence.group_of(call).call) for call in calls.tolist()], dtype=bool)


def contractions(evidence: Evidence, calls: I8) -> NDArray[np.bool_]:
    """One flag a call: whether matrix units can do it in some type."""
    return np.array([bool(evidence.group_of(call).work.matrix_flop) for call in calls.tolist()], dtype=bool)


def tf32_allowed(evidence: Evidence) -> bool | None:
    """Whether float32 matmuls may run as TF32; None where nothing says so."""
    if not evidence.device.tensor_cores:
        return False
    switches = evidence.profile.switches
    return switches.matmul_tf32 if switches is not None else None


def float32_share(evidence: Evidence, calls: I8, *, tf32: bool = False) -> F8:
    """For each call its floor in float32 over its floor in float64, at most 1; NaN where one is not known.

    `tf32`: its contractions on the matrix units, as a program may let them.
    """
    known: dict[int, float] = {}
    result = []
    for call in calls.tolist():
        group = int(evidence.calls.group[call])
        if group not in known:
            known[group] = _share(evidence.priced.groups[group], evidence.machine, tf32)
        result.append(known[group])
    return np.array(result, dtype=np.float64)


def first_promotion(evidence: Evidence) -> int | None:
    """The row of the first operation of a recorded step that makes float64 out of a lower type; None without one.

    It has a float64 tensor and one of a lower type among its arguments (a product with an array of numpy), or copies a
    lower type into float64.
    """
    events, steps = evidence.events, evidence.recorded_steps
    rows = events.of(Kind.OP)
    begin = steps.begins[0] if steps.begins else steps.start
    rows = rows[(events.start_ns[rows] >= begin) & (events.start_ns[rows] < steps.stop) & (events.types[rows] >= 0)]
    known: dict[tuple[int, int, int], bool] = {}
    for row in rows[np.argsort(events.start_ns[rows], kind="stable")].tolist():
        key = int(events.name[row]), int(events.types[row]), int(events.dims[row])
        if key not in known:
            known[key] = _promotes(evidence, row)
        if known[key]:
            return _outermost(evidence, row)
    return None


@dataclass(frozen=True)
class Origin:
    """How float64 comes into a step, and what a live run saw of that.

    "default": torch's default type is float64. "parameters": the model's are. "operation": one in the step makes
    float64 of a lower type (`row`). "tensors": all that the step is given is float64.
    """

    way: Literal["default", "parameters", "operation", "tensors"]
    wide: tuple[Wide, ...] = ()
    row: int | None = None

    @property
    def written(self) -> Written | None:
        """The statement that makes it so, of the program's default type and of a model's parameters."""
        return next((wide.written for wide in self.wide if wide.kind == self.way), None)


def origin(evidence: Evidence) -> Origin:
    """How float64 comes into the step."""
    wide, row = program_of(evidence).wide, first_promotion(evidence)
    kinds = {one.kind for one in wide}
    if "default" in kinds:
        return Origin("default", wide, row)
    if "parameters" in kinds:
        return Origin("parameters", wide, row)
    converted = row is not None and evidence.events.name_of(row) in COPIES  # its result fits what is float64 already
    if evidence.profile.program is None and (row is None or converted) and _wide_weights(evidence):
        return Origin("parameters", row=row)
    return Origin("tensors" if row is None else "operation", wide, row)


def _wide_weights(evidence: Evidence) -> bool:
    """Whether layers of the step have weights in float64."""
    calls = (group.call for group in evidence.priced.groups)
    return any(
        len(call.tensors) > at and call.tensors[at].dtype in DOUBLE
        for call in calls
        if (at := WEIGHTS.get(call.name)) is not None
    )


def _outermost(evidence: Evidence, row: int) -> int:
    """The operation of the user's that holds this one: a copy inside a product is the product's."""
    for outer in evidence.ancestors(row):
        if evidence.events.name_of(outer).startswith("aten::"):
            row = outer
    return row


def _promotes(evidence: Evidence, row: int) -> bool:
    events = evidence.events
    name = events.name_of(row)
    if not name.startswith("aten::"):
        return False
    dims, types = (events.texts[int(one[row])] if one[row] >= 0 else None for one in (events.dims, events.types))
    given = parse_inputs(dims, types, None, None)
    tensors = OpCall(name=name, inputs=given).tensors
    if name == "aten::copy_":
        return len(tensors) >= 2 and tensors[0].dtype in DOUBLE and tensors[1].dtype in LOWER
    if name in COPIES or "copy" in name:
        return False  # the copy within says which way
    wide = [tensor for tensor in tensors if tensor.dtype in DOUBLE and tensor.shape]
    if not wide or not any(tensor.dtype in LOWER and tensor.shape for tensor in tensors):
        return False
    # in place, or into a given result, the first tensor's type stays
    return not (name.endswith("_") and tensors[0].dtype in LOWER)


def _double(call: OpCall) -> bool:
    return any(tensor.dtype in DOUBLE and tensor.shape for tensor in call.tensors)


def _converts(call: OpCall) -> bool:
    given = call.tensors
    if call.name not in COPIES or len(given) < 2:
        return False
    kinds = {given[0].dtype, given[1].dtype}
    return bool(kinds & set(DOUBLE)) and bool(kinds & set(LOWER))


def _share(group: Group, machine: Machine | None, tf32: bool) -> float:
    now = group.floor
    work = price(group.call.retyped(_NARROW))
    if tf32 and work.matrix_flop and machine is not None and "tf32" in machine.matrix_flop_per_s:
        work = replace(work, matrix_dtype="tf32")
    then = floor(work, machine)
    if now is None or then is None or not now.ns > 0:
        return float("nan")
    return min(then.ns / now.ns, 1.0)
