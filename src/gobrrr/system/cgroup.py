"""The limits of this process's control groups: processors' worth of time, and bytes of memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc/self/cgroup")
MOUNT = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60
"""Bytes from which a limit means "no limit": version 1 writes the largest whole number of pages; no machine has an
exbibyte."""


def quota(proc: Path = PROC, mount: Path = MOUNT) -> float | None:
    """Processors' worth of time: the smallest quota of the group and its parents. None: unlimited, or not known."""
    quotas = []
    for folder in _folders(proc, mount, ("cpu", "cpu,cpuacct", "cpuacct,cpu")):
        words = (_read(folder / "cpu.max") or "").split()
        if len(words) == 2:
            quotas.append(_share(words[0], words[1]))
        quotas.append(_share(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")))
    return min((share for share in quotas if share is not None), default=None)


def memory_limit(proc: Path = PROC, mount: Path = MOUNT) -> int | None:
    """Bytes: the smallest limit of the group and its parents. None: unlimited, or not known."""
    limits = []
    for folder in _folders(proc, mount, ("memory",)):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(folder / name)
            if text is not None and text.isdigit() and int(text) < _NO_LIMIT:
                limits.append(int(text))
    return min(limits, default=None)


def throttled(proc: Path = PROC, mount: Path = MOUNT) -> tuple[int, int] | None:
    """(periods in which the quota was used up, periods so far) of the group that was throttled most; None: no quota."""
    counts = []
    for folder in _folders(proc, mount, ("cpu", "cpu,cpuacct", "cpuacct,cpu")):
        pairs = (line.split() for line in (_read(folder / "cpu.stat") or "").splitlines())
        statistics = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
        if statistics.get("nr_periods"):
            counts.append((statistics.get("nr_throttled", 0), statistics["nr_periods"]))
    return max(counts, default=None)


def _share(allowed: str | None, period: str | None) -> float | None:
    if allowed is None or period is None or not (allowed.isdigit() and period.isdigit() and int(period)):
        return None  # "max", and version 1's -1: unlimited
    return int(allowed) / int(period)


def _folders(proc: Path, mount: Path, controllers: tuple[str, ...]) -> Iterator[Path]:
    """The folders of this process's group and of its parents, of both versions."""
    for line in (_read(proc) or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        unified = parts[0] == "0" and not parts[1]
        if not unified and not set(parts[1].split(",")) & set(controllers):
            continue
        # In a container the group is often the mount's root, while /proc names its path on the host.
        for top in [mount, mount / "unified"] if unified else [mount / name for name in {parts[1], *controllers}]:
            inner = top / parts[2].lstrip("/")
            yield from (parent for parent in (inner, *inner.parents) if parent == top or top in parent.parents)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
