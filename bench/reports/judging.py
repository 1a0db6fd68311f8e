"""Whether what was said of a report is right. One rule for all of them, made before any was tried."""

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

    `named`: the place in the ranking of the finding that is at the cause's line and says its mechanism, in its title,
    its operations or its remedy; None where none of the first three is. `said`: the same without the line. `held`:
    the place that holds most of the step is at the line ("first"), or one of the others that are told ("told").
    `predicted`: what the remedy of the named finding, or where none is that of the first finding, saves.
    """
    ranks = {rank: _words(one, sick) for rank, one in enumerate(sick["findings"], start=1)}
    says = [rank for rank, words in ranks.items() if re.search(module.NAMES, words, re.IGNORECASE | re.DOTALL)]
    there = [rank for rank in says if sick["findings"][rank - 1]["at_cause"]]
    named = next((rank for rank in there if rank <= FIRST), None)
    remedy = _remedy(sick, named)
    quiet = not any(_named_in(one, healthy, module) for one in healthy["findings"][:FIRST])
    saves = remedy["saves"] if remedy else None
    return {
        "named": named,
        "said": next((rank for rank in says if rank <= FIRST), None),
        "held": "first" if sick["held_at_cause"] else "told" if any(one[3] for one in sick["held_by"]) else None,
        "only_launches": [one["code"] for one in sick["findings"]] == [LAUNCHES],
        "quiet_when_fixed": quiet,
        "remedy": remedy["treatment"] if remedy else None,
        "predicted": saves,
        "covers": saves is not None and saves[0] <= saved <= saves[1],
        "tempted": max((one["saves"][1] for one in _tempting(sick, there)), default=0.0),
        "sick": sick,
        "healthy": {"findings": healthy["findings"], "step_ms": healthy["step_ms"]},
    }


def _words(finding: dict[str, Any], sick: dict[str, Any]) -> str:
    """What a finding says, with the remedies that mend it."""
    remedies = [one["how"] for one in sick["prescriptions"] if finding["code"] in one["mends"]]
    return " ".join([finding["title"], *filter(None, finding["ops"]), *remedies])


def _named_in(finding: dict[str, Any], said: dict[str, Any], module: ModuleType) -> bool:
    return finding["at_cause"] and re.search(module.NAMES, _words(finding, said), re.IGNORECASE | re.DOTALL) is not None


def _remedy(sick: dict[str, Any], named: int | None) -> dict[str, Any] | None:
    """The first remedy of the finding that is named, else the first remedy of all."""
    if named is not None:
        code = sick["findings"][named - 1]["code"]
        return next((one for one in sick["prescriptions"] if code in one["mends"]), None)
    return next(iter(sick["prescriptions"]), None)


def _tempting(sick: dict[str, Any], there: list[int]) -> list[dict[str, Any]]:
    """The remedies of what is said about the line."""
    codes = {sick["findings"][rank - 1]["code"] for rank in there}
    return [one for one in sick["prescriptions"] if codes & set(one["mends"])]
