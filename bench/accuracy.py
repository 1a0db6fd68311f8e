"""Hold what gobrrr says from a trace alone against what was measured without the profiler.

    python -m bench.accuracy            diagnose every labelled trace, write the results and docs/accuracy.md
    python -m bench.accuracy --check    exit 1 when docs/accuracy.md differs from the results

Three sets of traces, all of an H100: the shipped ones (truth.json, labels.json), on which the observer's cost was
fitted (bench/fit_observer_cost.py), a held-out set (bench/gpu/holdout.py), on which nothing was, and both steps of each
further pair (bench/gpu/pairs.py), which were recorded when the estimate was done.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gobrrr
from bench import pages
from bench.pages import ROOT
from gobrrr.units import percent

SHIPPED = ROOT / "src" / "gobrrr" / "data" / "h100"
HELD_OUT = ROOT / "tests" / "data" / "h100" / "holdout"
RESULTS = ROOT / "bench" / "results" / "accuracy.json"
PAGE = ROOT / "docs" / "accuracy.md"
DEVICE_BOUND = 0.95
"""Busy share of the measured step from which the device is the bound."""


def shipped() -> Iterator[tuple[str, Path, list[float]]]:
    """(name, trace, measured step times in ms) of the shipped traces."""
    truth = json.loads((SHIPPED / "truth.json").read_text())
    for name, entry in truth.items():
        for form in ("faulty", "fixed"):
            times = entry[form]
            yield f"{name}.{form}", SHIPPED / f"{name}.{form}.json.gz", [times["sync_ms"], times["pipelined_ms"]]
    for model, entry in json.loads((SHIPPED / "labels.json").read_text()).items():
        for form in ("fwd", "fwdbwd", "fwd_compiled"):
            if isinstance(entry, dict) and form in entry:
                yield f"{model}.{form}", SHIPPED / f"{model}.{form}.json.gz", entry[form]


def held_out() -> Iterator[tuple[str, Path, list[float]]]:
    """The same of the held-out traces; each step was timed before and after its trace was taken."""
    rows = json.loads((ROOT / "bench" / "results" / "h100_holdout.json").read_text())["workloads"]
    for name, row in rows.items():
        if "error" not in row:
            times = [timing[key] for timing in (row, row["again"]) for key in ("sync_ms", "pipelined_ms")]
            yield name, HELD_OUT / f"{name}.json.gz", times


def of_pairs() -> Iterator[tuple[str, Path, list[float]]]:
    """The same of both steps of each further pair on one GPU."""
    folder = ROOT / "tests" / "data" / "h100" / "pairs"
    for record in sorted((ROOT / "bench" / "results").glob("h100_pairs*.json")):
        for name, entry in json.loads(record.read_text())["pairs"].items():
            for form in ("faulty", "fixed"):
                row = entry.get(form, {})
                if "trace" in row:
                    times = [timing[key] for timing in (row, row["again"]) for key in ("sync_ms", "pipelined_ms")]
                    yield f"{name}.{form}", folder / row["trace"], times


def measure(name: str, path: Path, times: list[float]) -> dict[str, Any]:
    """One trace: what was said and what was measured, times in ms."""
    found = gobrrr.diagnose(path)
    wall = found.unprofiled_wall_ns
    if wall.value is None or wall.low is None or wall.high is None:
        raise ValueError(f"{path}: no estimate")
    busy = sum(line.ns for line in found.budget if line.line not in ("overhead",)) / 1e6
    return {
        "name": name,
        "regime": found.regime,
        "certainty": found.certainty,
        "profiled_ms": found.wall_ns / 1e6 if found.wall_ns is not None else None,
        "estimate_ms": [wall.low / 1e6, wall.value / 1e6, wall.high / 1e6],
        "measured_ms": [min(times), max(times)],
        "covered": wall.low / 1e6 <= max(times) and wall.high / 1e6 >= min(times),
        "device_bound": busy >= DEVICE_BOUND * min(times),
        "priced": found.coverage.device_time,
    }


def error(row: dict[str, Any]) -> float:
    """How far the estimate is outside the measured range, as a share of its nearer end; 0 inside."""
    value, (low, high) = row["estimate_ms"][1], row["measured_ms"]
    return float(value / high - 1 if value > high else value / low - 1 if value < low else 0.0)


def page(results: dict[str, Any]) -> str:
    """The page in Markdown."""
    lines = [
        "# Accuracy",
        "",
        f"Made by `{results['command']}` ({results['date']}). The time of the step without the profiler,",
        "estimated from a trace alone and compared with measurements on an NVIDIA H100 80GB HBM3 (torch 2.11.0+cu130).",
        "A step is measured with a synchronize after each and in a loop that runs ahead; the range of both is shown.",
        "The host of that machine is shared: host-bound times vary by half from run to run. An error is the distance",
        "from the measured range.",
        "",
    ]
    parts = {
        "held_out": "Held out: nothing was fitted to these",
        "pairs": "Recorded later: both steps of each further pair",
        "shipped": "Shipped: the cost of recording was fitted to these",
    }
    for key, title in parts.items():
        lines += [f"## {title}", "", *summary(results[key]), "", *_table(results[key]), ""]
    return "\n".join(lines)


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Coverage and errors of a set, in sentences."""
    covered = sum(row["covered"] for row in rows)
    bound = [abs(error(row)) for row in rows if row["device_bound"]]
    rest = [abs(error(row)) for row in rows if not row["device_bound"]]
    widths = [(row["estimate_ms"][2] - row["estimate_ms"][0]) / 2 / row["estimate_ms"][1] for row in rows]
    lines = [
        f"The interval meets the measured range in {covered} of {len(rows)}; its median half-width is "
        f"{percent(statistics.median(widths))} of the estimate, the widest {percent(max(widths))}."
    ]
    for which, errors in (("device", bound), ("host", rest)):
        if errors:
            lines.append(
                f"Where the {which} is the bound ({len(errors)}): median error {percent(statistics.median(errors))}, "
                f"largest {percent(max(errors))}."
            )
    return lines


def _table(rows: list[dict[str, Any]]) -> list[str]:
    lines = pages.heads("trace | regime (certainty) | profiled ms | estimated ms | measured ms | error")
    for row in sorted(rows, key=lambda row: row["name"]):
        low, value, high = row["estimate_ms"]
        measured = " to ".join(f"{value:.3g}" for value in row["measured_ms"])
        off = error(row)
        lines.append(
            f"| {row['name']} | {row['regime']} ({row['certainty']}) | {row['profiled_ms']:.3g} | "
            f"{value:.3g} ({low:.3g} to {high:.3g}) | {measured} | {'in range' if off == 0 else f'{off:+.0%}'} |"
        )
    return lines


def main() -> int:
    def measure_all() -> dict[str, Any]:
        sets = {"held_out": held_out, "pairs": of_pairs, "shipped": shipped}
        return {name: [measure(*trace) for trace in traces()] for name, traces in sets.items()}

    return pages.measured(pages.parser(__doc__).parse_args(), "bench.accuracy", PAGE, page, measure_all)


if __name__ == "__main__":
    sys.exit(main())
