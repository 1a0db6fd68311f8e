"""Whether what was said of a report is right: one rule for all of them.

After the first run it was made stricter, and that run judged again by it: the names of the files, and the operations of
a chain that is to be fused, had passed for a cause.
"""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

FIRST = 3
"""A cause is named if it is among so many findings."""

LAUNCHES = "O01"
LITTLE = 0.05
"""No more of a step than this may be promised on a negative case."""


def judged(module: ModuleType, sick: dict[str, Any], healthy: dict[str, Any], saved: float) -> dict[str, Any]:
    """The verdict, beside what it rests on.

    `named`: the place in the ranking of the finding that is at the cause's line and says its mechanism, in its title
    or its remedy; None where none of the first three is. Where a call or an operation is the cause, the operation that
    the finding is about says it too. That a step is bound by launches names no cause. `said`: the same without the
    line. `held`: the place that holds most of the step is at the line ("first"), or one of the others that are told
    ("told"), or one of them is the function around the line ("function").
    `predicted`: what the remedy of the named finding, or where none is that of the first finding, saves.
    """
    says = [rank for rank, finding in enumerate(sick["findings"], start=1) if _says(finding, sick, module)]
    there = [rank for rank in says if sick["findings"][rank - 1]["at_cause"]]
    named = next((rank for rank in there if rank <= FIRST), None)
    remedy = _remedy(sick, named)
    quiet = not any(finding["at_cause"] and _says(finding, healthy, module) for finding in healthy["findings"][:FIRST])
    saves = remedy["saves"] if remedy else None
    return {
        "named": named,
        "said": next((rank for rank in says if rank <= FIRST), None),
        "held": _held(sick),
        "only_launches": [finding["code"] for finding in sick["findings"]] == [LAUNCHES],
        "quiet_when_fixed": quiet,
        "remedy": remedy["treatment"] if remedy else None,
        "predicted": saves,
        "covers": saves is not None and saves[0] <= saved <= saves[1],
        "tempted": max((prescription["saves"][1] for prescription in _tempting(sick, there)), default=0.0),
        "sick": sick,
        "healthy": {key: healthy[key] for key in ("findings", "prescriptions", "step_ms")},
    }


def _says(finding: dict[str, Any], said: dict[str, Any], module: ModuleType) -> bool:
    """Whether a finding says what the report blames."""
    if finding["code"] == LAUNCHES:
        return False
    remedies = [
        f"{prescription['treatment']}: {prescription['how']}"
        for prescription in said["prescriptions"]
        if finding["code"] in prescription["mends"]
    ]
    words = [finding["title"], *(FILE.sub("", remedy) for remedy in remedies)]
    if module.MECHANISM in CALLED:
        words += filter(None, finding["ops"])
    return re.search(module.NAMES, " ".join(words), re.IGNORECASE | re.DOTALL) is not None


FILE = re.compile(r"\S+\.py\b")
"""The reports' own files have the cause in their names."""

CALLED = (1, 2)
"""Mechanisms of which the cause is what is called."""


def _held(sick: dict[str, Any]) -> str | None:
    if sick["held_at_cause"]:
        return "first"
    if any(place[3] for place in sick["held_by"]):
        return "told"
    return "function" if any(place[4] for place in sick["held_by"]) else None


def _remedy(sick: dict[str, Any], named: int | None) -> dict[str, Any] | None:
    """The first remedy of the finding that is named, else the first remedy of all."""
    if named is not None:
        code = sick["findings"][named - 1]["code"]
        return next((prescription for prescription in sick["prescriptions"] if code in prescription["mends"]), None)
    return next(iter(sick["prescriptions"]), None)


def _tempting(sick: dict[str, Any], there: list[int]) -> list[dict[str, Any]]:
    """The remedies of what is said about the line."""
    codes = {sick["findings"][rank - 1]["code"] for rank in there}
    return [prescription for prescription in sick["prescriptions"] if codes & set(prescription["mends"])]
