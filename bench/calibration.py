"""Predicted against measured savings of the bench of treatments, made again by the code as it is. No torch, no GPU.

    python -m bench.calibration                       # the two thirds of the workloads that may be fitted on
    python -m bench.calibration --points points.csv   # and each point, for a fit
    python -m bench.calibration --final               # the third that was set aside, looked at once, at the end

Reads bench/results/treatments_*.json and predicts every measured way and recipe again from the stored profile of the
untreated step (bench.predicted_ways). A saving is a share of the step, per unit of work. Three columns are held against
the same measurements:

- replay: the prediction as it is made today, which was fitted on none of this;
- usual: what the treatment usually saves in steps of the same regime: the median of the other workloads, and their
  quantiles from 10 to 90 % (of the treatment in all regimes where there are fewer than FEW others);
- calibrated: not there yet.

The interval score is the width of an interval, and 10 times what the measured saving lies outside of it (Gneiting and
Raftery 2007, for an interval of 80 %): less is better, and neither wide nor overconfident intervals do well.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bench.predicted_ways import JOINED, Saving, Told, foretold
from bench.stored_profile import unpack
from gobrrr.model.machine import Machine

RESULTS = Path(__file__).resolve().parent / "results"
PROFILE = ".profile.xz"
SEVERAL = "several at once"
"""What recipes of two and more ways are called in the table."""

DOUBT = 0.2
"""What an interval may leave out: 80 % are to be covered."""

FEW = 5
COLUMNS = ("replay", "usual", "calibrated")


@dataclass(frozen=True)
class Interval:
    """A predicted saving, shares of the step."""

    expected: float
    low: float
    high: float

    def error(self, measured: float) -> float:
        """How far what was expected is off."""
        return abs(self.expected - measured)

    def covers(self, measured: float) -> bool:
        """Whether the measured saving lies in it."""
        return self.low <= measured <= self.high

    def score(self, measured: float) -> float:
        """The interval score."""
        outside = max(self.low - measured, measured - self.high, 0.0)
        return self.high - self.low + 2 / DOUBT * outside


@dataclass(frozen=True)
class Point:
    """A way or a recipe on one workload: what was measured, and what is predicted now (None: nothing predicts it).

    `spread`: the distance of the quartiles of its rounds, a share of the step.
    """

    device: str
    workload: str
    family: str
    regime: str
    way: str
    treatment: str
    step_ns: float
    measured: float
    spread: float
    verdict: str
    replay: Interval | None

    @property
    def group(self) -> tuple[str, str]:
        """A workload of one device: what is left out as a whole."""
        return self.device, self.workload


def entries(paths: Iterable[Path], final: bool) -> list[tuple[Path, str, dict[str, Any], str]]:
    """(the file of its profile, name, record, device) of each workload that may be looked at."""
    found = []
    for path in sorted(paths):
        record = json.loads(path.read_text(encoding="utf-8"))
        aside = set(record["held_back"])
        for name, one in record["workloads"].items():
            profile = path.parent / path.stem / f"{name}{PROFILE}"
            if (name in aside) == final and profile.is_file() and "ways" in one:
                found.append((profile, name, one, str(record["device"])))
    return found


def points_of(entry: tuple[Path, str, dict[str, Any], str]) -> list[Point]:
    """The points of one workload, its predictions made again."""
    profile, name, record, device = entry
    ways = {one["name"]: msgspec.convert(one, Told) for one in record["ways"]}
    rows = {
        key: row for key, row in record["rows"].items() if "after_ns" in row and set(key.split(JOINED)) <= set(ways)
    }
    machine = msgspec.convert(record["machine"], Machine) if "machine" in record else None
    fore = foretold(unpack(profile.read_bytes()), ways, list(rows), machine)
    points = []
    for key, row in rows.items():
        single = ways.get(key)
        before = row["before_ns"]
        points.append(
            Point(
                device=device, workload=name, family=record["family"], regime=fore.regime, way=key,
                treatment=SEVERAL if single is None else single.treatment, step_ns=before,
                measured=1 - row["after_ns"] / row["work"] / before, spread=row.get("quartiles", 0.0),
                verdict=row["verdict"],
                replay=_interval(fore.savings[key], fore.step_ns),
            )
        )  # fmt: skip
    return points


def _interval(saving: Saving | None, step_ns: float | None) -> Interval | None:
    if saving is None or not step_ns:
        return None
    return Interval(saving.expected / step_ns, saving.low / step_ns, saving.high / step_ns)


def usual(point: Point, points: Sequence[Point]) -> Interval | None:
    """What the treatment saves on the other workloads; None where there are none."""
    others = [one for one in points if one.group != point.group and one.treatment == point.treatment]
    alike = [one for one in others if one.regime == point.regime]
    chosen = [one.measured for one in (alike if len(alike) >= FEW else others)]
    if not chosen:
        return None
    low, middle, high = (float(one) for one in np.quantile(chosen, (DOUBT / 2, 0.5, 1 - DOUBT / 2)))
    return Interval(middle, low, high)


def columns(points: Sequence[Point]) -> dict[str, list[Interval | None]]:
    """Each column's prediction of each point."""
    return {
        "replay": [one.replay for one in points],
        "usual": [usual(one, points) for one in points],
        "calibrated": [None for _ in points],
    }


