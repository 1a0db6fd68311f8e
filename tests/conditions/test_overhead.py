"""O01 and O02 on traces made by hand, sick and healthy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gobrrr.model.diagnosis import Finding, NotChecked
from tests.conditions.makers import shipped
from tests.conftest import H100
from tests.evidence import certain, check, evidence_from, found, predict
from tests.traces import Trace

SMALL, LARGE = [[64, 64], [64, 64]], [[4096, 4096], [4096, 4096]]


def steps(trace: Trace, body, count: int = 4) -> Trace:
    for number in range(count):
        with trace.step(number):
            body(trace)
    return trace


def small_kernels(trace: Trace) -> None:
    for _ in range(40):
        trace.op("aten::mm", SMALL, 2.0, host_us=40.0)


def large_kernels(trace: Trace) -> None:
    for _ in range(20):
        trace.op("aten::mm", LARGE, 300.0, host_us=40.0)


def test_many_short_kernels_are_launch_bound(tmp_path: Path):
    seen = certain(evidence_from(steps(Trace(), small_kernels).write(tmp_path)))
    finding = found("O01", seen)
    assert finding.certainty == "high"
    assert finding.where[0].op == "aten::mm"
    # 40 launches a step keep 0.3 to 1 us each in a graph: what it leaves is at stake nowhere
    assert finding.at_stake_ns[1] - finding.at_stake_ns[0] == pytest.approx(28_000)
    assert any("a CUDA graph would still leave it idle for 12.0 to 40.0 us" in fact for fact in finding.evidence)
    assert finding.at_stake_ns[1] > 0.8 * seen.wall_ns


def test_a_graph_saves_the_idle_time_and_never_the_busy_time(tmp_path: Path):
    sure = certain(evidence_from(steps(Trace(), small_kernels).write(tmp_path)))
    finding = found("O01", sure)
    given = predict("cuda-graph", sure, finding)
    busy = sure.budget.busy_ns / sure.steps.count
    assert given is not None
    assert given.predicted_saving_ns[1] <= sure.wall_ns - busy
    # the launches of a graph lie 1 us apart at the least effect
    assert given.predicted_saving_ns[0] == pytest.approx(finding.at_stake_ns[0], rel=0.02)


def test_what_a_graph_saves_is_as_known_as_the_host_s_time(tmp_path: Path):
    seen = evidence_from(steps(Trace(), small_kernels).write(tmp_path))
    sure, wide = (predict("cuda-graph", one, found("O01", one)) for one in (certain(seen), seen))
    assert sure is not None
    assert wide is not None
    assert wide.predicted_saving_ns[0] < sure.predicted_saving_ns[0]
    # never more than the step that is expected has idle, however slow the host
    busy = seen.budget.busy_ns / seen.steps.count
    assert sure.predicted_saving_ns[1] <= wide.predicted_saving_ns[1] <= seen.wall_ns - busy


@pytest.mark.parametrize("name", ["bert_base_b32_s512.fwd", "bert_base_b32_s512.fwdbwd", "gpt2_b8_s1024.fwd"])
def test_a_graph_promises_no_more_than_the_measured_overhead(name: str):
    seen = shipped(name)
    finding = check("O01", seen)
    if not isinstance(finding, Finding):
        return
    given = predict("cuda-graph", seen, finding)
    assert given is not None
    measured = json.loads((H100 / "labels.json").read_text(encoding="utf-8"))[name.rpartition(".")[0]][
        name.rpartition(".")[2]
    ]
    busy = seen.budget.busy_ns / seen.steps.count
    assert given.predicted_saving_ns[0] <= max(measured) * 1e6 - busy


def test_the_same_operations_are_named_in_the_order_of_their_names(tmp_path: Path):
    def body(trace: Trace) -> None:
        for name in ("sin", "cos", "tanh", "exp"):
            for _ in range(12):
                trace.op(f"aten::{name}", [[64, 64]], 2.0, host_us=40.0)

    where = found("O01", evidence_from(steps(Trace(), body).write(tmp_path))).where
    assert [(-(one.ns or 0), one.op) for one in where] == sorted((-(one.ns or 0), one.op) for one in where)


def test_a_small_step_that_mostly_waits_for_its_launches_is_launch_bound(tmp_path: Path):
    def few(trace: Trace) -> None:
        for _ in range(6):
            trace.op("aten::mm", SMALL, 2.0, host_us=40.0)

    finding = found("O01", certain(evidence_from(steps(Trace(), few).write(tmp_path))))
    assert finding.treatments[0] == "cuda-graph"


def test_a_small_step_that_mostly_computes_is_not(tmp_path: Path):
    def few(trace: Trace) -> None:
        for _ in range(5):
            trace.op("aten::mm", SMALL, 2.0, host_us=40.0)
        trace.op("aten::mm", LARGE, 600.0, host_us=40.0)

    assert check("O01", evidence_from(steps(Trace(), few).write(tmp_path))) is None


def test_long_kernels_are_not_launch_bound(tmp_path: Path):
    assert check("O01", evidence_from(steps(Trace(), large_kernels).write(tmp_path))) is None


def test_without_launches_it_is_not_checked(tmp_path: Path):
    trace = steps(Trace(), small_kernels)
    trace.events = [event for event in trace.events if event["cat"] in ("kernel", "user_annotation")]
    assert isinstance(check("O01", evidence_from(trace.write(tmp_path))), NotChecked)


def test_a_wait_between_host_work_and_device_work_is_found(tmp_path: Path):
    """The host issues for 2 ms, then the device computes for 2 ms: with the wait they add, without it they overlap."""

    def body(trace: Trace) -> None:
        for _ in range(2):
            for _ in range(20):
                trace.op("aten::mm", SMALL, 2.0, host_us=100.0)
            for _ in range(10):
                trace.op("aten::mm", LARGE, 200.0, host_us=10.0)
            trace.item()

    seen = certain(evidence_from(steps(Trace(), body).write(tmp_path)))
    finding = found("O02", seen)
    assert finding.where[0].op == "aten::item"
    # two a step, but for the very last: no step follows it
    assert finding.where[0].count == 7 / 4
    # W' = max(host, device) of each half, about 2 of 4 ms
    assert 0.3 * seen.wall_ns < finding.at_stake_ns[0] < 0.6 * seen.wall_ns
    assert seen.wall_ns - seen.without_waits() >= finding.at_stake_ns[0] - 1


def test_reading_the_loss_of_a_tiny_step_costs_next_to_nothing(tmp_path: Path):
    """LANfactory#120: a wait blamed for 85 % of a step whose removal gave 4 %."""

    def body(trace: Trace) -> None:
        small_kernels(trace)
        trace.item()

    seen = evidence_from(steps(Trace(), body).write(tmp_path))
    result = check("O02", seen)
    assert result is None or (isinstance(result, Finding) and result.at_stake_ns[0] < 0.05 * seen.wall_ns)
    assert isinstance(check("O01", seen), Finding)


