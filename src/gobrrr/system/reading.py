"""What other processes had of the processors between two readings, and how long this process waited for one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gobrrr.model.contention import Contention
from gobrrr.system import cgroup

BUSY_FIELDS = (0, 1, 2, 5, 6, 7)
"""Fields of a processor's line in /proc/stat that count as busy: user, nice, system, irq, softirq, steal. The others
are idle time, or are contained in user."""
OWN_FIELDS = slice(11, 15)
"""utime, stime, cutime and cstime in /proc/PID/stat, counted from behind the name (proc_pid_stat(5): fields 14 to
17)."""

LEAST_TICKS = 20
"""Clock ticks that a reading must span. Processor time comes in whole ticks: over fewer, the share of other processes
is off by more than 5 % of a processor."""


def _own_s() -> float:
    """Processor time of this process and of its children that have ended and were waited for."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def usable() -> frozenset[int]:
    """The processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return frozenset(affinity(0)) if affinity is not None else frozenset(range(os.cpu_count() or 1))


def load_average() -> float | None:
    """The load average of the last minute; None where the system has none."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def _ticks() -> int:
    try:
        return os.sysconf("SC_CLK_TCK")
    except (AttributeError, OSError, ValueError):
        return 100


@dataclass(frozen=True, kw_only=True)
class ProcessorReading:
    """The counters at one instant. `busy_s`: time that the usable processors were busy for any process; None: not
    known."""

    at_s: float
    busy_s: float | None
    own_s: float
    waits_ns: dict[str, int]
    throttled: tuple[int, int] | None


@dataclass(frozen=True, kw_only=True)
class System:
    """Where the operating system keeps the counters; tests pass their own."""

    group: Path = cgroup.PROC
    mount: Path = cgroup.MOUNT
    proc: Path = Path("/proc")
    processors: Callable[[], frozenset[int]] = usable
    now: Callable[[], float] = time.perf_counter
    own_s: Callable[[], float] = _own_s
    load: Callable[[], float | None] = load_average
    ticks: int = field(default_factory=_ticks)

    def quota(self) -> float | None:
        """Processors' worth of time; None: unlimited, or not known."""
        return cgroup.quota(self.group, self.mount)

    def threads_of(self, pid: int) -> int | None:
        """How many threads a process of this machine has."""
        lines = _text(self.proc / str(pid) / "status").splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith("Threads:")), None)

    def reading(self) -> ProcessorReading:
        """All counters, now."""
        return ProcessorReading(
            at_s=self.now(),
            busy_s=self._busy_s(),
            own_s=self.own_s() + sum(self._used_s(pid) for pid in self._descendants()),
            waits_ns=self.waits_ns(),
            throttled=cgroup.throttled(self.group, self.mount),
        )

    def since(self, before: ProcessorReading) -> Contention:
        """What other processes had since an earlier reading."""
        now = self.reading()
        seconds = now.at_s - before.at_s
        return Contention(
            seconds=seconds,
            processors=len(self.processors()),
            others=_others(before, now, seconds) if seconds * self.ticks >= LEAST_TICKS else None,
            waited=_waited(before.waits_ns, now.waits_ns, seconds),
            throttled=_throttled(before.throttled, now.throttled),
        )

    def waits_ns(self) -> dict[str, int]:
        """How long each thread of this process has waited for a processor so far; empty where the system does not say.

        It is the second number of `schedstat`: time on a run queue (Documentation/scheduler/sched-stats).
        """
        waits = {}
        for task in (self.proc / "self" / "task").glob("*/schedstat"):
            words = _text(task).split()
            if len(words) > 1 and words[1].isdigit():  # else the thread has ended
                waits[task.parent.name] = int(words[1])
        return waits

    def _busy_s(self) -> float | None:
        wanted = {f"cpu{processor}" for processor in self.processors()}
        ticks = seen = 0
        for line in _text(self.proc / "stat").splitlines():
            name, *numbers = line.split()[:11] or [""]
            if name in wanted and len(numbers) > max(BUSY_FIELDS) and all(number.isdigit() for number in numbers):
                seen += 1
                ticks += sum(int(numbers[at]) for at in BUSY_FIELDS)
        return ticks / self.ticks if seen == len(wanted) else None

    def _descendants(self) -> list[int]:
        """The processes that this process has started, and their descendants."""
        pids, folders = set[int](), [self.proc / "self"]
        while folders:
            for task in folders.pop().glob("task/*/children"):
                for pid in _text(task).split():
                    if pid.isdigit() and int(pid) not in pids:
                        pids.add(int(pid))
                        folders.append(self.proc / pid)
        return sorted(pids)

    def _used_s(self, pid: int) -> float:
        numbers = _text(self.proc / str(pid) / "stat").rpartition(")")[2].split()[OWN_FIELDS]
        return sum(int(number) for number in numbers if number.isdigit()) / self.ticks


def _others(before: ProcessorReading, now: ProcessorReading, seconds: float) -> float | None:
    if before.busy_s is None or now.busy_s is None or seconds <= 0:
        return None
    busy, own = now.busy_s - before.busy_s, max(now.own_s - before.own_s, 0.0)
    if busy == 0 and own > 0.1 * seconds:
        return None  # a sandbox whose counters do not move
    return max(busy - own, 0.0) / seconds


def _waited(before: dict[str, int], now: dict[str, int], seconds: float) -> float | None:
    """The longest waiting time of a thread, as a share of `seconds`. New threads do not count: they may have waited
    before. Linux counts a wait when it ends, so a wait that began earlier may be longer than `seconds`: at most 1.
    """
    waits = [now[task] - ns for task, ns in before.items() if task in now]
    return min(max(max(waits), 0) / 1e9 / seconds, 1.0) if waits and seconds > 0 else None


def _throttled(before: tuple[int, int] | None, now: tuple[int, int] | None) -> float | None:
    if before is None or now is None or now[1] <= before[1]:
        return None
    return min(max(now[0] - before[0], 0) / (now[1] - before[1]), 1.0)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
