"""Workloads treated by `gobrrr.treat`, and for some the best that the same treatments give when tried exhaustively.

    python -m bench.gpu.treat OUT                                      # all workloads, as far as the time reaches
    python -m bench.gpu.treat OUT --only a,b --exhaustive a,b          # these, and exhaustively
    python -m bench.gpu.treat OUT --gpus 2                             # two at a time, each with a GPU of its own
    python -m bench.gpu.treat OUT --warm 8                             # compile first, eight processes side by side
    python -m bench.gpu.treat OUT --device cpu --tiny --only mlp_tiny  # tries the script
    python -m bench.gpu.treat --list                                   # what there is

Writes OUT/h100_treat.json after each workload (whatever the GPU, which the record names; bench/results has a file for
each kind), and to OUT/h100_treat.log what its processes printed. What the first holds already stays and is not run
again (unless --again): copy the file of an earlier call into OUT to go on with it. Each workload has a process of its
own and a time limit; one that fails is recorded with its error. The whole ends within --deadline-s. With --gpus the
workloads share nothing but the host's memory: each GPU has its part of the processor's cores. With --warm the
compiler's cache on disk is filled first (--filled: an earlier call did): what compiling took is then less than at a
first time, and the record says so. bench/treat_table.py makes the page of it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import gobrrr
from bench.gpu.treat_form import DEVICE, KNOWN, TINY
from bench.gpu.treat_one import SOURCES as SOURCES
from bench.gpu.treat_one import slim_trial

FILE, LOG = "h100_treat.json", "h100_treat.log"
LEAST_S = 45.0
"""No workload is begun with less time left: it would end before its first trial."""

OVERHEAD_S = 75.0
"""What a process may take beyond its budget: starting, building the model, the trial that is under way."""

WARM_S = 150.0
"""What filling the compiler's cache may take; what has not begun by then is left to the trials."""

GRACE_S = 10.0
"""What a process that is interrupted has to write down what it knows."""

LOGGED = 20000
"""Characters of a process's output that the log keeps."""

TOLD = 1200
"""Characters of a failed process's output that are kept."""


@dataclass
class Run:
    """What one call does: where, how long, and the record as it stands."""

    out: Path
    device: str
    tiny: bool
    deadline_s: float
    budget_s: float
    exhaustive_s: float
    again: bool
    warm: int = 0
    commit: str | None = None
    warmed: set[str] = field(default_factory=set)
    begun: float = field(default_factory=time.monotonic)
    record: dict[str, Any] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline_s - (time.monotonic() - self.begun)

    def save(self) -> None:
        """The record to the disk, in one move: a call that is cut short leaves a whole file."""
        fresh = self.out / (FILE + ".new")
        fresh.write_text(json.dumps(self.record, indent=1) + "\n", encoding="utf-8")
        fresh.replace(self.out / FILE)

    def log(self, words: list[str], told: str) -> None:
        """The end of what a process printed, for whoever asks later how it came to its result."""
        with self.lock, (self.out / LOG).open("a", encoding="utf-8") as file:
            file.write(f"== {' '.join(words[:2])}\n{told}\n")

    def note(self, name: str, what: str, found: dict[str, Any]) -> None:
        """What was found of a workload into the record, and a line of it."""
        with self.lock:
            self.record["workloads"][name][what] = found
            self.save()
        print(told(name, what, found), flush=True)


