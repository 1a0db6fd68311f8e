"""Coverage, totals and contradictions of shipped traces, whole and with something taken from them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gobrrr.analysis.findings.claims import NO_CLAIM, ClaimedFinding
from gobrrr.conditions.common import as_far_as_priced
from gobrrr.doors.pipeline import diagnose
from gobrrr.model.diagnosis import Diagnosis, Finding, NotChecked
from gobrrr.observe.trace import read_trace
from tests.analysis.tables import DDP, HOLDOUT, PUBLIC, SHIPPED, diagnosis, short
from tests.spread import slow, spread

EVERY = [*SHIPPED, *DDP, *HOLDOUT, *PUBLIC]
GPT = next(path for path in SHIPPED if path.name.startswith("gpt2_b8_s1024.fwdbwd"))
WRITTEN = next(path for path in SHIPPED if path.name.startswith("gpt_eager_attn.faulty"))
ARGUMENTS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
PRICING = ["C01", "C02", "C03", "M01", "M02", "M03", "M04", "M05"]


@cache
def gpt() -> str:
    return gzip.decompress(GPT.read_bytes()).decode("utf-8")


def changed(folder: Path, change: Callable[[dict[str, Any]], None], on: str | None = None) -> Diagnosis:
    """The diagnosis of the trace with `change` made to the arguments of each event."""
    trace = json.loads(gpt())
    for event in trace["traceEvents"]:
        if isinstance(event.get("args"), dict):
            change(event["args"])
    path = folder / "changed.json"
    path.write_text(json.dumps(trace), encoding="utf-8")
    return diagnose(read_trace(str(path)), on=on)


def without_shapes(arguments: dict[str, Any]) -> None:
    for key in ARGUMENTS:
        arguments.pop(key, None)


def sizes(value: Any) -> Callable[[dict[str, Any]], None]:
    def change(arguments: dict[str, Any]) -> None:
        if "Input Dims" in arguments:
            arguments["Input Dims"] = [value] * len(arguments["Input Dims"])

    return change


def ns(found: Diagnosis, *lines: str) -> float:
    return sum(one.ns for one in found.budget if one.line in lines)


def unchecked(found: Diagnosis) -> list[str]:
    return [one.code for one in found.not_checked]


@pytest.mark.parametrize("path", spread(EVERY), ids=short)
def test_the_coverage_is_that_of_the_budget(path: Path):
    found = diagnosis(path)
    priced, rest = ns(found, "compute", "memory", "below_roof"), ns(found, "unpriced")
    if found.timeline is None or not priced + rest:
        assert found.coverage.device_time is None
    else:
        assert found.coverage.device_time == pytest.approx(1 - rest / (priced + rest), abs=1e-9)


@pytest.mark.parametrize("path", spread(EVERY), ids=short)
def test_what_prices_calls_is_found_or_not_checked_where_the_greater_part_is_not_priced(path: Path):
    found = diagnosis(path)
    if (found.coverage.device_time or 0.0) >= 0.45 or found.ranks > 1:  # the leading device's share may differ a little
        return
    seen = {one.code: one for one in found.findings}
    for code in PRICING:
        assert code in unchecked(found) or seen[code].certainty == "low"


@pytest.mark.parametrize("on", ["t4", slow("v100"), "h100"])
def test_another_machine_s_floors_do_not_leave_the_certainty_high(on: str):
    found = diagnose(read_trace(str(WRITTEN)), on=on)
    priced, rest = ns(found, "compute", "memory", "below_roof"), ns(found, "unpriced")
    assert found.coverage.device_time == pytest.approx(priced / (priced + rest))
    refuted = any("faster than their floor" in line for line in found.evidence)
    assert (found.certainty, refuted) == (("high", False) if on == "h100" else ("low", True))


def test_without_a_machine_nothing_has_a_floor():
    profile = read_trace(str(GPT))
    (rank,) = profile.ranks
    blind = type(rank.meta)(**{**fields(rank.meta), "devices": ()})
    found = diagnose(type(profile)(**{**fields(profile), "ranks": (type(rank)(**{**fields(rank), "meta": blind}),)}))
    assert (found.machine, found.regime, found.speed_of_light_ns) == (None, "unknown", None)
    assert (found.coverage.device_time, found.coverage.calls, found.coverage.bytes) == (0.0, 0.0, 0.0)
    assert set(PRICING) <= set(unchecked(found))
    assert found.totals.flop


def fields(record: Any) -> dict[str, Any]:
    names = getattr(record, "__struct_fields__", None) or record.__dataclass_fields__
    return {name: getattr(record, name) for name in names}


def test_flops_that_nothing_counts_are_unknown(tmp_path: Path):
    found = changed(tmp_path, without_shapes)
    assert found.totals.flop is None
    assert found.totals.bytes_as_run is None or found.totals.bytes_as_run > 0
    assert set(PRICING) <= set(unchecked(found))


@pytest.mark.parametrize("size", spread([[-1, 5], [10**30], [10**9, 10**9, 10**9], [2**63, 0], [10**400]], 4), ids=str)
def test_sizes_that_no_tensor_has_leave_the_work_unknown(size: list[int], tmp_path: Path):
    found = changed(tmp_path, sizes(size))
    assert (found.regime, found.certainty) == ("unknown", "low")
    assert (found.coverage.device_time or 0.0) < 0.2
    assert (found.totals.flop or 0.0) < 1e13
    for code in PRICING:
        assert code in unchecked(found)


@pytest.mark.parametrize(
    "size", spread([[2**31, 2**31], [1] * 70, [0], [2**40]], 2), ids=["2^62", "70 dimensions", "0", "2^40"]
)
def test_sizes_that_are_odd_but_possible_end_in_an_answer(size: list[int], tmp_path: Path):
    found = changed(tmp_path, sizes(size))
    assert sum(one.share for one in found.budget) == pytest.approx(1.0)
    beaten = any("faster than their floor" in line for line in found.evidence)
    assert found.certainty != "high" or not beaten


def test_strides_and_collectives_out_of_range_are_left_out(tmp_path: Path):
    def change(arguments: dict[str, Any]) -> None:
        if "Input Strides" in arguments:
            arguments["Input Strides"] = [[10**30] * len(one) for one in arguments["Input Strides"]]
        arguments.update({"Collective name": "allreduce", "In msg nelems": 10**40, "Group size": 10**40})

    assert changed(tmp_path, change).coverage.device_time == pytest.approx(1.0, abs=0.05)


def result() -> ClaimedFinding:
    made = Finding(code="M01", title="a chain", where=[], at_stake_ns=(0, 1), certainty="high", treatments=[])
    return ClaimedFinding(made, NO_CLAIM)


@pytest.mark.parametrize(("priced", "limited"), [(49, True), (50, False), (100, False)])
def test_a_condition_that_prices_calls_reaches_as_far_as_they_are_priced(priced: int, limited: bool):
    floor = np.where(np.arange(100) < priced, 1.0, np.nan)
    evidence: Any = SimpleNamespace(calls=SimpleNamespace(ns=np.full(100, 2.0), floor_ns=floor))
    nothing, found = (as_far_as_priced("M01", evidence, one) for one in (None, result()))
    assert isinstance(found, ClaimedFinding)
    assert as_far_as_priced("O01", evidence, None) is None
    if limited:
        assert isinstance(nothing, NotChecked)
        assert "49 %" in nothing.needs
        assert found.finding.certainty == "low"
        assert "49 %" in found.finding.evidence[-1]
    else:
        assert nothing is None
        assert found == result()


def test_a_kernel_of_no_duration_ends_in_an_answer(tmp_path: Path):
    trace = json.loads(gpt())
    for event in trace["traceEvents"]:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            event["dur"] = 0
    path = tmp_path / "nothing.json"
    path.write_text(json.dumps(trace), encoding="utf-8")
    found = diagnose(read_trace(str(path)))
    assert (found.coverage.device_time, found.certainty != "high" or found.regime == "overhead") == (None, True)


def test_a_step_of_no_duration_ends_in_an_answer(tmp_path: Path):
    operation = {"cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 9}
    launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    kernel = {"cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 5, "dur": 0}
    ids = {"External id": 1, "correlation": 1}
    placed = {**ids, "device": 0, "stream": 7}
    events = [{"ph": "X", **one, "args": at} for one, at in ((operation, ids), (launch, ids), (kernel, placed))]
    path = tmp_path / "nothing.json"
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    found = diagnose(read_trace(str(path)))
    assert (found.regime, found.certainty, found.unprofiled_wall_ns.value) == ("unknown", "low", None)
