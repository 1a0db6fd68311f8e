"""How long the trace door takes on a large trace, as whole processes, beside `json.loads` of the same file.

    python -m bench.bench_trace [SOURCE] [--target-mb 383] [--runs 5] [--out bench/results/trace_reading.json]

SOURCE is the trace that is copied until it is large enough: by default the largest of the shipped ones.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.make_trace import copies_for, read_source, write_copies
from bench.process import run, summary

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ROOT / "src" / "gobrrr" / "data" / "h100"
RESULTS = ROOT / "bench" / "results" / "trace_reading.json"
TARGET_MB = 383.0
RUNS = 5

JSON_LOADS = "import json, sys; json.loads(open(sys.argv[1], 'rb').read())"


def commands(trace: Path) -> dict[str, list[str]]:
    """What is timed, by the name it has in the results."""
    python = sys.executable
    return {
        "diagnose": [python, "-m", "gobrrr.cli", "diagnose", str(trace), "--json"],
        "json_loads": [python, "-c", JSON_LOADS, str(trace)],
        "help": [python, "-m", "gobrrr.cli", "--help"],
        "import": [python, "-c", "import gobrrr"],
        "python": [python, "-c", "pass"],
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
    """Build the trace, time every command `runs` times in turn, and return the results."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        cut = read_source(source)
        copies = copies_for(cut, target_mb)
        events = write_copies(cut, copies, trace)
        size = trace.stat().st_size
        del cut
        times = _time(commands(trace), runs)
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "command": "gobrrr diagnose trace.json --json",
        "trace": {"source": source.name, "copies": copies, "events": events, "mb": round(size / 1e6, 1)},
        "machine": machine(),
        **times,
    }


def _time(timed: dict[str, list[str]], runs: int) -> dict[str, dict[str, float | int | None]]:
    """Interleaved, so that a slow spell of the machine falls on all of them; the first round only warms up."""
    rounds = [{name: run(command) for name, command in timed.items()} for _ in range(runs + 1)][1:]
    return {name: summary([each[name] for each in rounds]) for name in timed}


def largest_shipped() -> Path:
    return max(SHIPPED.glob("*.json.gz"), key=lambda path: path.stat().st_size)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, nargs="?", default=largest_shipped())
    parser.add_argument("--target-mb", type=float, default=TARGET_MB)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    results = measure(options.source, options.target_mb, options.runs)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
