"""Q01, Q02 and Q03: about the trace, with nothing of the step at stake."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conditions.makers import extra, seen_of, shipped
from tests.evidence import check, findings, found, predict
from tests.traces import Trace


def step(trace: Trace, us: float = 300.0, host_us: float = 40.0) -> None:
    for _ in range(20):
        trace.op("aten::mm", [[4096, 4096], [4096, 4096]], us, host_us=host_us)


def test_a_host_bound_step_is_inflated(tmp_path: Path):
    """10 us a launch, of which recording is a good part (`ObserverCost`)."""
    seen = seen_of(tmp_path, lambda trace: step(trace, 2.0, 10.0))
    finding = found("Q01", seen)
    assert finding.at_stake_ns == (0, 0)
    assert "without the profiler" in finding.evidence[0]
    assert findings(seen)[-1].code == "Q01"


def test_a_step_that_the_device_bounds_is_not(tmp_path: Path):
    assert check("Q01", seen_of(tmp_path, step)) is None
    assert check("Q01", shipped("gpt_fp32_notf32.faulty")) is None
    assert check("Q01", extra("holdout/wide_training")) is None


@pytest.mark.parametrize("name", ["gpt_eager_attn.fixed", "bert_base_b32_s512.fwdbwd", "dit_xl_b8_s256.fwd"])
def test_shipped_traces_that_were_recorded_with_far_more_than_they_take(name: str):
    """truth.json and labels.json: 37.9 to 39.3 ms, 31.5 to 33.0 ms and 12.3 to 12.8 ms without the profiler."""
    assert check("Q01", shipped(name)) is not None


def test_operations_without_shapes(tmp_path: Path):
    seen = seen_of(tmp_path, step, shapes=False)
    finding = found("Q02", seen)
    assert "none has shapes" in finding.evidence[0]
    given = predict("record-shapes", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == (0, 0)


def test_shapes_are_healthy(tmp_path: Path):
    assert check("Q02", seen_of(tmp_path, step)) is None


@pytest.mark.parametrize("name", ["mlp_tiny.fixed", "holdout/compiled_graphs"])
def test_a_replayed_graph_has_no_operations(name: str):
    seen = extra(name) if "/" in name else shipped(name)
    finding = found("Q03", seen)
    assert "1 graph launch" in finding.evidence[0]
    assert check("Q02", seen) is None
    assert check("O01", seen) is None
    given = predict("eager-trace", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == (0, 0)


def test_an_eager_step_is_no_replay(tmp_path: Path):
    assert check("Q03", seen_of(tmp_path, step)) is None
    assert check("Q03", shipped("mlp_tiny.faulty")) is None
