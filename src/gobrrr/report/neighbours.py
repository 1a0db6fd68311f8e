"""Findings at the same place name each other."""

from __future__ import annotations

from collections.abc import Collection

from gobrrr.model.diagnosis import Diagnosis, Finding
from gobrrr.report.text import name_of
from gobrrr.report.tree import PlaceTree

SAME_PLACE = "same place as"
"""Precedes the codes of the other findings."""


def neighbours(diagnosis: Diagnosis) -> dict[str, list[Finding]]:
    """By a finding's code: the other findings at its place, or on its source line if that is known.

    The program as a whole does not count as a place here.
    """
    tree = PlaceTree(diagnosis.places)
    at = {finding.code: place for finding in diagnosis.findings if (place := _place(tree, finding)) is not None}
    return {
        code: [finding for finding in diagnosis.findings if finding.code != code and at.get(finding.code) == place]
        for code, place in at.items()
    }


def _place(tree: PlaceTree, finding: Finding) -> int | None:
    """The id of a finding's source line, else of its place."""
    if not finding.place or finding.place >= len(tree.nodes):
        return None
    node = tree.nodes[finding.place]
    return (tree.of_line(node) or node).id


def same_place(others: list[Finding], named: Collection[str] | None) -> str:
    """The codes of the others, those among `named` (None: all), in words; "" for none."""
    codes = [name_of(other.code) for other in others if named is None or other.code in named]
    return f"{SAME_PLACE} {', '.join(codes)}" if codes else ""
