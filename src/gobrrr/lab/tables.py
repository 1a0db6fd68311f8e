"""A table's columns from their heads."""

from __future__ import annotations

from gobrrr.model.experiment import Column


def columns(*heads: str) -> tuple[Column, ...]:
    """One column a head; a unit stands in brackets at its end: "time [s]"."""
    return tuple(_column(head) for head in heads)


def _column(head: str) -> Column:
    name, bracket, unit = head.rpartition(" [")
    return Column(name=name, unit=unit.rstrip("]")) if bracket and unit.endswith("]") else Column(name=head)
