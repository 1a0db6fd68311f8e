"""The diagnoses of the H100 traces against what was measured on that card without the profiler.

The shipped traces (truth.json, labels.json) were looked at while the estimate was made; the held-out ones
(bench/results/h100_holdout.json) were not.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gobrrr.doors.pipeline import diagnose
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.model.profile import Profile
from gobrrr.observe.trace import read_trace
from tests.analysis.tables import DDP, HOLDOUT, SHIPPED, diagnosis, read, short
from tests.conftest import H100, ROOT
from tests.spread import slow, spread

MEASURED = [*SHIPPED, *HOLDOUT]
COVERED = 0.9
"""docs/design.md, section 10: the interval covers the measured time in 9 of 10 traces."""
DEVICE_BOUND, CLOSE = 0.95, 0.05
"""Where the device is busy for this share of the estimate, the estimate is within this share of the measured time."""
PRICED = 0.9
REPLAYED = ("mlp_tiny.fixed", "compiled_graphs")
"""Traces of a replayed CUDA graph: its kernels carry no operations."""
REGIMES = {"resnet_slow_loader": {"input", "transfer", "overhead"}}
"""The fault is in the input pipeline; truth.json, which has no word for that, calls it overhead."""
NOT_CLOSE = {
    "vit_b16_b64.fwdbwd": "busy for 22.7 of 25.9 ms measured: the host is the bound, which the estimate does not see",
}
"""Within the interval, but not within `CLOSE`."""
DDP_MISSED = {
    "ddp_good.rank0": "27.0 to 43.7 ms said, 25.7 to 26.3 measured: less stays than `LEFT_FACTOR` allows for",
}
"""Outside the interval; with those of `MEASURED` fewer than one in ten."""


def truth() -> dict[str, dict]:
    return json.loads((H100 / "truth.json").read_text(encoding="utf-8"))


@cache
def measured_ms() -> dict[str, list[float]]:
    """All that was measured of a trace's step, in ms, by the trace's name."""
    result = {}
    for name, case in truth().items():
        for form in ("faulty", "fixed"):
            result[f"{name}.{form}"] = [case[form]["sync_ms"], case[form]["pipelined_ms"]]
    labels = json.loads((H100 / "labels.json").read_text(encoding="utf-8"))
    for name, case in labels.items():
        if isinstance(case, dict):
            for form in ("fwd", "fwdbwd", "fwd_compiled"):
                if form in case:
                    result[f"{name}.{form}"] = case[form]
    holdout = json.loads((ROOT / "bench" / "results" / "h100_holdout.json").read_text(encoding="utf-8"))
    for name, case in holdout["workloads"].items():
        again = case["again"]
        result[name] = [case["sync_ms"], case["pipelined_ms"], again["sync_ms"], again["pipelined_ms"]]
    return result


def key(path: Path) -> str:
    return path.name.removesuffix(".json.gz")


def covers(path: Path) -> bool:
    """Whether the estimated interval meets what was measured."""
    wall, times = diagnosis(path).unprofiled_wall_ns, measured_ms()[key(path)]
    assert wall.low is not None
    assert wall.high is not None
    return wall.low <= max(times) * 1e6 and min(times) * 1e6 <= wall.high


def miss(path: Path) -> float:
    """The estimate's distance from the nearest measured time, as a share of it."""
    value, times = diagnosis(path).unprofiled_wall_ns.value, measured_ms()[key(path)]
    assert value is not None
    nearest = min(max(value / 1e6, min(times)), max(times))
    return abs(value / 1e6 - nearest) / nearest


def busy_share(path: Path) -> float:
    """The device's busy time over the estimate."""
    found = diagnosis(path)
    idle = sum(line.ns for line in found.budget if line.line == "overhead")
    return 1 - idle / sum(line.ns for line in found.budget)


def test_every_trace_was_measured():
    assert {key(path) for path in MEASURED} <= set(measured_ms())
    assert len(SHIPPED) == 27
    assert len(HOLDOUT) == 20


@pytest.mark.parametrize("path", spread([H100 / f"{name}.faulty.json.gz" for name in truth()]), ids=short)
def test_the_regime_of_each_faulty_workload(path: Path):
    found, name = diagnosis(path).regime, path.name.removesuffix(".faulty.json.gz")
    expected = truth()[name]["regime"]
    if expected != "mixed":
        assert found in REGIMES.get(name, {expected})
    else:
        assert found != "unknown"


@pytest.mark.parametrize("path", spread(MEASURED), ids=short)
def test_the_interval_covers_the_measured_time(path: Path):
    assert covers(path), _said(path)


@pytest.mark.slow  # all traces are diagnosed
@pytest.mark.parametrize("paths", [SHIPPED, HOLDOUT, MEASURED], ids=["shipped", "held out", "all"])
def test_the_interval_covers_the_measured_time_in_nine_of_ten(paths: list[Path]):
    missed = [f"{key(path)}: {_said(path)}" for path in paths if not covers(path)]
    assert len(missed) <= (1 - COVERED) * len(paths), missed


def _said(path: Path) -> str:
    wall, times = diagnosis(path).unprofiled_wall_ns, measured_ms()[key(path)]
    low, high = (wall.low or 0) / 1e6, (wall.high or 0) / 1e6
    return f"{low:.2f} to {high:.2f} ms, measured {min(times):.2f} to {max(times):.2f}"


