"""Predicted against measured savings of the bench of treatments, made again by the code as it is. No torch, no GPU.

    python -m bench.calibration                       # the two thirds of the workloads that may be fitted on
    python -m bench.calibration --fit                 # write the package's data file from them (data/fitted.json)
    python -m bench.calibration --points points.csv   # and each point, for a fit
    python -m bench.calibration --final               # the third that was set aside, looked at once, at the end

Reads bench/results/treatments_*.json and predicts every measured way and recipe again from the stored profile of the
untreated step (bench.predicted_ways): for the step as long as it was when that way was measured, since a host is now
fast and now slow, and with the time that issuing a step took, where that was measured on another day
(bench/results/issue_*.json). A saving is a share of the step, per unit of work. Three columns are held against
the same measurements:

- replay: the prediction as it is made today, which was fitted on none of this;
- usual: what the treatment usually saves in steps of the same regime: the median of the other workloads, and their
  quantiles from 10 to 90 % (of the treatment in all regimes where there are fewer than FEW others);
- calibrated: what is shown: the replay with the quantiles of its residuals (bench.calibration_fit), each workload by a
  fit without it.

The interval score is the width of an interval, and 10 times what the measured saving lies outside of it (Gneiting and
Raftery 2007, for an interval of 80 %): less is better, and neither wide nor overconfident intervals do well.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bench import pages
from bench.calibration_constants import Implied, constants, implied
from bench.calibration_fit import DOUBT, DRAWN, NOISY, Interval, Sample, fit, judged, left_out
from bench.calibration_other import samples as other_samples
from bench.predicted_ways import Told, foretold
from bench.stored_profile import unpack
from gobrrr.analysis.replay.fitted import Fitted, LeftOut, fitted
from gobrrr.analysis.replay.predictive import ReplayedSaving, predicted
from gobrrr.model.machine import Machine
from gobrrr.model.profile import Profile
from gobrrr.trials.sets import JOINED, SEVERAL

RESULTS = pages.RESULTS
FITTED = pages.ROOT / "src" / "gobrrr" / "data" / "fitted.json"
HARDWARE = ("NVIDIA H100 80GB HBM3 (pairs)", "AMD EPYC, 2 threads (cases on a CPU)")
"""What the other samples ran on."""

PROFILE = ".profile.xz"
GONE = {"cpu": {"fused-optimizer:foreach"}}
"""Ways that nothing predicts on a device any more: it saved from -5 to 5 % of a step."""

FEW = 5
ALL = "all"
COLUMNS = ("replay", "usual", "calibrated")


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
    replayed: ReplayedSaving | None

    @property
    def replay(self) -> Interval | None:
        """The replay's own prediction."""
        replayed = self.replayed
        return None if replayed is None else Interval(replayed.expected, replayed.low, replayed.high)

    @property
    def sample(self) -> Sample | None:
        """The point for the fit."""
        return None if self.replayed is None else Sample(self.workload, self.replayed, self.measured, self.spread)

    @property
    def group(self) -> tuple[str, str]:
        """A workload of one device: what is left out as a whole."""
        return self.device, self.workload


def entries(paths: Iterable[Path], final: bool) -> list[tuple[Path, str, dict[str, Any], str]]:
    """(the file of its profile, name, record, device) of each workload that may be looked at."""
    found = []
    for path in sorted(paths):
        record = pages.read(path)
        aside = set(record["held_back"])
        for name, one in record["workloads"].items():
            profile = path.parent / path.stem / f"{name}{PROFILE}"
            if (name in aside) == final and profile.is_file() and "ways" in one:
                found.append((profile, name, one, str(record["device"])))
    return found


def issued(profile: Profile, name: str, results: str) -> Profile:
    """A profile with what issuing one step took, where that was measured later and its step never waits."""
    path, rank = RESULTS / f"{results.replace('treatments', 'issue')}.json", profile.ranks[0]
    found = pages.read(path)["workloads"].get(name, {}) if path.is_file() else {}
    if rank.live is None or rank.live.issue_ns is not None or found.get("waits") != 0:
        return profile
    live = msgspec.structs.replace(rank.live, issue_ns=found["issue_ns"])
    return replace(profile, ranks=(replace(rank, live=live), *profile.ranks[1:]))


