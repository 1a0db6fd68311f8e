"""Workloads measured in processes of their own, with a deadline, into a record that a later call goes on with.

What bench/gpu/treatments.py, treat.py and issue_time.py share. Each workload has a process: several compile at the same
time, and one at a time has the device (bench/gpu/treatments_turns.py). A process that fails, hangs or holds the device
for too long is ended and, where anything is left, begun again without what it was at. OUT has a file of results named
by the device, which grows with each workload, a zip file with the profiles that are new, and a log of what the
processes printed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import zipfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import gobrrr
from bench.gpu.treatment_workloads import HELD_BACK, KNOWN, Entry
from bench.gpu.treatments_one import LOOKED
from gobrrr.hardware.measure.device import cpu_name

RESULTS = Path(__file__).resolve().parents[1] / "results"
PROFILE = ".profile.xz"

RESERVED = 4
"""Cores that a process which waits for its turn leaves to the one that has it."""

OVER, STATUS = "the time was over", "ended with status "
LOOKED_AT = f"{STATUS}{LOOKED}"

HELD_S = 80.0
"""How long a process may hold the device at one time: chosen, not measured."""

HOPELESS = 3
"""When the first so many workloads all fail, something is wrong with the machine or the code: the rest is left."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What is measured of each workload. `kind` begins the names of the files, `module` measures one workload.

    `told` says in one line what was found; without `profiles` a process goes on from the record alone.
    """

    kind: str
    module: str
    told: Callable[[str, dict[str, Any]], str]
    each_s: float
    """Seconds of the device for a workload, unless the call says otherwise."""

    least_s: float
    """No workload is begun with less time left."""

    process_s: float = 500.0
    """What a process may take in all, waiting for its turns with it."""

    starts: int = 3
    """How often a workload's measuring is begun, at most."""

    side_by_side: int = 6
    """Processes at once on a GPU machine. On a CPU, which is the device, it is one; with more, each has its own
    cores."""

    profiles: bool = True


@dataclass
class Run:
    """One call: what it was asked for, and the record as it stands. `more`: further arguments of each process."""

    bench: Bench
    asked: argparse.Namespace
    more: tuple[str, ...] = ()
    begun: float = field(default_factory=time.monotonic)
    record: dict[str, Any] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def stem(self) -> str:
        """The name of the files."""
        return f"{self.bench.kind}_{slug(self.record['device'])}"

    @property
    def packed(self) -> Path:
        """The file with the new profiles."""
        return self.asked.out / f"{self.stem}.profiles.zip"

    def stored(self, name: str) -> bytes | None:
        """A profile that an earlier call stored."""
        path = RESULTS / self.stem / name
        if path.is_file():
            return path.read_bytes()
        if self.packed.is_file():
            with self.lock, zipfile.ZipFile(self.packed) as file:
                return file.read(name) if name in file.namelist() else None
        return None

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.asked.seconds - (time.monotonic() - self.begun)

    def note(self, name: str, found: dict[str, Any], profile: Path, told: str) -> None:
        """A workload's result, profile and output to the disk, in one move: a call that is cut leaves whole files."""
        with self.lock:
            self.record["workloads"][name] = found
            self.done.append(name)
            fresh = self.asked.out / f"{self.stem}.new"
            fresh.write_text(json.dumps(self.record, indent=1) + "\n", encoding="utf-8")
            fresh.replace(self.asked.out / f"{self.stem}.json")
            with (self.asked.out / f"{self.bench.kind}.log").open("a", encoding="utf-8") as file:
                file.write(f"== {name}\n{told}\n")
            if profile.is_file():
                self.pack(profile)
        print(f"{time.monotonic() - self.begun:5.0f} s  {self.bench.told(name, found)}", flush=True)

    def pack(self, profile: Path) -> None:
        """A new profile into the file of them."""
        with warnings.catch_warnings(), zipfile.ZipFile(self.packed, "a", zipfile.ZIP_STORED) as file:
            warnings.simplefilter("ignore")  # of a name that is there twice: the last one counts
            if self.asked.again or profile.name not in file.namelist():
                file.write(profile, profile.name)


def machine(device: str) -> dict[str, Any]:
    """Device and driver by name, without a context on the GPU, which the children need whole."""
    if device == "cpu":
        return {"device": "cpu", "driver": None}
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    told = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True).stdout.splitlines()[0]
    name, driver = (part.strip() for part in told.split(","))
    return {"device": name, "driver": driver}