def known(paths: list[Path], misses: dict[str, str]) -> list[Any]:
    """The traces as parameters; those that are known to miss are expected to, strictly."""
    return [
        pytest.param(path, marks=pytest.mark.xfail(reason=misses[key(path)])) if key(path) in misses else path
        for path in paths
    ]


@pytest.mark.parametrize("path", spread(known(MEASURED, NOT_CLOSE)), ids=short)
def test_the_estimate_is_close_where_the_device_is_the_bound(path: Path):
    if busy_share(path) < DEVICE_BOUND:
        pytest.skip("the device is not the bound")
    assert miss(path) <= CLOSE, _said(path)


@cache
def together(name: str) -> Diagnosis:
    """Both ranks of a run as one profile."""
    ranks = [read_trace(str(path)).ranks[0] for path in DDP if path.name.startswith(name)]
    return diagnose(Profile(target=name, origin="trace", ranks=tuple(ranks)))


def ddp_ms(name: str) -> list[float]:
    cases = json.loads((H100 / "ddp_truth.json").read_text(encoding="utf-8"))[name]
    return [one[key] for one in cases for key in ("sync_ms", "pipelined_ms")]


@pytest.mark.parametrize("path", spread(known(DDP, DDP_MISSED)), ids=short)
def test_one_rank_s_interval_covers_the_measured_time(path: Path):
    wall, times = diagnosis(path).unprofiled_wall_ns, ddp_ms(path.name.split(".")[0])
    assert (wall.low or 0) <= max(times) * 1e6
    assert min(times) * 1e6 <= (wall.high or 0)


RUNS = sorted({path.name.split(".")[0] for path in DDP})


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xfail(reason=DDP_MISSED[f"{name}.rank0"]))
        if f"{name}.rank0" in DDP_MISSED
        else slow(name)
        if name.startswith("ddp_accum")
        else name
        for name in RUNS
    ],
)
def test_two_ranks_interval_covers_the_measured_time(name: str):
    wall, times = together(name).unprofiled_wall_ns, ddp_ms(name)
    said = f"{(wall.low or 0) / 1e6:.1f} to {(wall.high or 0) / 1e6:.1f} ms, measured {min(times)} to {max(times)}"
    assert (wall.low or 0) <= max(times) * 1e6, said
    assert min(times) * 1e6 <= (wall.high or 0), said


@pytest.mark.parametrize("path", spread([*SHIPPED, *DDP, *HOLDOUT]), ids=short)
def test_device_time_is_priced_unless_a_graph_was_replayed(path: Path):
    share = diagnosis(path).coverage.device_time
    assert share is not None
    if key(path) in REPLAYED:
        assert share < 0.1
        assert any("graph" in note for note in diagnosis(path).notes)
    else:
        assert share >= PRICED


@pytest.mark.parametrize("path", spread([*MEASURED, *DDP]), ids=short)
def test_the_budget_sums_to_the_estimate(path: Path):
    found = diagnosis(path)
    assert sum(line.ns for line in found.budget) == pytest.approx(found.unprofiled_wall_ns.value, rel=1e-9)
    assert sum(line.share for line in found.budget) == pytest.approx(1.0, rel=1e-9)


def swept(path: Path) -> dict[int, tuple[int, int, int]]:
    """(busy, span, pieces of work) of each device of a trace, by a sweep in plain Python."""
    events = read(path).events
    work: dict[int, list[tuple[int, int]]] = {}
    for row in events.on_device.tolist():
        start = int(events.start_ns[row])
        work.setdefault(int(events.device[row]), []).append((start, start + int(events.duration_ns[row])))
    result = {}
    for device, spans in work.items():
        busy, reach = 0, min(start for start, _ in spans)
        first = reach
        for start, stop in sorted(spans):
            busy += max(stop - max(start, reach), 0)
            reach = max(reach, stop)
        result[device] = (busy, reach - first, len(spans))
    return result


@pytest.mark.parametrize("path", spread([*MEASURED, *DDP]), ids=short)
def test_the_devices_are_exact(path: Path):
    found = {one.device: (one.busy_total_ns, one.span_total_ns, one.kernels) for one in diagnosis(path).devices}
    assert found == swept(path)


@pytest.mark.parametrize("path", spread([path for path in SHIPPED if ".fwd" in path.name]), ids=short)
def test_busy_time_and_kernels_are_those_that_were_counted(path: Path):
    """labels.json: the device's busy time in one profiled step and its kernels, counted when it was recorded."""
    labels = json.loads((H100 / "labels.json").read_text(encoding="utf-8"))
    model, form = key(path).rsplit(".", 1)
    (device,) = diagnosis(path).devices
    assert device.busy_total_ns / 1e6 == pytest.approx(labels[model][f"{form}_busy_ms"], rel=0.02)
    assert device.kernels == pytest.approx(labels[model][f"{form}_kernels"], abs=4)


def never_below_the_speed_of_light(found: Diagnosis) -> bool:
    wall = found.unprofiled_wall_ns.value
    return found.speed_of_light_ns is None or wall is None or found.speed_of_light_ns <= wall


@pytest.mark.parametrize("path", spread([*MEASURED, *DDP]), ids=short)
def test_no_step_is_faster_than_light(path: Path):
    assert never_below_the_speed_of_light(diagnosis(path))