def points_of(entry: tuple[Path, str, dict[str, Any], str]) -> tuple[list[Point], list[Implied]]:
    """The points of one workload, its predictions made again; and what they say of the replay's constants."""
    profile, name, record, device = entry
    ways = {way["name"]: msgspec.convert(way, Told) for way in record["ways"]}
    offered = set(ways) - GONE.get(device, set())
    rows = {key: row for key, row in record["rows"].items() if "after_ns" in row and set(key.split(JOINED)) <= offered}
    machine = msgspec.convert(record["machine"], Machine) if "machine" in record else None
    steps = {key: row["before_ns"] for key, row in rows.items()}
    seen = issued(unpack(profile.read_bytes()), name, profile.parent.name)
    fore = foretold(seen, ways, list(rows), machine, steps)
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
                replayed=fore.replayed[key],
            )
        )  # fmt: skip
    if fore.evidence is None or fore.step_ns is None:
        return points, []
    return points, implied(fore.evidence, fore.step_ns, rows)


def usual(point: Point, points: Sequence[Point]) -> Interval | None:
    """What the treatment saves on the other workloads; None where there are none."""
    others = [other for other in points if other.group != point.group and other.treatment == point.treatment]
    alike = [other for other in others if other.regime == point.regime]
    chosen = [other.measured for other in (alike if len(alike) >= FEW else others)]
    if not chosen:
        return None
    low, middle, high = (float(value) for value in np.quantile(chosen, (DOUBT / 2, 0.5, 1 - DOUBT / 2)))
    return Interval(middle, low, high)


def columns(
    points: Sequence[Point], final: bool = False, others: Sequence[Sample] = ()
) -> dict[str, list[Interval | None]]:
    """Each column's prediction of each point. `final`: nothing was fitted on them, and the shipped fit is used."""
    return {
        "replay": [point.replay for point in points],
        "usual": [usual(point, points) for point in points],
        "calibrated": calibrated(points, final, others),
    }


def calibrated(points: Sequence[Point], final: bool, others: Sequence[Sample] = ()) -> list[Interval | None]:
    """The shipped fit's prediction of each point, or that of a fit without its workload, on `others` as well."""
    if final:
        return [None if point.replayed is None else Interval(*predicted(point.replayed)) for point in points]
    samples = [point.sample for point in points]
    told = iter(left_out([*(sample for sample in samples if sample is not None), *others], fitted().levels))
    return [None if sample is None else next(told) for sample in samples]


