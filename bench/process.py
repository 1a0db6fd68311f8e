"""Whole processes: their answers, and their wall time with the peak of their memory and their children's."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.pages import ROOT

POLL_S = (0.001, 0.01)
"""Between two looks at the memory: a twentieth of the time so far, within these bounds."""

LONGEST_S = 300.0
"""Seconds that a process may take to answer."""

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class CommandFailedError(RuntimeError):
    """The command ended with another status than 0: its time means nothing."""


def answer(
    module: str, *arguments: str, limit_s: float = LONGEST_S, environment: dict[str, str] | None = None
) -> dict[str, Any]:
    """What `python -m MODULE` prints as JSON in its last line, run in a process of its own; else what went wrong."""
    paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **(environment or {})}
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit_s, check=False, env=settings, cwd=ROOT
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no result within {limit_s:g} s"}
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return {"error": (done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1]}
    row: dict[str, Any] = json.loads(lines[-1])
    return row


@dataclass(frozen=True)
class Run:
    """One run. `peak_rss_bytes` sums the resident sets of the process tree, as polled; a shared page counts in each.

    It is None where the command ended before the first look.
    """

    wall_s: float
    peak_rss_bytes: int | None


def run(command: Sequence[str], *, environment: dict[str, str] | None = None) -> Run:
    """Run `command` with its output thrown away. Raises CommandFailedError, with what it wrote to stderr."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    peak = _Peak(process.pid)
    peak.start()
    _, error = process.communicate()
    wall_s = time.perf_counter() - start
    peak.stop()
    if process.returncode:
        said = error.decode(errors="replace").strip()
        raise CommandFailedError(f"{' '.join(command)}: exit status {process.returncode}\n{said}")
    return Run(wall_s=wall_s, peak_rss_bytes=peak.bytes or None)


def summary(runs: Sequence[Run]) -> dict[str, float | int | None]:
    """Minimum, median and maximum of the wall times, and the largest memory."""
    walls = sorted(each.wall_s for each in runs)
    peaks = [each.peak_rss_bytes for each in runs if each.peak_rss_bytes is not None]
    return {
        "runs": len(walls), "wall_s_min": round(walls[0], 4), "wall_s_median": round(statistics.median(walls), 4),
        "wall_s_max": round(walls[-1], 4), "peak_rss_mb": round(max(peaks) / 1e6, 1) if peaks else None,
    }  # fmt: skip


class _Peak(threading.Thread):
    """Polls /proc while the process lives."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.bytes = 0
        self._done = threading.Event()

    def run(self) -> None:
        start, (low, high) = time.perf_counter(), POLL_S
        while not self._done.wait(min(max(low, (time.perf_counter() - start) / 20), high)):
            self.bytes = max(self.bytes, sum(map(_resident_bytes, _tree(self.pid))))

    def stop(self) -> None:
        self._done.set()
        self.join()


def _tree(pid: int) -> list[int]:
    """The process and all that it started."""
    children: list[int] = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        children.extend(int(child) for child in _read(listing).split())
    return [pid, *(each for child in children for each in _tree(child))]


def _resident_bytes(pid: int) -> int:
    fields = _read(Path(f"/proc/{pid}/statm")).split()
    return int(fields[1]) * PAGE_BYTES if len(fields) > 1 else 0


def _read(path: Path) -> str:
    """Empty when the process has ended meanwhile."""
    try:
        return path.read_text()
    except OSError:
        return ""
