"""Findings at one place: each names the others."""

from __future__ import annotations

from collections.abc import Collection

from gobrrr.model.diagnosis import Diagnosis, Finding
from gobrrr.report.text import name_of
from gobrrr.report.tree import Places

SAME_PLACE = "same place as"


def neighbours(diagnosis: Diagnosis) -> dict[str, list[Finding]]:
    """By a finding's code: the other findings at its place, the same source line where that is known.

    The program as a whole is no place in this sense.
    """
    tree = Places(diagnosis.places)
    at = {finding.code: place for finding in diagnosis.findings if (place := _place(tree, finding)) is not None}
    return {
        code: [finding for finding in diagnosis.findings if finding.code != code and at.get(finding.code) == place]
        for code, place in at.items()
    }


def _place(tree: Places, finding: Finding) -> int | None:
    """The id of the line that a finding is about, else of its place."""
    if not finding.place or finding.place >= len(tree.nodes):
        return None
    node = tree.nodes[finding.place]
    return (tree.of_line(node) or node).id


def same_place(others: list[Finding], named: Collection[str] | None) -> str:
    """In words, by the codes of those that are `named` on the screen (None: of all); "" where there are none."""
    codes = [name_of(other.code) for other in others if named is None or other.code in named]
    return f"{SAME_PLACE} {', '.join(codes)}" if codes else ""
