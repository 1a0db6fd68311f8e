"""Links from a finding to the rows of the table of operations and to parts of the timeline."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gobrrr.model.diagnosis import Diagnosis, Finding, OpRow, Place

GAP_CAUSES = {
    "O01": ("launching", "python"),
    "O02": ("sync_drain",),
    "O03": ("launching", "python"),
    "O04": ("launching", "python"),
    "O05": ("compile",),
    "O06": ("allocator",),
    "D01": ("input", "host_compute"),
}
"""Code of a condition -> the causes of the gaps that it is about."""
WORK_KINDS = {"N": ("communication",), "D": ("transfer",)}
"""First letter of a condition's code -> the kinds of device work, other than calls, that it is about."""

_SHAPE = re.compile(r"\[\d[\d, ]*\]")
"""The shape of one tensor."""


@dataclass(frozen=True)
class Link:
    """Indices into `Diagnosis.ops`, and causes and kinds of the timeline."""

    ops: tuple[int, ...] = ()
    causes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ops or self.causes or self.kinds)


def link(diagnosis: Diagnosis, finding: Finding) -> Link:
    """What to highlight for a finding, as far as the diagnosis holds it."""
    found = {index for place in finding.where for index in rows_of(place, diagnosis.ops)}
    line = diagnosis.timeline
    causes = {line.causes[index] for index in line.gap_cause} if line else set()
    kinds = {line.kinds[index] for index in line.kind} if line else set()
    return Link(
        ops=tuple(sorted(found)),
        causes=tuple(name for name in GAP_CAUSES.get(finding.code, ()) if name in causes),
        kinds=tuple(name for name in WORK_KINDS.get(finding.code[:1], ()) if name in kinds),
    )


def rows_of(place: Place, ops: list[OpRow]) -> list[int]:
    """The rows of a place: those with its op and shapes, else with its op, else those of its chain of ops."""
    if not place.op:
        return []
    named = [index for index, row in enumerate(ops) if row.op == place.op]
    exact = [index for index in named if ops[index].shapes == place.shapes]
    if exact or named:
        return exact or named
    return _chain(place, ops) if ", " in place.op else []


def _chain(place: Place, ops: list[OpRow]) -> list[int]:
    """Rows whose short name is in a chain "mul, add, sigmoid" and that share a shape with it, where it has one."""
    names = set((place.op or "").split(", "))
    shapes = set(_SHAPE.findall(place.shapes or ""))
    return [
        index
        for index, row in enumerate(ops)
        if _short(row.op) in names and (not shapes or shapes & set(_SHAPE.findall(row.shapes)))
    ]


def _short(op: str) -> str:
    return op.removeprefix("aten::").strip("_")
