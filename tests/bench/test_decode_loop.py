"""The generated decode loop is a trace like the profiler's: short kernels, and a wait a token."""

from __future__ import annotations

from pathlib import Path

from bench.decode_loop import write_loop
from gobrrr.doors import pipeline
from gobrrr.observe.trace import read_trace


def test_a_token_is_a_step_that_the_host_bounds(tmp_path: Path) -> None:
    path = tmp_path / "loop.json"
    count = write_loop(path, tokens=2)
    again = tmp_path / "again.json"
    assert write_loop(again, tokens=2) == count
    assert again.read_bytes() == path.read_bytes()
    profile = read_trace(path)
    assert profile.notes == ()
    found = pipeline.diagnose(profile)
    assert (found.steps, found.regime) == (2, "overhead")
    assert 600 < found.totals.launches < 1000
    assert found.totals.syncs == 1
    assert found.coverage.device_time is not None
    assert found.coverage.device_time > 0.95