def test_a_benchmark_that_synchronizes_after_each_step_is_no_finding(tmp_path: Path):
    def body(trace: Trace) -> None:
        large_kernels(trace)
        trace.synchronize()

    assert check("O02", evidence_from(steps(Trace(), body).write(tmp_path))) is None


def test_a_blocked_host_in_a_device_bound_step_costs_nothing(tmp_path: Path):
    """The host is blocked for most of the step, but the device has all of its work queued before the wait."""

    def body(trace: Trace) -> None:
        for number in range(40):
            trace.op("aten::mm", LARGE, 300.0, host_us=10.0)
            if number == 5:
                trace.item()

    seen = evidence_from(steps(Trace(), body, 3).write(tmp_path))
    result = check("O02", seen)
    assert result is None or (isinstance(result, Finding) and result.at_stake_ns[1] < 0.05 * seen.wall_ns)


def test_a_graph_promises_nothing_certain_where_the_step_waits(tmp_path: Path):
    def body(trace: Trace) -> None:
        small_kernels(trace)
        trace.item()
        small_kernels(trace)

    seen = evidence_from(steps(Trace(), body).write(tmp_path))
    given = predict("cuda-graph", seen, found("O01", seen))
    assert given is not None
    assert given.predicted_saving_ns[0] == 0
