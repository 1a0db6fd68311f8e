"""Why device time has no least time (floor), in words."""

from __future__ import annotations

from collections import defaultdict

from gobrrr.model.diagnosis import Diagnosis, OpRow
from gobrrr.report.text import sanitise

NO_DEVICE = "no device work is in the trace"
DEVICE_CHARACTERS = 40
"""Characters of a device's name in a sentence; chosen."""


def no_machine(diagnosis: Diagnosis) -> str | None:
    """Why there are no floors at all; None if the machine's ceilings are known."""
    if diagnosis.machine is not None:
        return None
    if not diagnosis.device:
        return "the device is not known (name it: --on)"
    device = sanitise(diagnosis.device, limit=DEVICE_CHARACTERS)
    return f"no ceilings are known for {device} (name a machine: --on)"


def most(diagnosis: Diagnosis) -> str | None:
    """The main reason for time without a floor, as a predicate ("has no recorded shapes"); None if all has a floor."""
    reasons: dict[str, float] = defaultdict(float)
    for row in diagnosis.ops:
        if row.floor_ns is None and row.family != "collective":
            reasons[_reason(row, diagnosis.machine or "the machine")] += row.ns
    return max(reasons, key=lambda reason: reasons[reason]) if reasons else None


def _reason(row: OpRow, machine: str) -> str:
    if row.bytes is not None:
        return f"has an element type for which {sanitise(machine)} has no known peak"
    if row.note.startswith("replayed from a graph"):
        return "is replayed from a graph, without operations"
    if row.note.startswith("no operation"):
        return "belongs to no recorded operation"
    if not row.shapes:
        return "has no recorded shapes"
    return "has no counting rule" if row.note.startswith("no rule") else "can't be counted from what is recorded"