def commit() -> str | None:
    """The code that measures, where it is a clone."""
    asked = ["git", "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def slug(device: str) -> str:
    """The short name of a device: "NVIDIA H100 80GB HBM3" is h100."""
    found = re.search(r"\b([A-Z]+\d+\w*)\b", device.replace("NVIDIA", ""))
    return found[1].lower() if found else re.sub(r"\W+", "_", device.lower()).strip("_")


def earlier(out: Path, stem: str) -> dict[str, Any]:
    """The workloads of the file that OUT has, else of the repository's."""
    for folder in (out, RESULTS):
        path = folder / f"{stem}.json"
        if path.is_file():
            return dict(json.loads(path.read_text(encoding="utf-8"))["workloads"])
    return {}


def ordered(entries: list[Entry]) -> list[str]:
    """One of each family, then the next of each: a call that is cut short has something of all."""
    count: dict[str, int] = {}
    ranked = []
    for entry in entries:
        count[entry.family] = count.get(entry.family, 0) + 1
        ranked.append((count[entry.family], entry.name))
    return [name for _, name in sorted(ranked, key=lambda pair: pair[0])]


def unfinished(found: dict[str, Any] | None) -> bool:
    """Whether anything of a workload is left to be measured."""
    return found is None or "error" in found or bool(found.get("left"))


def environment(run: Run, folder: Path, name: str) -> dict[str, str]:
    """A process's own caches, which no other one locks, and its share of the cores for its compiler's processes."""
    cache, cores = folder / "cache" / name, len(os.sched_getaffinity(0)) - RESERVED
    threads = max(1, cores // run.asked.side_by_side) if run.asked.device != "cpu" else 1
    return os.environ | {
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"), "TRITON_CACHE_DIR": str(cache / "triton"),
        "TORCHINDUCTOR_COMPILE_THREADS": str(threads), "PYTHONUNBUFFERED": "1", "GOBRRR_BENCH_COMMIT": run.asked.commit,
        "GOBRRR_BENCH_ENDS": str(time.time() + run.left()),
    }  # fmt: skip


def command(run: Run, folder: Path, name: str) -> list[str]:
    """What measures one workload."""
    cores = sorted(os.sched_getaffinity(0))
    shared = run.asked.side_by_side > 1 and run.asked.device != "cpu" and len(cores) >= 3 * RESERVED
    beside = ",".join(map(str, cores[RESERVED:])) if shared else ""
    words = [sys.executable, "-m", run.bench.module, name, str(folder), "--lock", str(folder / "turn"),
             "--beside", beside, "--each-s", str(run.asked.each_s), "--device", run.asked.device,
             *run.more]  # fmt: skip
    return [*own_cores(run, folder), *words, *(["--tiny"] if run.asked.tiny else [])]


def own_cores(run: Run, folder: Path) -> list[str]:
    """What keeps a process to its worker's cores on a CPU; the worker's folder is named by its number."""
    if run.asked.device != "cpu" or run.asked.side_by_side == 1:
        return []
    cores = sorted(os.sched_getaffinity(0))
    each = len(cores) // run.asked.side_by_side
    at = int(folder.name) * each
    return ["taskset", "-c", ",".join(map(str, cores[at : at + each]))]


def measured(run: Run, folder: Path, name: str) -> None:
    """One workload, begun again where its process ended early and something is left."""
    part, profile = folder / f"{name}.json", folder / f"{name}{PROFILE}"
    before = run.record["workloads"].get(name)
    stored = run.stored(profile.name) if run.bench.profiles else None
    if before is not None and not run.asked.again and (stored is not None or not run.bench.profiles):
        part.write_text(json.dumps({key: value for key, value in before.items() if key not in ("error", "told")}))
    if stored is not None:
        profile.write_bytes(stored)
    told, why, said = "", "", ""
    for _ in range(run.bench.starts):
        why, said = child(run, folder, name)
        told += said
        if why == LOOKED_AT:
            why, said = child(run, folder, name)
            told += said
        if why in ("", OVER) or run.left() < run.bench.least_s:
            break
    found = json.loads(part.read_text()) if part.is_file() else {}
    if why in (OVER, LOOKED_AT):
        found.pop("begun", None)  # it is not its fault
        found.setdefault("left", ["what the time did not reach"])
    elif why:
        found |= {"error": why, "told": said[-1200:]}
    else:
        found.pop("error", None)
    entry = KNOWN[name]
    about = {"what": entry.what, "family": entry.family, "held_back": name in HELD_BACK}
    about |= {key: run.record[key] for key in ("torch", "driver", "date", "commit") if run.record[key]}
    run.note(name, {**about, **found}, profile, told)


def child(run: Run, folder: Path, name: str) -> tuple[str, str]:
    """(why the process ended early, "" where it did not; what it printed)."""
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as told:
        process = subprocess.Popen(
            command(run, folder, name), stdout=told, stderr=subprocess.STDOUT, start_new_session=True,
            env=environment(run, folder, name),
        )  # fmt: skip
        why = ""
        while process.poll() is None and not why:
            time.sleep(0.2)
            if process.poll() is None:
                why = over(run, process.pid, folder / "turn", time.monotonic() - begin)
        end(process)
        told.seek(0)
        said = told.read()
    return why or ("" if process.returncode == 0 else f"{STATUS}{process.returncode}"), said


def over(run: Run, process: int, turn: Path, seconds: float) -> str:
    """Why a process must end now, "" where it may go on."""
    if run.left() <= 0:
        return OVER
    if seconds > run.bench.process_s:
        return f"ended after {run.bench.process_s:.0f} s"
    words = turn.read_text().split() if turn.is_file() else []
    mine = run.asked.side_by_side > 1 and len(words) == 2 and int(words[0]) == process
    if mine and time.time() - float(words[1]) > HELD_S:
        return f"held the device for {HELD_S:.0f} s"
    return ""


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it started, which must not stay on the device."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def hopeless(run: Run) -> bool:
    """Whether whatever this call measured has failed."""
    done = [run.record["workloads"][name] for name in run.done]
    return len(done) >= HOPELESS and all("error" in found for found in done)


def execute(run: Run, chosen: list[str]) -> None:
    """Measure the chosen workloads, as far as the time reaches."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in chosen:
        waiting.put(name)

    def work(folder: Path) -> None:
        while run.left() > run.bench.least_s and not hopeless(run):
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                return
            measured(run, folder, name)

    workers = run.asked.side_by_side
    with tempfile.TemporaryDirectory(prefix="gobrrr-bench-") as made, ThreadPoolExecutor(workers) as pool:
        alone = run.asked.device == "cpu"  # on a CPU nobody waits for a turn: each worker has cores of its own
        folders = [Path(made, str(number)) if alone else Path(made) for number in range(workers)]
        for folder in folders:
            folder.mkdir(exist_ok=True)
        for future in [pool.submit(work, folder) for folder in folders]:
            future.result()


def take(out: Path, kind: str) -> int:
    """What a call left in OUT into bench/results."""
    for path in sorted(out.glob(f"{kind}_*.json")):
        if json.loads(path.read_text(encoding="utf-8"))["tiny"]:
            print(f"{path} is of tiny sizes, which tell nothing: left where it is", file=sys.stderr)
            return 2
        shutil.copy(path, RESULTS / path.name)
        print(f"bench/results/{path.name}")
        packed, folder = out / f"{path.stem}.profiles.zip", RESULTS / path.stem
        if packed.is_file():
            folder.mkdir(exist_ok=True)
            with zipfile.ZipFile(packed) as file:
                for name in file.namelist():
                    (folder / Path(name).name).write_bytes(file.read(name))
            print(f"{len(list(folder.iterdir()))} profiles in bench/results/{path.stem}")
    return 0


def begin(run: Run) -> dict[str, Any]:
    """The record with what this call runs on; the workloads that are known, which are in it."""
    run.asked.out.mkdir(parents=True, exist_ok=True)
    run.record = {
        **machine(run.asked.device), "torch": torch.__version__, "gobrrr": gobrrr.__version__,
        "date": time.strftime("%Y-%m-%d"), "command": f"python -m {run.bench.module.removesuffix('_one')} OUT",
        "commit": run.asked.commit, "tiny": run.asked.tiny, "held_back": sorted(HELD_BACK),
        "side_by_side": run.asked.side_by_side, "processor": cpu_name(), "cores": len(os.sched_getaffinity(0)),
    }  # fmt: skip
    run.record["workloads"] = earlier(run.asked.out, run.stem)
    return run.record["workloads"]


def measure(run: Run, wanted: list[str]) -> None:
    """Measure those of the wanted workloads that are not done, and print what is known of all."""
    known = run.record["workloads"]
    todo = [name for name in wanted if run.asked.again or unfinished(known.get(name))]
    about = f"{len(todo)} workloads to measure, {len(known)} known, {run.asked.seconds:.0f} s"
    print(f"{run.record['device']}: {about}", flush=True)
    execute(run, todo)
    print("\n".join(run.bench.told(name, found) for name, found in run.record["workloads"].items()))


def parser(doc: str | None, bench: Bench) -> argparse.ArgumentParser:
    """The arguments that every bench of workloads takes."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("out", type=Path, nargs="?", help="where the results go")
    made.add_argument("--seconds", type=float, default=540.0, help="the whole ends within this time (540)")
    made.add_argument("--each-s", type=float, default=bench.each_s,
                      help=f"seconds of the device for a workload ({bench.each_s:g})")  # fmt: skip
    made.add_argument("--only", default="", help="names, separated by commas")
    made.add_argument("--again", action="store_true", help="also what is measured already")
    made.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    made.add_argument("--tiny", action="store_true", help="at sizes that a CPU does in a moment")
    made.add_argument("--side-by-side", type=int, default=0,
                      help=f"processes at once ({bench.side_by_side}; on a CPU 1)")  # fmt: skip
    made.add_argument("--commit", default=None, help="of the code, where this is no clone")
    made.add_argument("--list", action="store_true", help="print the workloads")
    made.add_argument("--take", action="store_true", help="copy what OUT holds into bench/results")
    return made


def asked_of(made: argparse.ArgumentParser, bench: Bench, known: Iterable[str], *named: str) -> argparse.Namespace:
    """What a call asks for, with the names in the options `named` as lists; ends the program where one is unknown."""
    asked = made.parse_args()
    if asked.out is None and not asked.list:
        made.error("OUT is missing: where the results go")
    for option in named:
        setattr(asked, option, [name for name in getattr(asked, option).split(",") if name])
    unknown = [name for option in named for name in getattr(asked, option) if name not in known]
    if unknown:
        made.error(f"no workload is called {', '.join(unknown)}; --list has them")
    asked.side_by_side = asked.side_by_side or (bench.side_by_side if asked.device == "cuda" else 1)
    asked.commit = asked.commit or commit() or ""
    return asked
