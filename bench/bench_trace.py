"""How long the trace door takes on a large trace, as whole processes, beside `json.loads` of the same file.

    python -m bench.bench_trace [SOURCE] [--target-mb 383] [--runs 5] [--out bench/results/trace_reading.json]
    python -m bench.bench_trace --places [--runs 5] [--out bench/results/trace_reading.json]

SOURCE is the trace that is copied until it is large enough: by default the largest of the shipped ones. A second trace
is six copies of a generated decode loop (bench/decode_loop.py), most of which is launches. With `--places` it is
measured which share of reading and diagnosing the shipped traces the places take, in processor time; the results keep
their other figures.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import gobrrr
import gobrrr.analysis.places.where
import gobrrr.doors.pipeline
from bench import pages
from bench.decode_loop import write_loop
from bench.make_trace import copies_for, read_source, write_copies
from bench.process import run, summary

SHIPPED = pages.ROOT / "src" / "gobrrr" / "data" / "h100"
RESULTS = pages.RESULTS / "trace_reading.json"
TARGET_MB = 383.0
LOOPS = 6
"""Copies of the decode loop: about as many bytes as the other trace has."""

RUNS = 5

JSON_LOADS = "import json, sys; json.loads(open(sys.argv[1], 'rb').read())"


def of_trace(trace: Path) -> dict[str, list[str]]:
    """What is timed of a trace, by the name it has in the results."""
    return {
        "diagnose": [sys.executable, "-m", "gobrrr.cli", "diagnose", str(trace), "--json"],
        "json_loads": [sys.executable, "-c", JSON_LOADS, str(trace)],
    }


def without_trace() -> dict[str, list[str]]:
    """What is timed beside them, by the name it has in the results."""
    return {
        "help": [sys.executable, "-m", "gobrrr.cli", "--help"],
        "import": [sys.executable, "-c", "import gobrrr"],
        "python": [sys.executable, "-c", "pass"],
    }


def machine() -> dict[str, Any]:
    """What the times depend on."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in ("msgspec", "numpy", "rich", "typer")},
    }


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor()


def measure(source: Path, target_mb: float, runs: int) -> dict[str, Any]:
    """Build both traces one after the other, time every command `runs` times in turn, and return the results."""
    with tempfile.TemporaryDirectory() as folder:
        trace, loop = Path(folder) / "trace.json", Path(folder) / "decode_loop.json"
        copied = copies_of(source, trace, target_mb=target_mb)
        times = _time(of_trace(trace) | without_trace(), runs)
        write_loop(loop)
        launches = {"trace": copies_of(loop, trace, copies=LOOPS), **_time(of_trace(trace), runs)}
    return {
        "date": pages.today(), "command": "gobrrr diagnose trace.json --json", "trace": copied, "machine": machine(),
        **times, "decode_loop": launches,
    }  # fmt: skip


def copies_of(source: Path, out: Path, *, target_mb: float = TARGET_MB, copies: int | None = None) -> dict[str, Any]:
    """Write copies of a trace, so many or as many as make `target_mb`, and say what was written."""
    cut = read_source(source)
    copies = copies or copies_for(cut, target_mb)
    events = write_copies(cut, copies, out)
    return {"source": source.name, "copies": copies, "events": events, "mb": round(out.stat().st_size / 1e6, 1)}


def _time(timed: dict[str, list[str]], runs: int) -> dict[str, dict[str, float | int | None]]:
    """Interleaved, so that a slow spell of the machine falls on all of them; the first round only warms up."""
    rounds = [{name: run(command) for name, command in timed.items()} for _ in range(runs + 1)][1:]
    return {name: summary([each[name] for each in rounds]) for name in timed}


def place_cost(traces: Sequence[Path], runs: int) -> dict[str, Any]:
    """Processor time of reading and diagnosing each trace, and how much of it the places take: the least of `runs`."""
    taken = [0.0]
    with ExitStack() as stack:
        for module, name in PLACES:
            stack.enter_context(mock.patch.object(module, name, _clocked(getattr(module, name), taken)))
        rounds = [[_diagnosed(path, taken) for path in traces] for _ in range(runs + 1)][1:]
    rows = {path.name: [round(min(times) * 1e3, 2) for times in zip(*(each[at] for each in rounds), strict=True)]
            for at, path in enumerate(traces)}  # fmt: skip
    whole, places = (sum(column) for column in zip(*rows.values(), strict=True))
    return {
        "date": pages.today(),
        "command": "python -m bench.bench_trace --places",
        "what": "milliseconds of processor time, the least of the runs: [read and diagnose, of that the places]",
        "runs": runs,
        "machine": machine(),
        "share": round(places / whole, 4),
        "largest_share": round(max(part / all_ for all_, part in rows.values()), 4),
        "traces": rows,
    }


PLACES = (
    (gobrrr.analysis.places.where, "where_time_goes"),
    (gobrrr.doors.pipeline, "listed"),
    (gobrrr.doors.pipeline, "place_of"),
    (gobrrr.doors.pipeline, "with_host"),
)
"""What makes the places: none of these calls another."""


def _clocked(function: Callable[..., Any], taken: list[float]) -> Callable[..., Any]:
    def timed(*args: Any) -> Any:
        start = time.process_time()
        try:
            return function(*args)
        finally:
            taken[0] += time.process_time() - start

    return timed


def _diagnosed(path: Path, taken: list[float]) -> tuple[float, float]:
    """(seconds of reading and diagnosing a trace, of that the places)."""
    taken[0], start = 0.0, time.process_time()
    gobrrr.diagnose(str(path))
    return time.process_time() - start, taken[0]


def shipped() -> list[Path]:
    return sorted(SHIPPED.glob("*.json.gz"))


def largest_shipped() -> Path:
    return max(shipped(), key=lambda path: path.stat().st_size)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, nargs="?", default=largest_shipped())
    parser.add_argument("--target-mb", type=float, default=TARGET_MB)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--places", action="store_true")
    options = parser.parse_args(arguments)
    before = pages.read(options.out) if options.out.is_file() else {}
    if options.places:
        results = {**before, "places": place_cost(shipped(), options.runs)}
    else:
        results = measure(options.source, options.target_mb, options.runs)
        results |= {key: before[key] for key in ("places",) if key in before}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    pages.write(options.out, results)
    print(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
