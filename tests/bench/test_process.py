"""The stopwatch: it sees the memory of children, and a command that fails is not a fast one."""

from __future__ import annotations

import sys

import pytest

from bench.process import CommandFailedError, Run, run, summary

HOLD_100_MB = "import time; held = bytearray(b'x') * 100_000_000; time.sleep(0.2)"
IN_A_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HOLD_100_MB!r}])"


@pytest.mark.parametrize("code", [HOLD_100_MB, IN_A_CHILD])
def test_peak_memory_counts_the_process_and_its_children(code: str) -> None:
    seen = run([sys.executable, "-c", code])
    assert seen.peak_rss_bytes is not None
    assert 100e6 < seen.peak_rss_bytes < 200e6
    assert seen.wall_s > 0.2


def test_a_command_that_fails_is_no_measurement() -> None:
    with pytest.raises(CommandFailedError, match="exit status 1\nwhy"):
        run([sys.executable, "-c", "raise SystemExit('why')"])


def test_summary() -> None:
    runs = [Run(wall_s=wall, peak_rss_bytes=1_000_000 * round(wall)) for wall in (3.0, 1.0, 2.0)]
    wanted = {"runs": 3, "wall_s_min": 1.0, "wall_s_median": 2.0, "wall_s_max": 3.0, "peak_rss_mb": 3.0}
    assert summary(runs) == wanted


def test_memory_that_was_not_seen_is_not_zero() -> None:
    assert summary([Run(wall_s=0.001, peak_rss_bytes=None)])["peak_rss_mb"] is None
