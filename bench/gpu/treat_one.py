"""One workload treated by name, in a process of its own that `bench.gpu.treat` starts and may end.

    python -m bench.gpu.treat_one NAME PART.json --budget-s S --ledger FOLDER

PART.json holds what the page is made from: trials, what was kept and what not tried, times and words; without the
diagnoses, which are large.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

import gobrrr
from bench.gpu import treat_language, treat_parts, treat_vision
from bench.gpu.treat_form import KNOWN
from gobrrr.model.treated import Treated

SOURCES = (treat_language, treat_vision, treat_parts)
"""Imported for their workloads, which stand in KNOWN then."""

TRIAL = ("way", "treatment", "kept", "verdict", "why", "predicted_saving_ns", "expected_ns", "timing", "numerics",
         "memory_before_bytes", "memory_after_bytes", "compile_s", "break_even_steps", "recompiles_stopped", "work",
         "seconds", "step_ns", "replayed_saving_ns", "replayed_expected_ns", "instead_of")  # fmt: skip
TREATED = ("target", "kept", "order", "stopped", "notes", "step_before_ns", "step_after_ns", "faster", "seconds")
DIGITS = 6
"""Significant digits of the numbers that are kept."""


def small(value: Any) -> Any:
    """Without None and empty text, and with numbers of few digits, for the repository keeps it. NaN becomes None."""
    if isinstance(value, dict):
        return {key: small(one) for key, one in value.items() if one is not None and one != ""}
    if isinstance(value, list | tuple):
        return [small(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def slim(found: Treated) -> dict[str, Any]:
    """A Treated without its diagnoses, its code and what all trials share."""
    picked: dict[str, Any] = {key: msgspec.to_builtins(getattr(found, key)) for key in TREATED}
    picked["regime"] = found.before.regime
    picked["regime_after"] = None if found.after is None else found.after.regime
    picked["trials"] = [slim_trial(msgspec.to_builtins(one)) for one in found.trials]
    picked["untried"] = msgspec.to_builtins(found.untried)
    picked["advice"] = [[one.treatment, one.finding, one.where] for one in found.advice]
    picked["n_trials"] = len(found.trials)
    if found.together is not None:
        picked["together"] = slim_trial(msgspec.to_builtins(found.together))
    return small(picked)


def slim_trial(trial: dict[str, Any]) -> dict[str, Any]:
    """A trial, as a dictionary, with what the page shows of it."""
    return small({key: trial.get(key) for key in TRIAL})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(KNOWN))
    parser.add_argument("part", type=Path)
    parser.add_argument("--budget-s", type=float, required=True)
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--stages", action="store_true", help="also say when each stage began")
    given = parser.parse_args()
    begun = time.monotonic()

    def told(stage: str, done: int, total: int) -> None:
        print(f"{time.monotonic() - begun:7.1f} s  {stage} ({done} of {total})", flush=True)

    stages = told if given.stages else None
    found = gobrrr.treat(KNOWN[given.name].target, budget=given.budget_s, ledger=given.ledger, stages=stages)
    given.part.write_text(json.dumps(slim(found)), encoding="utf-8")
    print(found, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
