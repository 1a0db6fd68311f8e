"""The host's available memory."""

from __future__ import annotations

import os
from pathlib import Path

from gobrrr.system import cgroup

MEMINFO = Path("/proc/meminfo")
STATM = Path("/proc/self/statm")
"""Linux's files of the machine's memory and of this process's (proc_pid_statm(5))."""


def available_bytes(meminfo: Path = MEMINFO, limit: int | None = None, statm: Path = STATM) -> int | None:
    """Bytes that a program can still allocate without paging, within the machine and within its control group's limit.

    None where the system does not say. `limit`: the control group's, where the caller knows it already.
    """
    amounts = []
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
        amounts += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
        limit = cgroup.memory_limit() if limit is None else limit
        if limit is not None:
            resident = int(statm.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
            amounts.append(max(limit - resident, 0))
    except (OSError, ValueError, IndexError):
        pass
    return min(amounts, default=None)
