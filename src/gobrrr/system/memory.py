"""What there is of the host's memory."""

from __future__ import annotations

import os
from pathlib import Path

from gobrrr.system import cgroup

MEMINFO = Path("/proc/meminfo")
STATM = Path("/proc/self/statm")


def available_bytes(meminfo: Path = MEMINFO, limit: int | None = None, statm: Path = STATM) -> int | None:
    """What a program can still have without paging: of the machine, and of the tightest control group's limit.

    None where the system does not say. `limit`: the control group's, where it is known already.
    """
    found = []
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
        limit = cgroup.memory_limit() if limit is None else limit
        if limit is not None:
            found.append(max(limit - int(statm.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE"), 0))
    except (OSError, ValueError, IndexError):
        pass
    return min(found, default=None)
