"""How many threads and processors the program has, and whether it has to share them."""

from __future__ import annotations

import multiprocessing.process
import os
from statistics import median
from typing import Any

import torch

from gobrrr.model.live import Threads
from gobrrr.system.reading import ProcessorReading, System, usable

_NOT_LOADERS = ("PoolWorker", "Manager")
"""Children of multiprocessing that a data loader does not start."""


class ThreadWatch:
    """Reads threads, processors and quota at the end of the window, and counts its involuntary context switches.

    The load average is read at `open`: later it includes the program itself.
    """

    def __init__(self, system: System | None = None) -> None:
        self._system = system or System()
        self._load: float | None = None
        self._before: int | None = None
        self._began: ProcessorReading | None = None
        self._record: Threads | None = None

    def open(self) -> None:
        """Read how busy the machine is before the first step."""
        self._load = self._system.load()

    def window_begins(self) -> None:
        """Count context switches from here on."""
        self._before = _involuntary()
        self._began = self._system.reading()

    def step(self, index: int) -> None:
        """Does nothing: the system counts."""

    def window_ends(self, steps: int) -> None:
        """Read everything now, while the loader's processes are running."""
        after, waits = _involuntary(), self._system.waits_ns()
        contention = None if self._began is None else self._system.since(self._began)
        began = {} if self._began is None else self._began.waits_ns
        waited = sum(max(ns - began.get(task, ns), 0) for task, ns in waits.items())
        lost = None if after is None or self._before is None or not steps else (after - self._before) / steps
        loaders = _loaders()
        worker_threads = [threads for threads in map(self._system.threads_of, loaders) if threads is not None]
        self._record = Threads(
            intra=int(torch.get_num_threads()),
            inter=int(torch.get_num_interop_threads()),
            usable=len(usable()),
            quota=self._system.quota(),
            processors=os.cpu_count(),
            workers=len(loaders),
            worker_threads=median(worker_threads) if worker_threads else None,
            load=self._load,
            involuntary_switches=lost,
            waited_ns=waited / steps if steps and waits else None,
            contention=contention,
        )

    def close(self) -> None:
        """Nothing was changed."""

    def found(self) -> Threads | None:
        """The record; None without a window."""
        return self._record


def _involuntary() -> int | None:
    """The involuntary context switches of this process so far, all threads together."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw)


def _loaders() -> list[int]:
    """The worker processes of data loaders: the children of multiprocessing that are daemons.

    Not by multiprocessing.active_children, which also joins those that have ended.
    """
    children: list[Any] = list(getattr(multiprocessing.process, "_children", ()))
    return [
        child.pid
        for child in children
        if child.daemon and child.pid is not None and not any(word in child.name for word in _NOT_LOADERS)
    ]