@dataclass(frozen=True)
class Row:
    """How well a column predicts some points: medians, and shares of one."""

    n: int
    error: float
    coverage: float
    width: float
    score: float


def row_of(predicted: Sequence[Interval | None], measured: Sequence[float]) -> Row | None:
    """None where nothing is predicted."""
    both = [(one, got) for one, got in zip(predicted, measured, strict=True) if one is not None]
    if not both:
        return None
    return Row(
        n=len(both),
        error=statistics.median(one.error(got) for one, got in both),
        coverage=sum(one.covers(got) for one, got in both) / len(both),
        width=statistics.median(one.high - one.low for one, _ in both),
        score=statistics.fmean(one.score(got) for one, got in both),
    )


def table(points: Sequence[Point], by: Callable[[Point], str]) -> list[str]:
    """A line for each kind of points and column, and for all of them. Only what the replay predicts is compared."""
    found = columns(points)
    told = [at for at, one in enumerate(points) if one.replay is not None]
    kinds: dict[str, list[int]] = {}
    for at in told:
        kinds.setdefault(by(points[at]), []).append(at)
    lines = [
        "| | column | n | median error, points | covered | median width, points | interval score |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for kind in [*sorted(kinds, key=lambda one: -len(kinds[one])), "all"]:
        chosen = told if kind == "all" else kinds[kind]
        for column in COLUMNS:
            row = row_of([found[column][at] for at in chosen], [points[at].measured for at in chosen])
            if row is None:
                continue
            lines.append(
                f"| {kind} | {column} | {row.n} | {100 * row.error:.1f} | {100 * row.coverage:.0f} % | "
                f"{100 * row.width:.1f} | {100 * row.score:.0f} |"
            )
    return lines


def summary(points: Sequence[Point]) -> list[str]:
    """What there is, and what nothing predicts."""
    groups, untold = {one.group for one in points}, [one for one in points if one.replay is None]
    moved = [one for one in untold if abs(one.measured) > max(one.spread, 0.05)]
    least = ", ".join(f"{one.way} on {one.workload} {100 * one.measured:.0f} %" for one in
                      sorted(moved, key=lambda one: -abs(one.measured))[:5])  # fmt: skip
    return [
        f"{len(points)} measured ways and recipes on {len(groups)} workloads; "
        f"{len(points) - len(untold)} of them are predicted.",
        f"{len(untold)} are predicted by nothing; of these {len(moved)} changed the step by over 5 %"
        f"{f' (the most: {least})' if least else ''}.",
    ]


def write_points(path: Path, points: Sequence[Point]) -> None:
    """Every point as a row of a CSV file."""
    names = [one.name for one in fields(Point) if one.name != "replay"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "expected", "low", "high"])
        for one in points:
            told = asdict(one.replay) if one.replay is not None else {}
            writer.writerow([*(getattr(one, name) for name in names),
                             *(told.get(key, "") for key in ("expected", "low", "high"))])  # fmt: skip


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*", help="results (all of bench/results/treatments_*.json)")
    parser.add_argument("--final", action="store_true", help="the workloads that were set aside, and only these")
    parser.add_argument("--points", type=Path, help="write every point into this CSV file")
    parser.add_argument("--by", choices=("treatment", "family", "regime", "device"), default="treatment")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    given = parser.parse_args()
    chosen = entries(given.files or RESULTS.glob("treatments_*.json"), given.final)
    if not chosen:
        print("nothing is measured: python -m bench.gpu.treatments OUT measures, --take OUT brings it here",
              file=sys.stderr)  # fmt: skip
        return 2
    points: list[Point] = []
    with ProcessPoolExecutor(max(1, given.jobs)) as pool:
        for done, found in enumerate(pool.map(points_of, chosen), 1):
            points += found
            if sys.stderr.isatty():
                print(f"\rpredicting again: {done} of {len(chosen)} workloads", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print("\n".join([*summary(points), "", *table(points, lambda one: str(getattr(one, given.by)))]))
    if given.points is not None:
        write_points(given.points, points)
    return 0


if __name__ == "__main__":
    sys.exit(main())