@dataclass(frozen=True)
class Lane:
    """A GPU and the cores that are its own; None: all that there is."""

    gpu: int | None = None
    cores: tuple[int, ...] = ()

    def prefix(self) -> list[str]:
        """What a command begins with to keep to these cores."""
        return ["taskset", "--cpu-list", ",".join(map(str, self.cores))] if self.cores else []

    def environment(self) -> dict[str, str]:
        """The one GPU that a process is to see, of those that this one may."""
        if self.gpu is None:
            return {}
        mine = names(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
        return {"CUDA_VISIBLE_DEVICES": mine[self.gpu] if self.gpu < len(mine) else str(self.gpu)}


def lanes_of(gpus: int) -> list[Lane]:
    """One for each GPU, with neighbouring cores."""
    if gpus < 2:
        return [Lane()]
    cores = sorted(os.sched_getaffinity(0))
    each = len(cores) // gpus
    return [Lane(number, tuple(cores[number * each : (number + 1) * each])) for number in range(gpus)]


def machine(device: str) -> dict[str, Any]:
    """Device and driver by name, without a context on the GPU, which the children need whole."""
    if device == "cpu":
        return {"device": "cpu", "driver": None}
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    told = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True).stdout.splitlines()[0]
    name, driver = (one.strip() for one in told.split(","))
    return {"device": name, "driver": driver}


def commit() -> str | None:
    """The code that measures, where it is a clone."""
    asked = ["git", "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def record_of(run: Run) -> dict[str, Any]:
    """The record so far with what this call runs on; entries of earlier calls carry their own device and date."""
    path = run.out / FILE
    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"workloads": {}}
    return {
        **machine(run.device),
        "torch": torch.__version__,
        "gobrrr": gobrrr.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "command": "python -m bench.gpu.treat OUT",
        "commit": run.commit or commit(),
        "tiny": run.tiny,
        "workloads": before["workloads"],
    }


def child(run: Run, lane: Lane, words: list[str], limit_s: float) -> tuple[int | None, str]:
    """Run a module in a process of its own; (its status, the end of its output), status None where it ran too long."""
    environment = os.environ | {DEVICE: run.device, TINY: "1" if run.tiny else ""} | lane.environment()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as told:
        process = subprocess.Popen(
            [*lane.prefix(), sys.executable, "-m", *words], stdout=told, stderr=subprocess.STDOUT, env=environment,
            start_new_session=True,
        )  # fmt: skip
        try:
            status = waited(process, limit_s)
        finally:
            # what it started is of its session, and must not stay on the GPU beside the next workload
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        told.seek(0)
        return status, told.read()[-LOGGED:]


