"""Work in float64: which calls do it, where float64 comes from, and how long the calls would take in float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from gobrrr.analysis.findings.claims import F8
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.program import program_of
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.analysis.pricing.roofline import floor
from gobrrr.cost import parse_inputs, price
from gobrrr.model.events import I8, EventKind
from gobrrr.model.machine import Machine
from gobrrr.model.program import Float64Source, SourceStatement
from gobrrr.model.work import OpCall

DOUBLE, LOWER = ("float64", "complex128"), ("float32", "bfloat16", "float16")
_NARROW = {"float64": "float32", "complex128": "complex64"}
LAYER_WEIGHTS = {"aten::linear": 1, "aten::addmm": 2, "aten::convolution": 1, "aten::conv2d": 1, "aten::embedding": 0}
"""Which of a layer's tensors is its weight."""
CONVERTING_OPS = ("aten::copy_", "aten::_to_copy", "aten::to")
"""Operations that convert a tensor to another type."""


def double_calls(evidence: Evidence) -> I8:
    """Calls that read or write float64 tensors of one or more dimensions."""
    return evidence.calls_that(
        lambda group: any(tensor.dtype in DOUBLE and tensor.shape for tensor in group.call.tensors)
    )


def conversions(evidence: Evidence, calls: I8) -> NDArray[np.bool_]:
    """One flag per call: whether it is a copy between float64 and a lower floating type."""
    return np.array([_converts(evidence.group_of(call).call) for call in calls.tolist()], dtype=bool)


def contractions(evidence: Evidence, calls: I8) -> NDArray[np.bool_]:
    """One flag per call: whether matrix units can do it in some type."""
    return np.array([bool(evidence.group_of(call).work.matrix_flop) for call in calls.tolist()], dtype=bool)


def tf32_allowed(evidence: Evidence) -> bool | None:
    """Whether float32 matmuls may run as TF32; None where it is not known."""
    if not evidence.device.tensor_cores:
        return False
    switches = evidence.profile.switches
    return switches.matmul_tf32 if switches is not None else None


def float32_share(evidence: Evidence, calls: I8, *, tf32: bool = False) -> F8:
    """For each call, its floor in float32 over its floor in float64, at most 1; NaN where one is not known.

    `tf32`: contractions run as TF32 on the matrix units.
    """
    groups = evidence.calls.group[calls].tolist()
    share = {at: _share(evidence.priced.groups[at], evidence.machine, tf32) for at in set(groups)}
    return np.array([share[at] for at in groups], dtype=np.float64)


def first_promotion(evidence: Evidence) -> int | None:
    """The row of the first operation of a recorded step that makes float64 out of a lower type; None without one.

    Its arguments include a float64 tensor and one of a lower type (a product with a numpy array), or it copies a lower
    type into float64.
    """
    events, steps = evidence.events, evidence.recorded_steps
    rows = events.of(EventKind.OP)
    begin = steps.begins[0] if steps.begins else steps.start
    rows = rows[(events.start_ns[rows] >= begin) & (events.start_ns[rows] < steps.stop) & (events.types[rows] >= 0)]
    known: dict[tuple[int, int, int], bool] = {}
    for row in rows[np.argsort(events.start_ns[rows], kind="stable")].tolist():
        key = int(events.name[row]), int(events.types[row]), int(events.dims[row])
        if key not in known:
            known[key] = _promotes(evidence, row)
        if known[key]:
            return evidence.outermost(row)
    return None


@dataclass(frozen=True)
class Float64Origin:
    """How float64 comes into a step, and what a live run saw of it.

    "default": torch's default type is float64. "parameters": the model's parameters are float64. "operation": an
    operation in the step (`row`) makes float64 out of a lower type. "tensors": the step's inputs are float64.
    """

    way: Literal["default", "parameters", "operation", "tensors"]
    wide: tuple[Float64Source, ...] = ()
    row: int | None = None

    @property
    def written(self) -> SourceStatement | None:
        """The statement that sets the default type or converts the parameters; None where it was not seen."""
        return next((wide.written for wide in self.wide if wide.kind == self.way), None)


def origin(evidence: Evidence) -> Float64Origin:
    """How float64 comes into the step."""
    wide, row = program_of(evidence).wide, first_promotion(evidence)
    kinds = {cause.kind for cause in wide}
    if "default" in kinds:
        return Float64Origin("default", wide, row)
    if "parameters" in kinds:
        return Float64Origin("parameters", wide, row)
    # a copy to float64 matches its input to something that is float64 already
    converted = row is not None and evidence.events.name_of(row) in CONVERTING_OPS
    if evidence.profile.program is None and (row is None or converted) and _wide_weights(evidence):
        return Float64Origin("parameters", row=row)
    return Float64Origin("tensors" if row is None else "operation", wide, row)


def _wide_weights(evidence: Evidence) -> bool:
    """Whether layers of the step have weights in float64."""
    calls = (group.call for group in evidence.priced.groups)
    return any(
        len(call.tensors) > at and call.tensors[at].dtype in DOUBLE
        for call in calls
        if (at := LAYER_WEIGHTS.get(call.name)) is not None
    )


def _promotes(evidence: Evidence, row: int) -> bool:
    """Whether an operation makes float64 out of a lower type."""
    events = evidence.events
    name = events.name_of(row)
    if not name.startswith("aten::"):
        return False
    dims, types = (events.texts[int(text[row])] if text[row] >= 0 else None for text in (events.dims, events.types))
    tensors = OpCall(name=name, inputs=parse_inputs(dims, types, None, None)).tensors
    if name == "aten::copy_":
        return len(tensors) >= 2 and tensors[0].dtype in DOUBLE and tensors[1].dtype in LOWER
    if name in CONVERTING_OPS or "copy" in name:
        return False  # the aten::copy_ inside it gives the direction
    wide = [tensor for tensor in tensors if tensor.dtype in DOUBLE and tensor.shape]
    if not wide or not any(tensor.dtype in LOWER and tensor.shape for tensor in tensors):
        return False
    # an operation in place does not change the first tensor's type
    return not (name.endswith("_") and tensors[0].dtype in LOWER)


def _converts(call: OpCall) -> bool:
    """Whether a call copies between float64 and a lower floating type."""
    types = {tensor.dtype for tensor in call.tensors[:2]}
    return call.name in CONVERTING_OPS and bool(types & set(DOUBLE)) and bool(types & set(LOWER))


def _share(group: CallGroup, machine: Machine | None, tf32: bool) -> float:
    """The floor of a group's call in float32 over its floor now."""
    now = group.floor
    work = price(group.call.retyped(_NARROW))
    if tf32 and work.matrix_flop and machine is not None and "tf32" in machine.matrix_flop_per_s:
        work = replace(work, matrix_dtype="tf32")
    then = floor(work, machine)
    if now is None or then is None or not now.ns > 0:
        return float("nan")
    return min(then.ns / now.ns, 1.0)
