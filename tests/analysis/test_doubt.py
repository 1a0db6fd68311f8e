"""Traces whose graph can't be replayed say so: no estimate is better than a wrong one, and no certainty is high."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gobrrr
from gobrrr.model.diagnosis import Diagnosis

Events = list[dict[str, Any]]
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


@pytest.fixture
def changed(h100: Path, tmp_path: Path) -> Callable[..., Diagnosis]:
    """Diagnose a shipped trace after a change to its events."""

    def diagnose(change: Callable[[Events], Events], name: str = "pointwise_chain.faulty") -> Diagnosis:
        trace = json.loads(gzip.decompress((h100 / f"{name}.json.gz").read_bytes()))
        trace["traceEvents"] = change(trace["traceEvents"])
        (tmp_path / "changed.json").write_text(json.dumps(trace))
        return gobrrr.diagnose(tmp_path / "changed.json")

    return diagnose


def unsure(found: Diagnosis) -> str:
    """The reason, where the estimate is withheld as it must be."""
    assert found.unprofiled_wall_ns.how == "unknown"
    assert found.certainty == "low"
    assert sum(line.ns for line in found.budget) == pytest.approx(found.wall_ns)
    (note,) = [note for note in found.notes if note.startswith("the step without the profiler can't be estimated")]
    return note


def test_unchanged_it_is_estimated(changed: Callable[..., Diagnosis]) -> None:
    assert changed(lambda events: events).unprofiled_wall_ns.how == "estimated"


def test_no_launches(changed: Callable[..., Diagnosis]) -> None:
    """Three steps of 3.72 ms of device time each: without a launch nothing ties them to the host, but they took it."""
    found = changed(lambda events: [one for one in events if one.get("cat") not in ("cuda_runtime", "cuda_driver")])
    assert "has no launch in the trace" in unsure(found)
    assert found.wall_ns is not None
    assert found.wall_ns > 3.7e6


def test_a_third_of_the_launches_lost(changed: Callable[..., Diagnosis]) -> None:
    launches = iter(range(10**6))
    found = changed(
        lambda events: [one for one in events if one.get("cat") != "cuda_runtime" or next(launches) % 3 != 1]
    )
    assert "has no launch in the trace" in unsure(found)


def test_clocks_that_disagree(changed: Callable[..., Diagnosis]) -> None:
    def early(events: Events) -> Events:
        return [{**one, "ts": one["ts"] - 50_000} if one.get("cat") in DEVICE else one for one in events]

    assert "the clocks of host and device disagree" in unsure(changed(early))


def test_a_file_that_was_cut_off(h100: Path, tmp_path: Path) -> None:
    data = gzip.decompress((h100 / "gpt_eager_attn.faulty.json.gz").read_bytes())
    (tmp_path / "cut.json").write_bytes(data[: len(data) * 9 // 10])
    assert "part of the file is missing" in unsure(gobrrr.diagnose(tmp_path / "cut.json"))


def test_steps_whose_kernels_are_missing_are_left_out(changed: Callable[..., Diagnosis]) -> None:
    """The last third of the device's records is gone: two whole steps are left, and they are as they were."""

    def lose(events: Events) -> Events:
        work = sorted((one for one in events if one.get("cat") in DEVICE), key=lambda one: one["ts"])
        lost = {id(one) for one in work[len(work) * 2 // 3 :]}
        return [one for one in events if id(one) not in lost]

    found = changed(lose)
    assert found.steps == 2
    assert "1 left out: launches without a device record" in found.steps_from
    whole = changed(lambda events: events)
    assert found.unprofiled_wall_ns.value == pytest.approx(whole.unprofiled_wall_ns.value, rel=0.08)


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_one_mark_of_three_is_one_step(changed: Callable[..., Diagnosis], kept: int) -> None:
    """What the device still does of the steps before is not this one's, nor is what the host issues behind it."""

    def keep(events: Events) -> Events:
        return [
            one
            for one in events
            if not one.get("name", "").startswith("ProfilerStep#") or one["name"].endswith(str(kept))
        ]

    found, whole = changed(keep), changed(lambda events: events)
    assert found.steps == 1
    assert found.totals.launches == pytest.approx(whole.totals.launches)
    assert found.unprofiled_wall_ns.value == pytest.approx(whole.unprofiled_wall_ns.value, rel=0.15)
