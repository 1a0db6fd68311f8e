"""O11: many tensors updated one by one, beside O03's optimizers and O04's loops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gobrrr.model.recording import Dependence
from tests.conditions.makers import extra, followed, seen_of
from tests.conditions.test_loops import UPDATE, backward
from tests.evidence import certain, check, findings, found, predict
from tests.traces import Trace


def average(trace: Trace, tensors: int = 60, us: float = 2.0) -> None:
    for size in range(tensors):
        trace.op("aten::mul_", [[64 + size, 64]], us, dtype="float32")
        trace.host("aten::detach", 2.0)
        trace.op("aten::add_", [[64 + size, 64], [64 + size, 64]], us, dtype="float32")


def optimizer(trace: Trace) -> None:
    with trace.annotated("Optimizer.step#AdamW.step"):
        for _ in range(4):
            trace.op("aten::_foreach_addcdiv_", [[4096, 4096]], 60.0, dtype="float32")


@pytest.mark.parametrize("annotated", [True, False])
def test_an_average_over_the_weights(tmp_path: Path, annotated: bool):
    def body(trace: Trace) -> None:
        backward(trace)
        if annotated:
            optimizer(trace)
        average(trace)

    seen = certain(seen_of(tmp_path, body))
    finding = found("O11", seen)
    assert "120 updates a step of 60 tensors" in finding.evidence[0]
    # 120 launches of 20 us, of which recording has a part, and kernels of 2 us in between
    assert 120 * 5e3 < finding.at_stake_ns[1] < 120 * 20e3
    assert finding.at_stake_ns[0] == pytest.approx(finding.at_stake_ns[1] / 2)
    assert check("O03", seen) is None
    given = predict("foreach", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns[0] == pytest.approx(finding.at_stake_ns[0], rel=0.02)
    # what the host does while those kernels run is not at stake, and stays: at most 2 us for each
    most = finding.at_stake_ns[1]
    assert most - 120 * 2e3 < given.predicted_saving_ns[1] <= most


def loop_optimizer(trace: Trace) -> None:
    backward(trace)
    for size in range(30):
        for name in UPDATE:
            trace.op(name, [[64 + size, 64]] * 2, 2.0, dtype="float32")


def annotated_loop(trace: Trace) -> None:
    backward(trace)
    with trace.annotated("Optimizer.step#AdamW.step"):
        average(trace)


@pytest.mark.parametrize("body", [loop_optimizer, annotated_loop])
def test_an_optimizer_is_the_other_finding(tmp_path: Path, body: Callable[[Trace], None]):
    seen = certain(seen_of(tmp_path, body))
    assert check("O11", seen) is None
    assert check("O03", seen) is not None


MEAN = ("aten::mul", "aten::mul", "aten::add")


@pytest.mark.parametrize(("depends", "named"), [("no", True), ("yes", False), ("unknown", False), (None, False)])
def test_an_average_out_of_place_is_known_by_its_loop(tmp_path: Path, depends: Dependence | None, named: bool):
    """A trace alone does not tell it from a chain of products and sums."""

    def body(trace: Trace) -> None:
        backward(trace)
        for size in range(40):
            for name in MEAN:
                trace.op(name, [[64 + size, 64]], 2.0, dtype="float32")

    seen = certain(seen_of(tmp_path, body))
    if depends is not None:
        seen = followed(seen, 40, MEAN, depends)
    assert (check("O11", seen) is not None) is named
    if named:
        finding = found("O11", seen)
        assert "120 updates a step of 40 tensors" in finding.evidence[0]
        assert check("O04", seen) is None
        given = predict("foreach", seen, finding)
        assert given is not None
        assert "torch._foreach_lerp_" in str(given)


def test_few_tensors_are_no_finding(tmp_path: Path):
    def body(trace: Trace) -> None:
        backward(trace)
        average(trace, 20)

    assert check("O11", seen_of(tmp_path, body)) is None


def test_a_loop_behind_a_host_that_is_far_ahead_costs_nothing(tmp_path: Path):
    def body(trace: Trace) -> None:
        for _ in range(40):
            trace.op("aten::mm", [[4096, 4096], [4096, 4096]], 400.0, host_us=10.0)
        average(trace)

    assert check("O11", seen_of(tmp_path, body)) is None


def test_the_backward_pass_accumulates_by_itself(tmp_path: Path):
    def body(trace: Trace) -> None:
        backward(trace)
        for _ in range(80):
            with trace.inside("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"):
                trace.op("aten::add_", [[64, 64], [64, 64]], 2.0, dtype="float32")

    assert check("O11", seen_of(tmp_path, body)) is None


def test_the_launch_bound_step_keeps_the_rest(tmp_path: Path):
    def body(trace: Trace) -> None:
        for _ in range(100):
            trace.op("aten::mm", [[64, 64], [64, 64]], 2.0)
        average(trace)

    seen = certain(seen_of(tmp_path, body))
    settled = {one.code: one for one in findings(seen)}
    assert any("belong to O11" in fact for fact in settled["O01"].evidence)
    assert sum(one.at_stake_ns[1] for one in settled.values()) <= 1.001 * seen.wall_ns


@pytest.mark.parametrize("name", ["foreach_off", "t5_training", "narrow_training_item"])
def test_trainings_without_an_average_have_none(name: str):
    assert check("O11", extra(f"holdout/{name}")) is None
