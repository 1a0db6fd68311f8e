"""What the scripts of bench/gpu share: times of steps, and a record that goes on after an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from bench.gpu import timed

pytestmark = pytest.mark.torch


def test_steps_are_timed_alone_and_in_a_row() -> None:
    calls: list[None] = []
    times = timed.synced_ms(lambda: calls.append(None), 3)
    assert len(times) == len(calls) == 3
    assert timed.pipelined_ms(lambda: calls.append(None), 4) >= 0
    assert len(calls) == 7


def test_quartiles_are_those_of_the_values() -> None:
    assert timed.quartiles([1.0, 2.0, 3.0]) == {"median": 2.0, "low": 1.0, "high": 3.0, "runs": 3}


def test_a_workload_that_fails_is_recorded_and_the_record_is_kept(tmp_path: Path) -> None:
    def measured(number: int) -> dict[str, Any]:
        return {"ms": 6 / number}

    record = timed.about("python bench/gpu/some.py", workloads={n: timed.attempted(measured, n) for n in (0, 2)})
    timed.keep(tmp_path / "some.json", record)
    kept = json.loads((tmp_path / "some.json").read_text())
    assert kept["command"] == "python bench/gpu/some.py"
    assert kept["workloads"]["2"] == {"ms": 3.0}
    assert kept["workloads"]["0"]["error"] == "ZeroDivisionError: division by zero"
