"""The stopwatch: it sees the memory of children, and a command that fails is not a fast one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.process import CommandFailedError, Run, answer, run, summary

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


def test_an_answer_is_the_last_line_that_a_module_prints_and_a_failure_is_one_too(tmp_path: Path) -> None:
    (tmp_path / "answers.py").write_text("import os, sys\nprint('a word before')\nprint(os.environ[sys.argv[1]])")
    environment = {"PYTHONPATH": str(tmp_path), "SAID": '{"ratio": 1.5}'}
    assert answer("answers", "SAID", environment=environment) == {"ratio": 1.5}
    assert answer("answers", "NOTHING", environment=environment) == {"error": "KeyError: 'NOTHING'"}


def test_a_process_that_never_answers_is_ended(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text("import time\ntime.sleep(60)")
    found = answer("sleeps", limit_s=0.5, environment={"PYTHONPATH": str(tmp_path)})
    assert found == {"error": "no result within 0.5 s"}
