"""The bench of treatments: each workload's ways and the experts' recipes, measured in turns with the untreated step.

    python -m bench.gpu.treatments OUT --seconds 540                       # as far as the time reaches
    python -m bench.gpu.treatments OUT --seconds 540 --only a,b --again    # these anew
    python -m bench.gpu.treatments OUT --device cpu                        # the workloads for a CPU
    python -m bench.gpu.treatments OUT --device cpu --tiny --only a        # tries the script, a GPU's workload too
    python -m bench.gpu.treatments --list                                  # what there is
    python -m bench.gpu.treatments --take OUT                              # what came back into bench/results

Goes on where bench/results (or OUT, where it has the file) stops: what is measured there is not measured again. Writes
OUT/treatments_h200.json, named by the device, after each workload, OUT/treatments_h200.profiles.zip with the profiles
that are new, and OUT/treatments.log. How the processes take turns and end is in bench/gpu/runs.py, what they measure
and in which order in bench/gpu/treatments_one.py; `python -m bench.calibration` makes the tables.
"""

from __future__ import annotations

import sys
from typing import Any

from bench.gpu import runs
from bench.gpu.treatment_workloads import ENTRIES, HELD_BACK, Entry


def line(name: str, found: dict[str, Any]) -> str:
    """A workload in one line: what it gained by its best way or recipe."""
    if "error" in found:
        return f"{name:28} FAILED: {found['error']}"
    rows = {key: row for key, row in found.get("rows", {}).items() if "after_ns" in row}
    gains = {key: row["before_ns"] / row["after_ns"] * row["work"] for key, row in rows.items()
             if row["work"] == 1.0 and row["verdict"] == "helped"}  # fmt: skip
    best = max(gains, key=gains.__getitem__, default="")
    told = f"{gains[best]:5.2f} x by {best}" if best else "nothing helped"
    step = (found.get("step_ns") or 0) / 1e6
    left = f", {len(found['left'])} left" if found.get("left") else ""
    return (
        f"{name:28} {step:8.2f} ms {found.get('regime', '?'):9} {len(rows):2} timed{left}, "
        f"{found.get('device_seconds', 0):3.0f} s: {told}"
    )


def listed(entries: list[Entry]) -> None:
    """The workloads with their families; those that are set aside are marked."""
    for entry in entries:
        aside = "set aside" if entry.name in HELD_BACK else ""
        print(f"{entry.name:28} {entry.device:5} {entry.family:12} {aside:10} {entry.what}")


BENCH = runs.Bench(kind="treatments", module="bench.gpu.treatments_one", told=line, each_s=45.0, least_s=40.0)


def main() -> int:
    parser = runs.parser(__doc__, BENCH)
    parser.add_argument("--without", default="", help="names to leave out, separated by commas")
    parser.add_argument("--slow", action="store_true", help="also ways that compile for minutes")
    asked = runs.asked_of(parser, BENCH, ENTRIES, "only", "without")
    entries = [entry for entry in ENTRIES.values() if asked.only or asked.list or entry.device == asked.device]
    if asked.list:
        listed(entries)
        return 0
    if asked.take:
        return runs.take(asked.out, BENCH.kind)
    run = runs.Run(BENCH, asked, ("--slow",) if asked.slow else ())
    known = runs.begin(run)
    wanted = [name for name in asked.only or runs.ordered(entries) if name not in asked.without]
    runs.measure(run, sorted(wanted, key=lambda name: name in known))  # what was begun comes after what was not
    return 0


if __name__ == "__main__":
    sys.exit(main())
