"""How many threads and processors the program has, and whether it has to share them."""

from __future__ import annotations

import multiprocessing.process
import os
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from gobrrr.model.live import Threads
from gobrrr.observe.live.watches import cgroup

_NOT_LOADERS = ("PoolWorker", "Manager")
"""Children of multiprocessing that a data loader does not start."""


@dataclass(frozen=True, kw_only=True)
class System:
    """Where the operating system says what this process may use; tests give their own."""

    group: Path = cgroup.PROC
    mount: Path = cgroup.MOUNT
    proc: Path = Path("/proc")

    def quota(self) -> float | None:
        """Processors' worth of time; None: unlimited, or not known."""
        return cgroup.quota(self.group, self.mount)

    def threads_of(self, pid: int) -> int | None:
        """Threads of a process of this machine."""
        try:
            lines = (self.proc / str(pid) / "status").read_text(encoding="ascii", errors="replace").splitlines()
        except OSError:
            return None
        return next((int(line.split()[1]) for line in lines if line.startswith("Threads:")), None)

    def waits_ns(self) -> dict[str, int]:
        """What each thread of this process has waited for a processor so far; empty where Linux does not tell.

        The second number of `schedstat`: time on a run queue (Documentation/scheduler/sched-stats).
        """
        found = {}
        for task in (self.proc / "self" / "task").glob("*/schedstat"):
            try:
                found[task.parent.name] = int(task.read_text(encoding="ascii").split()[1])
            except (OSError, IndexError, ValueError):  # the thread has ended, or a system without the numbers
                continue
        return found


class ThreadWatch:
    """Reads threads, processors and quota at the window's begin, and counts what the window cost in lost turns.

    The load average is read at `open`: later it holds the program itself.
    """

    def __init__(self, system: System | None = None) -> None:
        self._system = system or System()
        self._load: float | None = None
        self._before: int | None = None
        self._waits: dict[str, int] = {}
        self._record: Threads | None = None

    def open(self) -> None:
        """Read how busy the machine is before the first step."""
        self._load = _load()

    def window_begins(self) -> None:
        """Lost turns count from here on."""
        self._before = _involuntary()
        self._waits = self._system.waits_ns()

    def step(self, index: int) -> None:
        """Nothing: the system counts."""

    def window_ends(self, steps: int) -> None:
        """Read all there is; the loader's processes are running now."""
        after, waits = _involuntary(), self._system.waits_ns()
        waited = sum(max(ns - self._waits.get(task, ns), 0) for task, ns in waits.items())
        lost = None if after is None or self._before is None or not steps else (after - self._before) / steps
        loaders = _loaders()
        each = [one for one in map(self._system.threads_of, loaders) if one is not None]
        self._record = Threads(
            intra=int(torch.get_num_threads()),
            inter=int(torch.get_num_interop_threads()),
            usable=_usable(),
            quota=self._system.quota(),
            processors=os.cpu_count(),
            workers=len(loaders),
            worker_threads=median(each) if each else None,
            load=self._load,
            involuntary_switches=lost,
            waited_ns=waited / steps if steps and waits else None,
        )

    def close(self) -> None:
        """Nothing was changed."""

    def found(self) -> Threads | None:
        """The record; None without a window."""
        return self._record


def _usable() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def _involuntary() -> int | None:
    """Turns on a processor that all threads of this process lost to others."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw)


def _loaders() -> list[int]:
    """The processes that data loaders started, by what marks them: children of multiprocessing, as daemons.

    multiprocessing.active_children would tell them too, but it also buries those that have ended.
    """
    children: list[Any] = list(getattr(multiprocessing.process, "_children", ()))
    return [
        one.pid
        for one in children
        if one.daemon and one.pid is not None and not any(word in one.name for word in _NOT_LOADERS)
    ]
