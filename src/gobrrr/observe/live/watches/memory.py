"""Memory over the window: how much was held, and how often the allocator had to ask the driver."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from gobrrr.model.live import DeviceMemory
from gobrrr.observe.live.clock import on_gpu
from gobrrr.system import cgroup

PROCESS_STATUS = Path("/proc/self/status")
_KIB = 1024  # what /proc calls "kB"
Stats = Callable[[], Mapping[str, Any]]


class MemoryWatch:
    """The allocator's counts over the window on a GPU, this process's growth since `open` on a CPU.

    `peak_bytes` on a GPU is the most that tensors held since the program began, or since the program itself last reset
    the figure: resetting it here would take it from the program. So it may include warm-up, with the compiler's tuning.
    `mallocs` and `frees` are None where torch does not count them. `retries` are allocations that only succeeded after
    the cache was emptied.
    """

    def __init__(
        self,
        status: Path = PROCESS_STATUS,
        group: Path = cgroup.PROC,
        mount: Path = cgroup.MOUNT,
        stats: Stats | None = None,
        capacity_bytes: int | None = None,
    ) -> None:
        self._status = status
        self._group = (group, mount)
        self._stats = stats
        self._capacity = capacity_bytes
        self._resident: int | None = None
        self._highest: int | None = None
        self._before: Mapping[str, Any] | None = None
        self._record: DeviceMemory | None = None

    def open(self) -> None:
        """Remember how large the process is before the first step."""
        self._resident, self._highest = self._line("VmRSS"), self._line("VmHWM")

    def window_begins(self) -> None:
        """Count the allocator's calls from here on."""
        self._before = self._gpu()

    def step(self, index: int) -> None:
        """Does nothing: the allocator counts."""

    def window_ends(self, steps: int) -> None:
        """Read everything."""
        after = self._gpu()
        if after is None:
            self._record = self._process()
            return
        self._record = DeviceMemory(
            peak_bytes=after.get("allocated_bytes.all.peak"),
            reserved_bytes=after.get("reserved_bytes.all.peak"),
            capacity_bytes=self._capacity if self._capacity is not None else _device_bytes(),
            mallocs=self._per_step("num_device_alloc", after, steps),
            frees=self._per_step("num_device_free", after, steps),
            retries=self._per_step("num_alloc_retries", after, steps),
        )

    def close(self) -> None:
        """Nothing was changed."""

    def found(self) -> DeviceMemory | None:
        """The record; None without a window."""
        return self._record

    def _gpu(self) -> Mapping[str, Any] | None:
        if self._stats is not None:
            return self._stats()
        return dict(torch.cuda.memory_stats()) if on_gpu() else None

    def _per_step(self, name: str, after: Mapping[str, Any], steps: int) -> float | None:
        if self._before is None or name not in after or name not in self._before or not steps:
            return None
        return float(after[name] - self._before[name]) / steps

    def _process(self) -> DeviceMemory:
        """The growth is known only where the process became larger than ever before."""
        highest = self._line("VmHWM")
        grown = None
        if highest is not None and self._highest is not None and self._resident is not None:
            grown = highest - self._resident if highest > self._highest else None
        limits = (self._capacity or _physical(), cgroup.memory_limit(*self._group))
        least = min((limit for limit in limits if limit is not None), default=None)
        return DeviceMemory(peak_bytes=grown, capacity_bytes=least)

    def _line(self, name: str) -> int | None:
        try:
            lines = self._status.read_text(encoding="ascii", errors="replace").splitlines()
        except OSError:
            return None
        return next((int(line.split()[1]) * _KIB for line in lines if line.startswith(f"{name}:")), None)


def _device_bytes() -> int | None:
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
