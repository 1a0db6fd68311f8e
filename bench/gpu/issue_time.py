"""What the host takes to issue one step to an idle device, for each of the bench's workloads for a GPU.

    python -m bench.gpu.issue_time OUT --seconds 540                     # as far as the time reaches
    python -m bench.gpu.issue_time OUT --seconds 540 --only a,b --again  # these anew
    python -m bench.gpu.issue_time OUT --device cpu --tiny --only a      # tries the script

Goes on where OUT, or else bench/results, stops. Writes OUT/issue_h200.json, named by the device, after each workload,
and OUT/issue_h200.profiles.zip with their profiles. What is measured of a workload, and how, is in
bench/gpu/issue_time_one.py. No treatment is applied here.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bench.gpu.issue_time_one import PROFILE
from bench.gpu.treatment_workloads import ENTRIES, HELD_BACK
from bench.gpu.treatments import RESERVED, RESULTS, commit, machine, ordered, slug
from gobrrr.hardware.measure.device import cpu_name

SIDE_BY_SIDE = 3
"""Processes at once on a GPU machine: one has the device, the others load torch on cores of their own."""

LEAST_S = 20.0
"""No workload is begun with less time left."""

PROCESS_S = 90.0
"""What a process may take in all, waiting for its turn with it."""


@dataclass
class Run:
    """What one call does, and the record as it stands."""

    out: Path
    device: str
    tiny: bool
    seconds: float
    each_s: float
    record: dict[str, Any]
    begun: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def path(self) -> Path:
        """The file of the results."""
        return self.out / f"issue_{slug(self.record['device'])}.json"

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.seconds - (time.monotonic() - self.begun)

    def note(self, name: str, found: dict[str, Any], profile: Path) -> None:
        """A workload's result and its profile to the disk, and a line of progress."""
        with self.lock:
            if profile.is_file():
                with warnings.catch_warnings(), zipfile.ZipFile(self.path.with_suffix(".profiles.zip"), "a") as file:
                    warnings.simplefilter("ignore")  # of a name that is there twice: the last one counts
                    file.write(profile, profile.name)
            self.record["workloads"][name] = found
            fresh = self.path.with_suffix(".new")
            fresh.write_text(json.dumps(self.record, indent=1) + "\n", encoding="utf-8")
            fresh.replace(self.path)
        print(f"{time.monotonic() - self.begun:5.0f} s  {line(name, found)}", flush=True)


def line(name: str, found: dict[str, Any]) -> str:
    """A workload in one line."""
    if "error" in found:
        return f"{name:28} FAILED: {found['error']}"
    return (
        f"{name:28} step {found['step_ns'] / 1e6:8.3f} ms, issued in {found['issue_ns'] / 1e6:8.3f} ms, done after "
        f"{found['alone_ns'] / 1e6:8.3f} ms, {found['waits']:.0f} waits; watched {found['watched_ns'] / 1e6:8.3f} ms"
    )


def measured(run: Run, folder: Path, name: str) -> None:
    """One workload, in a process of its own."""
    part, profile, entry = folder / f"{name}.json", folder / f"{name}{PROFILE}", ENTRIES[name]
    cores = sorted(os.sched_getaffinity(0))
    beside = ",".join(map(str, cores[RESERVED:])) if run.device != "cpu" and len(cores) >= 3 * RESERVED else ""
    words = [sys.executable, "-m", "bench.gpu.issue_time_one", name, str(folder), "--lock", str(folder / "turn"),
             "--beside", beside, "--seconds", str(run.each_s), "--device", run.device]  # fmt: skip
    about = {"family": entry.family, "held_back": name in HELD_BACK}
    about |= {key: run.record[key] for key in ("torch", "driver", "date", "commit") if run.record[key]}
    try:
        done = subprocess.run([*words, *(["--tiny"] if run.tiny else [])], capture_output=True, text=True, check=False,
                              timeout=max(min(PROCESS_S, run.left()), 1.0))  # fmt: skip
    except subprocess.TimeoutExpired:
        if run.left() > 0:
            run.note(name, {**about, "error": f"ended after {PROCESS_S:.0f} s"}, profile)
        return  # else it is not its fault, and the next call measures it
    if done.returncode or not part.is_file():
        said = {"error": f"ended with status {done.returncode}", "told": done.stderr[-1200:]}
        run.note(name, {**about, **said}, profile)
        return
    run.note(name, {**about, **json.loads(part.read_text(encoding="utf-8"))}, profile)


def execute(run: Run, chosen: list[str]) -> None:
    """Measure the chosen workloads, as far as the time reaches."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in chosen:
        waiting.put(name)

    def work(folder: Path) -> None:
        while run.left() > LEAST_S:
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                return
            measured(run, folder, name)

    workers = 1 if run.device == "cpu" else SIDE_BY_SIDE
    with tempfile.TemporaryDirectory(prefix="gobrrr-issue-") as made, ThreadPoolExecutor(workers) as pool:
        for one in [pool.submit(work, Path(made)) for _ in range(workers)]:
            one.result()


def earlier(path: Path) -> dict[str, Any]:
    """The workloads that were measured without an error, of OUT's file or else of the repository's."""
    for one in (path, RESULTS / path.name):
        if one.is_file():
            known = json.loads(one.read_text(encoding="utf-8"))["workloads"]
            return {name: found for name, found in known.items() if "error" not in found}
    return {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="where the results go")
    parser.add_argument("--seconds", type=float, default=540.0, help="the whole ends within this time (540)")
    parser.add_argument("--each-s", type=float, default=2.5, help="seconds of rounds for a workload (2.5)")
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--again", action="store_true", help="also what is measured already")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true", help="at sizes that a CPU does in a moment")
    parser.add_argument("--commit", default=None, help="of the code, where this is no clone")
    given = parser.parse_args()
    names = [one for one in given.only.split(",") if one]
    unknown = [name for name in names if name not in ENTRIES]
    if unknown:
        parser.error(f"no workload is called {', '.join(unknown)}; python -m bench.gpu.treatments --list has them")
    record = {
        **machine(given.device), "torch": torch.__version__, "date": time.strftime("%Y-%m-%d"),
        "command": "python -m bench.gpu.issue_time OUT", "commit": given.commit or commit() or "", "tiny": given.tiny,
        "processor": cpu_name(), "cores": len(os.sched_getaffinity(0)),
    }  # fmt: skip
    run = Run(given.out, given.device, given.tiny, given.seconds, given.each_s, record)
    run.out.mkdir(parents=True, exist_ok=True)
    known = record["workloads"] = {} if given.tiny else earlier(run.path)
    wanted = names or ordered([one for one in ENTRIES.values() if one.device == "cuda"])
    todo = [one for one in wanted if given.again or one not in known]
    print(f"{record['device']}: {len(todo)} workloads to measure, {len(known)} known, {run.seconds:.0f} s", flush=True)
    execute(run, todo)
    missing = [one for one in wanted if "issue_ns" not in known.get(one, {})]
    print(f"{run.path}: {len(known)} workloads; not measured: {', '.join(missing) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
