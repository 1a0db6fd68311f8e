"""Which set treat would try first on each workload of the bench of treatments, and how fast that was measured to be.

    python -m bench.first_sets            # the workloads that may be fitted on; no torch, no GPU

The set is what gobrrr.trials.sets picks from predictions that the code makes now of the stored profile; its speed and
the best one are measurements (bench/results/treatments_*.json). A set that was not measured has no figure.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from bench.calibration import PROFILE, RESULTS
from bench.predicted_ways import Told, named
from bench.stored_profile import unpack
from gobrrr.doors import pipeline
from gobrrr.model.machine import Machine
from gobrrr.treatments.framework.way import Way
from gobrrr.trials.candidate import Candidate
from gobrrr.trials.candidates import predictor_of, step_of
from gobrrr.trials.sets import JOINED, best_sets

GOOD = 0.97


def first(profile: Any, ways: Sequence[Told], machine: Machine | None) -> str:
    """The name of the best predicted set, or of the best single way."""
    examined = pipeline.examine(profile, on=machine)
    known = [_way(way) for way in ways]
    predictor, step = predictor_of(examined, known), step_of(examined.diagnosis)
    made = [_candidate(way, predictor.saving(way.as_if, way.work)) for way in known]
    by_name = {way.name: way for way in ways}
    sets = best_sets(made, predictor.saving, step or 0.0)
    if sets:
        return named(sets[0].members, by_name)
    single = [
        candidate
        for candidate in made
        if candidate.expected_ns is not None and candidate.work == 1.0 and not candidate.slow
    ]
    return max(single, key=lambda candidate: candidate.expected_ns or 0.0).way if single else ""


def _way(told: Told) -> Way:
    def apply(*_: Any) -> Any:
        raise NotImplementedError("a way that was told is never applied")

    return Way(name=told.name, treatment=told.treatment, apply=apply, code="", numerics=told.numerics, rank=told.rank,
               as_if=told.as_if, conflicts=frozenset(told.conflicts), compiles=told.compiles, slow=told.slow,
               work=told.work)  # fmt: skip


def _candidate(way: Way, told: tuple[float, float, float] | None) -> Candidate:
    expected, low, high = told if told is not None else (None, None, None)
    return Candidate(way=way.name, treatment=way.treatment, rank=way.rank, as_if=way.as_if, slow=way.slow,
                     conflicts=tuple(way.conflicts), compiles=way.compiles, work=way.work, expected_ns=expected,
                     low_ns=low, high_ns=high)  # fmt: skip


def speeds(record: dict[str, Any]) -> dict[str, float]:
    """How many times as fast each measured way and recipe made a workload's step, for the same work, numbers whole."""
    told = {name: row for name, row in record["rows"].items() if "after_ns" in row and row["work"] == 1.0}
    known = {name: row for name, row in told.items() if row["verdict"] not in ("unsafe", "inconclusive")}
    return {name: row["before_ns"] / row["after_ns"] for name, row in known.items()}


def main() -> int:
    good = told = 0
    for path in sorted(RESULTS.glob("treatments_*.json")):
        results = json.loads(path.read_text(encoding="utf-8"))
        for name, record in results["workloads"].items():
            stored = RESULTS / path.stem / f"{name}{PROFILE}"
            measured = speeds(record) if "rows" in record else {}
            if record["held_back"] or not measured or not stored.is_file():
                continue
            ways = [msgspec.convert(one, Told) for one in record["ways"]]
            machine = msgspec.convert(record["machine"], Machine) if "machine" in record else None
            chosen = first(unpack(stored.read_bytes()), ways, machine)
            best = max(measured, key=measured.__getitem__)
            mine = measured.get(chosen) or next(
                (one for key, one in measured.items() if set(key.split(JOINED)) == set(chosen.split(JOINED))), None
            )
            told += mine is not None
            good += mine is not None and mine >= GOOD * measured[best]
            shown = "not measured" if mine is None else f"{mine:5.2f} x"
            print(f"{name:28} {shown:12} {chosen:62} best {measured[best]:5.2f} x {best}", flush=True)
    print(f"{good} of {told} first sets that were measured reach {GOOD:.0%} of the best that was")
    return 0


if __name__ == "__main__":
    sys.exit(main())
