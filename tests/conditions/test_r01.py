"""R01: what a checkpoint computes again, and whether the memory for it is free."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.live import DeviceMemory
from tests.conditions.lives import live_of
from tests.conditions.makers import seen_of, what_its_calls_lose
from tests.evidence import certain, check, found, predict, watched
from tests.traces import Trace

SHAPES = [[4096, 4096], [4096, 4096]]
GB = 10**9


def matmul(trace: Trace, sequence: int, us: float = 300.0) -> None:
    """A product; `sequence` as the profiler gives it, -1 with grad mode off."""
    begin = trace.now
    trace.op("aten::mm", SHAPES, us, host_us=10.0)
    inner = trace.events[-1]
    inner["args"]["Sequence number"] = sequence
    assert inner["ts"] == begin


def training(trace: Trace, again: int = 4, node: str = "GeluBackward0") -> None:
    """Four blocks forward; backward each runs its block again, then its own two products."""
    for number in range(4):
        matmul(trace, number)
    for number in range(4):
        with trace.inside(f"autograd::engine::evaluate_function: {node}"), trace.inside(node):
            if number < again:
                matmul(trace, 10 + number)
            matmul(trace, -1)
            matmul(trace, -1)


def live(seen: Evidence, memory: DeviceMemory | None) -> Evidence:
    return watched(certain(seen), live=live_of(memory=memory))


def test_what_fits_is_not_worth_computing_again(tmp_path: Path):
    free = DeviceMemory(peak_bytes=10 * GB, capacity_bytes=80 * GB)
    seen = live(seen_of(tmp_path, training), free)
    finding = found("R01", seen)
    assert finding.certainty == "high"
    assert finding.at_stake_ns == (pytest.approx(4 * 300e3, rel=0.01), pytest.approx(4 * 300e3, rel=0.01))
    assert "10.0 GB of 80.0 GB" in finding.evidence[1]
    given = predict("no-checkpoint", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == what_its_calls_lose(finding)


def test_what_would_not_fit_is_healthy(tmp_path: Path):
    full = DeviceMemory(peak_bytes=72 * GB, capacity_bytes=80 * GB)
    assert check("R01", live(seen_of(tmp_path, training), full)) is None


@pytest.mark.parametrize("memory", [None, DeviceMemory(), DeviceMemory(capacity_bytes=80 * GB)])
def test_an_unknown_peak_promises_nothing_for_sure(tmp_path: Path, memory: DeviceMemory | None):
    finding = found("R01", live(seen_of(tmp_path, training), memory))
    assert finding.certainty == "low"
    assert finding.at_stake_ns[0] == 0


def test_a_trace_alone_does_not_tell_whether_it_fits(tmp_path: Path):
    seen = seen_of(tmp_path, training)
    finding = found("R01", seen)
    assert finding.certainty == "low"
    assert finding.at_stake_ns == (0, pytest.approx(4 * 300e3, rel=0.01))
    given = predict("no-checkpoint", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == (0, pytest.approx(4 * 300e3, rel=0.01))
    assert given.expected_ns == pytest.approx(4 * 300e3, rel=0.01)  # once it is known to fit


def test_nothing_again_is_nothing_to_check(tmp_path: Path):
    assert check("R01", seen_of(tmp_path, lambda trace: training(trace, again=0))) is None


def test_a_backward_pass_that_builds_a_graph_repeats_nothing(tmp_path: Path):
    def body(trace: Trace) -> None:
        for number in range(4):
            matmul(trace, number)
        for number in range(4):
            with trace.inside("autograd::engine::evaluate_function: MmBackward0"), trace.inside("MmBackward0"):
                matmul(trace, 10 + number)
                matmul(trace, 20 + number)
        with trace.inside("autograd::engine::evaluate_function: TBackward0"), trace.inside("TBackward0"):
            matmul(trace, -1)

    assert check("R01", live(seen_of(tmp_path, body), None)) is None


def test_the_reentrant_form_has_a_node_of_its_own(tmp_path: Path):
    def body(trace: Trace) -> None:
        matmul(trace, 0)
        with trace.inside("autograd::engine::evaluate_function: CheckpointFunctionBackward"):
            matmul(trace, 3)
            with trace.inside("autograd::engine::evaluate_function: MmBackward0"):
                matmul(trace, -1)

    assert found("R01", live(seen_of(tmp_path, body), None)).at_stake_ns[1] == pytest.approx(300e3, rel=0.01)
