"""What the host's memory has left: the machine's own figure, or what the tightest control group leaves."""

from __future__ import annotations

import os
from pathlib import Path

from gobrrr.system.memory import available_bytes

PAGE = os.sysconf("SC_PAGE_SIZE")


def test_what_is_left(tmp_path: Path) -> None:
    meminfo, statm = tmp_path / "meminfo", tmp_path / "statm"
    meminfo.write_text("MemTotal: 99 kB\nMemAvailable:   1000 kB\n")
    statm.write_text("90 3 1 1 0 1 0")
    assert available_bytes(meminfo, 10**9, statm) == 1000 * 1024
    assert available_bytes(meminfo, 10 * PAGE, statm) == 7 * PAGE
    assert available_bytes(meminfo, PAGE, statm) == 0


def test_where_the_system_says_nothing(tmp_path: Path) -> None:
    assert available_bytes(tmp_path / "absent") is None
