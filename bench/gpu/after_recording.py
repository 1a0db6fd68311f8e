"""What recording leaves behind: a training's steps after it was looked at, against those of one that nobody looked at.

    python -m bench.gpu.after_recording OUT.json [--seconds 150]

In turns, each time in a process of its own, the same training runs as it is; under `gobrrr run`, `gobrrr.watch` and
`gobrrr.diagnose`; and under `gobrrr run` with TEARDOWN_CUPTI=0, with which torch's profiler stays attached. Each run
prints the median of its last steps, long after the recording. Rounds go on while there is time for one more.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import pages
from bench.pages import ROOT

PROGRAM = Path(__file__).with_name("after_recording_training.py")
ARMS = ("as it is", "gobrrr run, attached", "gobrrr run", "gobrrr.watch", "gobrrr.diagnose")
ATTACHED = "gobrrr run, attached"


def milliseconds(arm: str, cache: str) -> float:
    """What a late step of the training takes under an arm."""
    paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "XDG_CACHE_HOME": cache}
    environment.pop("TEARDOWN_CUPTI", None)
    if arm == ATTACHED:
        environment["TEARDOWN_CUPTI"] = "0"
    under = ["-m", "gobrrr", "run", "--quiet"] if arm.startswith("gobrrr run") else []
    how = arm.partition(".")[2] if arm.startswith("gobrrr.") else "plain"
    done = subprocess.run(
        [sys.executable, *under, str(PROGRAM), how],
        capture_output=True, text=True, env=environment, cwd=ROOT, check=False, timeout=120,
    )  # fmt: skip
    found = [line.split() for line in done.stdout.splitlines() if line.startswith("late ")]
    if done.returncode or not found:
        raise SystemExit(f"{arm}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return float(found[0][1])


def rounds(seconds: float) -> list[dict[str, float]]:
    """Milliseconds a step by arm, round by round; each round begins with another arm."""
    found: list[dict[str, float]] = []
    began = longest = 0.0
    first = time.perf_counter()
    with tempfile.TemporaryDirectory() as cache:
        while not found or time.perf_counter() - first + longest < seconds:
            began = time.perf_counter()
            at = len(found) % len(ARMS)
            found.append({arm: milliseconds(arm, cache) for arm in (*ARMS[at:], *ARMS[:at])})
            longest = max(longest, time.perf_counter() - began)
            print(json.dumps(found[-1]), flush=True)
    return found


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=150.0)
    given = parser.parse_args()
    made = rounds(given.seconds)
    report = {
        "command": "python -m bench.gpu.after_recording",
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__,
        "date": pages.now(),
        "rounds": made,
        "median_ms": {arm: statistics.median(times[arm] for times in made) for arm in ARMS},
    }
    pages.write(given.out, report)
    print(json.dumps(report["median_ms"], indent=1))


if __name__ == "__main__":
    main()