def waited(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
    """The status of a process; interrupted near its limit, after which it may tell what it knows. None: it did not."""
    try:
        return process.wait(timeout=max(1.0, limit_s - GRACE_S))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        return 0 if process.wait(timeout=GRACE_S) == 0 else None
    except subprocess.TimeoutExpired:
        return None


def ran(run: Run, lane: Lane, words: list[str], part: Path, limit_s: float) -> dict[str, Any]:
    """What a child left in `part`, with its error where it failed."""
    begin = time.monotonic()
    status, told = child(run, lane, words, limit_s)
    found: dict[str, Any] = {}
    if part.is_file():
        with contextlib.suppress(ValueError):  # cut short while it was written: there is an error then
            found = json.loads(part.read_text(encoding="utf-8"))
    if status == 0 and not found:
        status = 1
    if status != 0:
        print(told, flush=True)
        reason = f"ended after its limit of {limit_s:.0f} s" if status is None else f"ended with status {status}"
        found |= {"error": reason, "told": told[-TOLD:]}
    run.log(words, told)
    about = {key: run.record[key] for key in ("device", "driver", "torch", "date", "commit") if run.record[key]}
    if words[1] in run.warmed:
        about["compiler_cache"] = "filled before"
    return {**found, **about, "process_s": round(time.monotonic() - begin, 1)}


def treat(run: Run, lane: Lane, name: str, folder: Path) -> dict[str, Any]:
    """One workload by gobrrr.treat. Its ledger is its own: no trial of another workload widens its predictions."""
    budget = max(5.0, min(run.budget_s, run.left() - LEAST_S / 2))
    part, ledger = folder / f"{name}.json", folder / name
    words = ["bench.gpu.treat_one", name, str(part), "--budget-s", f"{budget:.0f}", "--ledger", str(ledger), "--stages"]
    found = ran(run, lane, words, part, min(budget * 1.25 + OVERHEAD_S, run.left()))
    if "error" in found and "trials" not in found:
        found["trials"] = salvaged(ledger)
    return found


def salvaged(ledger: Path) -> list[dict[str, Any]]:
    """The trials that a process had written down before it ended early, oldest first."""
    files = sorted(ledger.rglob("*.json"), key=lambda path: path.stat().st_mtime)
    read = []
    for path in files:
        with contextlib.suppress(ValueError):  # cut short
            read.append(json.loads(path.read_text(encoding="utf-8")))
    return [slim_trial(one) for one in read if "way" in one and "verdict" in one]


def exhaust(run: Run, lane: Lane, name: str, entry: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One workload exhaustively; goes on where an earlier call stopped."""
    part, earlier = folder / f"{name}.exhaustive.json", folder / f"{name}.earlier.json"
    before = {} if run.again else resumable(entry)
    earlier.write_text(json.dumps({"kept": entry["treat"]["kept"], "exhaustive": before}), encoding="utf-8")
    seconds = max(5.0, min(run.exhaustive_s, run.left() - LEAST_S))
    words = ["bench.gpu.treat_exhaustive", name, str(part), "--earlier", str(earlier), "--seconds", f"{seconds:.0f}"]
    before.pop("begun", None)  # the child says what it began
    return {**before, **ran(run, lane, words, part, min(seconds * 1.1 + OVERHEAD_S, run.left()))}


def resumable(entry: dict[str, Any]) -> dict[str, Any]:
    """What an earlier call measured exhaustively; its error and the time of another treatment are not gone on with."""
    before = dict(entry.get("exhaustive", {}))
    for key in ("error", "told"):
        before.pop(key, None)
    if before.get("treat_kept") != entry["treat"]["kept"]:
        before.pop("ratio", None)
    return before


def unfinished(entry: dict[str, Any]) -> bool:
    """Whether exhaustive trials are left, or treat's result was not held against the best of them."""
    before = resumable(entry)
    return "ratio" not in before or bool(before.get("left"))


def told(name: str, what: str, found: dict[str, Any]) -> str:
    """The progress line of a workload."""
    if "error" in found:
        return f"{name:22} {what:10} FAILED: {found['error']}"
    if what == "treat":
        times = (found.get("step_before_ns"), found.get("step_after_ns"))
        shown = " -> ".join("?" if one is None else f"{one / 1e6:.3f}" for one in times)
        kept = ", ".join(found["kept"]) or "nothing"
        return f"{name:22} {what:10} {shown} ms, {found['n_trials']} trials, kept {kept}; {found['process_s']} s"
    best, ratio = " + ".join(found.get("best", [])) or "nothing", found.get("ratio")
    return (
        f"{name:22} {what:10} best {best}, {len(found.get('trials', []))} trials, {len(found.get('left', []))} left; "
        f"best's step / treat's {'?' if ratio is None else f'{ratio:.3f}'}; {found['process_s']} s"
    )


def one(run: Run, lane: Lane, name: str, thorough: bool, folder: Path) -> bool:
    """All that is to be done for a workload; whether nothing failed."""
    entry = run.record["workloads"][name]
    well = True
    if run.again or "treat" not in entry or "error" in entry["treat"]:
        run.note(name, "treat", treat(run, lane, name, folder))
        well = "error" not in entry["treat"]
    if thorough and "kept" in entry["treat"] and run.left() > LEAST_S and (run.again or unfinished(entry)):
        run.note(name, "exhaustive", exhaust(run, lane, name, entry, folder))
        well = well and "error" not in entry["exhaustive"]
    return well


def warm(run: Run, lanes: list[Lane], chosen: list[str], thorough: list[str]) -> None:
    """Compile what the chosen workloads may be treated with, several at a time, so that it is in the compiler's cache.

    Those of which nothing is measured anew have it in vain, and are left out.
    """
    begin = time.monotonic()
    known = {name: entry.get("treat", {}) for name, entry in run.record["workloads"].items()}
    todo = [one for one in chosen if run.again or one in thorough or not known[one] or "error" in known[one]]

    def one(number: int) -> None:
        left = min(WARM_S - (time.monotonic() - begin), run.left() - LEAST_S)
        if left > 0:
            status, _ = child(run, lanes[number % len(lanes)], ["bench.gpu.treat_warm", todo[number]], left)
            if status == 0:
                run.warmed.add(todo[number])

    with ThreadPoolExecutor(run.warm) as pool:
        list(pool.map(one, range(len(todo))))
    done = len(run.warmed & set(todo))
    print(f"compiled {done} of {len(todo)} workloads before: {time.monotonic() - begin:.0f} s", flush=True)


def execute(run: Run, lanes: list[Lane], chosen: list[str], thorough: list[str]) -> bool:
    """Treat the chosen workloads; the record grows on disk with each of them. Whether nothing failed."""
    run.out.mkdir(parents=True, exist_ok=True)
    run.record = record_of(run)
    for name in chosen:
        run.record["workloads"].setdefault(name, {"what": KNOWN[name].what, "gains": KNOWN[name].gains})
    if run.warm:
        warm(run, lanes, chosen, thorough)
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in chosen:
        waiting.put(name)

    def work(lane: Lane) -> bool:
        well = True
        while True:
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                return well
            if run.left() <= LEAST_S:
                print(f"{name:22} no time left", flush=True)
                continue
            well = one(run, lane, name, name in thorough, Path(folder)) and well

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(lanes)) as pool:
        well = all(list(pool.map(work, lanes)))
    run.save()
    print(f"total {time.monotonic() - run.begun:.0f} s")
    return well


def names(text: str) -> list[str]:
    """Names with commas between them."""
    return [one for one in text.split(",") if one]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--only", default="", help="workloads; all of them, or those of --exhaustive where it is given")
    parser.add_argument("--exhaustive", default="", help="workloads that are tried exhaustively as well")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--gpus", type=int, default=1, help="GPUs that work at the same time, each on one workload")
    parser.add_argument(
        "--warm", type=int, default=0, metavar="N", help="fill the compiler's cache by N processes first"
    )
    parser.add_argument("--filled", action="store_true", help="an earlier call filled it: the record says so")
    parser.add_argument("--tiny", action="store_true", help="sizes that a CPU does in a moment")
    parser.add_argument("--deadline-s", type=float, default=540.0, help="the whole ends within it")
    parser.add_argument("--budget-s", type=float, default=60.0, help="what gobrrr.treat may take for a workload")
    parser.add_argument("--exhaustive-s", type=float, default=300.0, help="what the exhaustive trials of one may take")
    parser.add_argument("--commit", help="the code that measures, where it is no clone")
    parser.add_argument("--again", action="store_true", help="run again what the file holds already")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    if given.list:
        for known in KNOWN.values():
            print(f"{known.name:22} {known.target:46} {known.what}")
        return 0
    if given.out is None:
        parser.error("OUT is missing")
    thorough = names(given.exhaustive)
    chosen = names(given.only) or thorough or list(KNOWN)
    unknown = sorted({*chosen, *thorough} - set(KNOWN))
    if unknown:
        parser.error(f"no such workload: {', '.join(unknown)}")
    chosen += [name for name in thorough if name not in chosen]
    run = Run(given.out, given.device, given.tiny, given.deadline_s, given.budget_s, given.exhaustive_s, given.again,
              given.warm, given.commit, set(chosen) if given.filled else set())  # fmt: skip
    if given.warm and given.filled:
        parser.error("--filled says that --warm is not needed")
    if given.gpus > 1 and shutil.which("taskset") is None:
        parser.error("--gpus needs taskset, of util-linux")
    return 0 if execute(run, lanes_of(given.gpus), chosen, thorough) else 1


if __name__ == "__main__":
    sys.exit(main())
