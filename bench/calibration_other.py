"""Measured savings beside the bench of treatments: pairs of a faulty and a fixed step, and cases that ran on a CPU.

The pairs are those that the predictor was not made with. The cases are those whose finding names its fix; what was
promised then is the replay's answer, its middle what was expected.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from bench.calibration_fit import Sample
from bench.pair_data import Pair, pairs
from bench.pairs import TUNED, profile_of
from gobrrr.analysis.replay.predictive import ReplayedSaving, mechanism_of
from gobrrr.doors import pipeline
from gobrrr.guarded import GuardedParts
from gobrrr.treatments.framework.seats import seats
from gobrrr.treatments.framework.together import Combiner

CASES = Path(__file__).resolve().parent / "results" / "live_cases.json"


def samples() -> list[Sample]:
    """All of them."""
    return [*of_pairs(), *of_cases()]


def of_pairs() -> Iterator[Sample]:
    for pair in pairs():
        if pair.group in TUNED:
            continue
        replayed = _replayed(pair)
        if replayed is not None:
            faulty, fixed = (sum(times) / 2 for times in (pair.faulty_ms, pair.fixed_ms))
            yield Sample(pair.name, replayed, 1 - fixed / faulty)


def _replayed(pair: Pair) -> ReplayedSaving | None:
    examined = pipeline.examine(profile_of(pair))
    if examined.evidence is None or not examined.evidence.replayable:
        return None
    planned = seats(examined.ranks, pair.treatments, GuardedParts())
    combiner = Combiner(planned, examined.diagnosis.unprofiled_wall_ns)
    return combiner.replayed(pair.treatments) if combiner.seats[0].plans else None


def of_cases(path: Path = CASES) -> Iterator[Sample]:
    record = json.loads(path.read_text(encoding="utf-8"))
    for name, row in record["rows"].items():
        faulty, fixed = row["faulty"], row["fixed"]
        if row["negative"] or not faulty["promised_ns"] or not fixed.get("wall_ms"):
            continue
        treatment, low, high = faulty["promised_ns"][0]
        low, high = (min(ns / 1e6 / faulty["wall_ms"], 1.0) for ns in (low, high))
        replayed = ReplayedSaving(
            expected=(low + high) / 2, low=low, high=high, touched=high, mechanism=mechanism_of([treatment]),
            device="cpu",
        )  # fmt: skip
        yield Sample(name, replayed, 1 - fixed["wall_ms"] / faulty["wall_ms"])
