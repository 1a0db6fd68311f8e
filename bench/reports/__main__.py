"""Try gobrrr on the public reports of bench/reports: what is named, where, and what is promised against what is saved.

    python -m bench.reports [NAME ...]

Each report runs in a process of its own, on one thread. The two forms are timed in turns, in CPU time, by rounds that
make them anew; then each is diagnosed. Writes bench/results/reports.json: `now` is this run, `first_sight` the first
one that was ever made of a report, with the commit of gobrrr that it was made with. What was found at first sight is
never written again.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import pkgutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import bench.reports
from bench import pages
from bench.process import answer
from bench.reports import FORMS, form_of, functions_to_blame, lines_to_blame
from bench.reports.judging import judged

if TYPE_CHECKING:
    from gobrrr import Workload
    from gobrrr.model.diagnosis import Diagnosis

OUT = pages.RESULTS / "reports.json"
ROUNDS, WARM, STEPS = 7, 3, 20
"""Of the timing: rounds of both forms, steps of a round that don't count, and those that do."""

ROUND_S = 0.4
"""A round ends early after so much time; three steps it has."""


def names() -> Iterator[str]:
    """The reports."""
    for info in pkgutil.iter_modules(bench.reports.__path__):
        if not info.name.startswith("_") and hasattr(_module(info.name), "SOURCE"):
            yield info.name


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"bench.reports.{name}")


def tried(name: str) -> dict[str, Any]:
    """One report here: what its fix saves, and what is said of both forms."""
    import torch

    import gobrrr

    torch.set_num_threads(1)
    report = _module(name)
    measured = saved(report)
    sick, healthy = (said(gobrrr.diagnose(form_of(report, form)), report) for form in FORMS)
    return {"measured": measured, "now": judged(report, sick, healthy, measured["share"])}


def saved(
    report: ModuleType, *, rounds: int = ROUNDS, rounds_s: float = math.inf, round_s: float = ROUND_S,
    clock: Callable[[], float] = time.process_time, wait: Callable[[], None] = lambda: None,
) -> dict[str, Any]:  # fmt: skip
    """What the fix saves: both forms timed in turns, `rounds` times or until `rounds_s` seconds have passed."""
    pairs: list[tuple[float, float]] = []
    until = time.perf_counter() + rounds_s
    while not pairs or (len(pairs) < rounds and time.perf_counter() < until):
        faulty, fixed = (_round(form_of(report, form), round_s, clock, wait) for form in FORMS)
        pairs.append((faulty, fixed))
    shares = sorted(1 - fixed / faulty for faulty, fixed in pairs)
    return {
        "faulty_ms": statistics.median(faulty for faulty, _ in pairs) * 1e3,
        "fixed_ms": statistics.median(fixed for _, fixed in pairs) * 1e3,
        "share": statistics.median(shares),
        "shares": shares,
    }


def _round(make: Callable[[], Workload], round_s: float, clock: Callable[[], float], wait: Callable[[], None]) -> float:
    """The mean time of a step of a workload that is new."""
    step: Any = make().step
    for _ in range(WARM):
        step()
    wait()
    start, done = clock(), 0
    while done < STEPS and (done < WARM or clock() - start < round_s):
        step()
        done += 1
    wait()
    return (clock() - start) / done


def said(found: Diagnosis, module: ModuleType) -> dict[str, Any]:
    """What a diagnosis says, as far as it is judged."""
    from gobrrr.report.held import held
    from gobrrr.report.tree import PlaceTree

    tree = PlaceTree(found.places)
    file, blamed = Path(module.__file__ or "").name, lines_to_blame(module)
    around = {f"{file}:{at}" for at in functions_to_blame(module)}
    wall = found.unprofiled_wall_ns.value or 1.0

    def at_cause(place: int | None) -> bool:
        path = () if place is None else tree.path(found.places[place])
        return any(_on_line(node.source, module, blamed) for node in path)

    return {
        "regime": found.regime,
        "step_ms": wall / 1e6,
        "held_by": [
            [place.where, place.what, round(place.share, 3), at_cause(place.id), place.where in around]
            for place in held(found)
        ],
        "held_at_cause": at_cause(found.held_by),
        "findings": [
            {
                "code": finding.code,
                "title": finding.title,
                "ops": [where.op for where in finding.where[:3]],
                "at_cause": at_cause(finding.place)
                or any(_on_line(where.source, module, blamed) for where in finding.where),
            }
            for finding in found.findings
        ],
        "prescriptions": [
            {
                "treatment": prescription.treatment,
                "mends": prescription.mends,
                "how": prescription.how,
                "saves": [round(ns / wall, 4) for ns in prescription.predicted_saving_ns],
                "expected": None if prescription.expected_ns is None else round(prescription.expected_ns / wall, 4),
            }
            for prescription in found.prescriptions
        ],
        "text": str(found),
    }


def _on_line(source: str | None, module: ModuleType, lines: set[int]) -> bool:
    """Whether a source, "path/file.py(28): train", is one of the lines of a module."""
    file, _, rest = (source or "").partition("(")
    return Path(file).name == Path(module.__file__ or "").name and rest.partition(")")[0] in map(str, lines)


def main(chosen: list[str]) -> None:
    import torch

    from gobrrr.hardware.measure.device import find_device

    os.environ["OMP_NUM_THREADS"] = "1"
    rows = pages.read(OUT)["rows"] if OUT.is_file() else {}
    of = commit()
    report = {
        "command": "python -m bench.reports",
        "device": find_device("cpu").environment().device_name,
        "torch": torch.__version__,
        "date": pages.now(),
    }
    for name in chosen or sorted(names()):
        row = answer("bench.reports", "--one", name)
        if "error" in row:
            print(f"{name}: {row['error']}", flush=True)
            continue
        now = {"commit": of, "date": pages.today(), **row["now"]}
        first = rows.get(name, {}).get("first_sight") or without_text(now)
        rows[name] = {**facts(_module(name)), "measured": row["measured"], "first_sight": first, "now": now}
        pages.write(OUT, {**report, "rows": dict(sorted(rows.items()))})
        print(f"{name:36}saves {row['measured']['share']:4.0%}  named {now['named']}  held {now['held']}", flush=True)


def facts(module: ModuleType) -> dict[str, Any]:
    """What the report itself says."""
    return {
        "source": module.SOURCE, "mechanism": module.MECHANISM, "cause": module.CAUSE, "reported": module.REPORTED,
        "negative": getattr(module, "NEGATIVE", False),
    }  # fmt: skip


def without_text(now: dict[str, Any]) -> dict[str, Any]:
    """The whole answer is kept of the newest run only."""
    return {**now, "sick": {key: now["sick"][key] for key in now["sick"] if key != "text"}}


def commit() -> str:
    """The newest commit of gobrrr itself, which is what is tried."""
    command = ["git", "log", "-1", "--format=%h", "--", "src"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    return asked.stdout.strip()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(tried(sys.argv[2])), flush=True)
    else:
        main(sys.argv[1:])
