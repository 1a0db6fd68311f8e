"""A table's columns from their heads."""

from __future__ import annotations

from gobrrr.model.experiment import LabColumn


def columns(*heads: str) -> tuple[LabColumn, ...]:
    """One column a head; a unit stands in brackets at its end: "time [s]"."""
    return tuple(_column(head) for head in heads)


def _column(head: str) -> LabColumn:
    name, bracket, unit = head.rpartition(" [")
    return LabColumn(name=name, unit=unit.rstrip("]")) if bracket and unit.endswith("]") else LabColumn(name=head)