def row_of(predicted: Sequence[Interval | None], measured: Sequence[float]) -> LeftOut | None:
    """None where nothing is predicted."""
    both = [(interval, got) for interval, got in zip(predicted, measured, strict=True) if interval is not None]
    return judged([interval for interval, _ in both], [got for _, got in both]) if both else None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """How well a column predicts one kind of points."""

    kind: str
    column: str
    told: LeftOut


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a run (bench/results/calibration*.json), for docs/calibration.md."""

    command: str
    date: str
    hardware: list[str]
    about: list[str]
    lines: list[Line]


def compared(
    points: Sequence[Point], by: Callable[[Point], str], final: bool = False, others: Sequence[Sample] = ()
) -> list[Line]:
    """A line for each kind of points and column, and for all of them. Only what the replay predicts is compared."""
    found = columns(points, final, others)
    told = [at for at, point in enumerate(points) if point.replay is not None]
    kinds: dict[str, list[int]] = {}
    for at in told:
        kinds.setdefault(by(points[at]), []).append(at)
    lines = []
    for kind in [*sorted(kinds, key=lambda kind: -len(kinds[kind])), ALL]:
        chosen = told if kind == ALL else kinds[kind]
        for column in COLUMNS:
            row = row_of([found[column][at] for at in chosen], [points[at].measured for at in chosen])
            if row is not None:
                lines.append(Line(kind=kind, column=column, told=row))
    return lines


def table(lines: Sequence[Line]) -> list[str]:
    """The lines in Markdown."""
    rows = pages.heads("| column | n | median error, points | covered | median width, points | interval score")
    for line in lines:
        error, covered, width, score = (
            100 * part for part in (line.told.error, line.told.coverage, line.told.width, line.told.score)
        )
        named = f"| {line.kind} | {line.column} | {line.told.n} | "
        rows.append(f"{named}{error:.1f} | {covered:.0f} % | {width:.1f} | {score:.0f} |")
    return rows


def summary(points: Sequence[Point]) -> list[str]:
    """What there is, and what nothing predicts."""
    groups, untold = {point.group for point in points}, [point for point in points if point.replay is None]
    moved = [point for point in untold if abs(point.measured) > max(point.spread, 0.05)]
    least = ", ".join(f"{point.way} on {point.workload} {100 * point.measured:.0f} %" for point in
                      sorted(moved, key=lambda point: -abs(point.measured))[:5])  # fmt: skip
    return [
        f"{len(points)} measured ways and recipes on {len(groups)} workloads; "
        f"{len(points) - len(untold)} of them are predicted.",
        f"{len(untold)} are predicted by nothing; of these {len(moved)} changed the step by over 5 %"
        f"{f' (the most: {least})' if least else ''}.",
    ]


def write_points(path: Path, points: Sequence[Point], final: bool = False, others: Sequence[Sample] = ()) -> None:
    """Every point as a row of a CSV file, with what the replay says of it and what is predicted."""
    names = [field.name for field in fields(Point) if field.name != "replayed"]
    of_replay = [field.name for field in fields(ReplayedSaving)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*names, *of_replay, *(f"shown_{field}" for field in Interval._fields)])
        for point, shown in zip(points, calibrated(points, final, others), strict=True):
            told = [getattr(point.replayed, name) for name in of_replay] if point.replayed is not None else [""] * 7
            writer.writerow([*(getattr(point, name) for name in names), *told, *(shown or ["", "", ""])])


def write_fit(points: Sequence[Point], said: Sequence[Implied], others: Sequence[Sample]) -> None:
    """Fit on the points, and on what was measured besides, and write the package's data file. The replay that the
    points are of had the constants that were in it."""
    samples = [sample for point in points if (sample := point.sample) is not None]
    found = fit(samples, others)
    told = Fitted(
        command="python -m bench.calibration --fit",
        date=time.strftime("%Y-%m-%d"),
        hardware=[*dict.fromkeys(point.device for point in points), *HARDWARE],
        workloads=len({sample.workload for sample in samples}),
        levels=found.levels,
        drawn=DRAWN,
        noisy=NOISY,
        spreads=found.spreads,
        constants=constants(said),
        left_out=judged(found.intervals[: len(samples)], [sample.measured for sample in samples]),
    )
    if told.constants != fitted().constants:
        print("the replay's constants have changed: run it again, for the rest to be fitted with them", file=sys.stderr)
    FITTED.write_bytes(msgspec.json.format(msgspec.json.encode(told), indent=1) + b"\n")


def keep(points: Sequence[Point], lines: list[Line], final: bool) -> None:
    """The table's lines for the page."""
    made = Table(
        command=f"python -m bench.calibration --{'final' if final else 'fit'}", date=time.strftime("%Y-%m-%d"),
        hardware=[*dict.fromkeys(point.device for point in points)], about=summary(points), lines=lines,
    )  # fmt: skip
    path = RESULTS / ("calibration_final.json" if final else "calibration.json")
    path.write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*", help="results (all of bench/results/treatments_*.json)")
    parser.add_argument("--final", action="store_true", help="the workloads that were set aside, and only these")
    parser.add_argument("--fit", action="store_true", help="write src/gobrrr/data/fitted.json")
    parser.add_argument("--points", type=Path, help="write every point into this CSV file")
    parser.add_argument("--by", choices=("treatment", "family", "regime", "device"), default="treatment")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    given = parser.parse_args()
    if given.fit and given.final:
        parser.error("what was set aside is not fitted on: --fit or --final")
    chosen = entries(given.files or RESULTS.glob("treatments_*.json"), given.final)
    if not chosen:
        print("nothing is measured: python -m bench.gpu.treatments OUT measures, --take OUT brings it here",
              file=sys.stderr)  # fmt: skip
        return 2
    points: list[Point] = []
    said: list[Implied] = []
    with ProcessPoolExecutor(max(1, given.jobs)) as pool:
        for done, (found, further) in enumerate(pool.map(points_of, chosen), 1):
            points += found
            said += further
            if sys.stderr.isatty():
                print(f"\rpredicting again: {done} of {len(chosen)} workloads", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    others = [] if given.final else other_samples()
    if given.fit:
        write_fit(points, said, others)
        fitted.cache_clear()
    lines = compared(points, lambda point: str(getattr(point, given.by)), given.final, others)
    print("\n".join([*summary(points), "", *table(lines)]))
    if given.fit or given.final:
        keep(points, lines, given.final)
    if given.points is not None:
        write_points(given.points, points, given.final, others)
    return 0


if __name__ == "__main__":
    sys.exit(main())
