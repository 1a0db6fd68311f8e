"""M10: a tensor that grows by concatenation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conditions.makers import seen_of, what_its_calls_lose
from tests.evidence import certain, check, evidence_from, found, predict
from tests.traces import Trace


def cat(trace: Trace, shapes: list[list[int]], us: float, dimension: int = 2) -> None:
    begin = trace.now
    trace.now += 10.0
    trace._launch("cudaLaunchKernel", "kernel", "CatArrayBatchedCopy", us, {})
    given = {
        "Input Dims": [shapes, []],
        "Input type": ["TensorList", "Scalar"],
        "Concrete Inputs": ["", str(dimension)],
    }
    trace._add("cpu_op", "aten::cat", begin, trace.now - begin, given)


def cache(length: int) -> list[int]:
    return [8, 32, length, 128]


def token(trace: Trace, length: int, layers: int = 8) -> None:
    """One decoded token: each layer joins keys and values."""
    for _ in range(layers):
        trace.op("aten::mm", [[8, 4096], [4096, 4096]], 100.0, host_us=10.0)
        for _ in range(2):
            cat(trace, [cache(length), cache(1)], 40.0)


def test_a_cache_that_grows_from_step_to_step(tmp_path: Path):
    trace = Trace()
    for number in range(3):
        with trace.step(number):
            token(trace, 1024 + number)
    seen = certain(evidence_from(trace.write(tmp_path)))
    finding = found("M10", seen)
    assert finding.at_stake_ns[1] == pytest.approx(16 * 40e3, rel=0.02)
    assert finding.at_stake_ns[0] < finding.at_stake_ns[1]
    assert "from 1024 to 1027" in finding.evidence[0]
    given = predict("preallocate", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == what_its_calls_lose(finding)


def test_a_cache_that_grows_within_a_step(tmp_path: Path):
    def body(trace: Trace) -> None:
        for length in range(512, 528):
            trace.op("aten::mm", [[8, 4096], [4096, 4096]], 20.0)
            cat(trace, [cache(length), cache(1)], 40.0)

    finding = found("M10", certain(seen_of(tmp_path, body)))
    assert "dimension 2 from 512 to 528" in finding.evidence[0]


def test_the_same_join_in_each_step_is_none(tmp_path: Path):
    assert check("M10", seen_of(tmp_path, lambda trace: token(trace, 1024))) is None


def test_halves_that_are_joined_are_no_growth(tmp_path: Path):
    def body(trace: Trace) -> None:
        for length in (256, 512, 1024):  # the skip connections of a U-Net
            cat(trace, [cache(length), cache(length)], 40.0)

    assert check("M10", seen_of(tmp_path, body)) is None


def test_differing_lengths_that_do_not_follow_each_other_are_none(tmp_path: Path):
    def body(trace: Trace) -> None:
        for length in (100, 220, 340, 480):
            cat(trace, [cache(length), cache(1)], 40.0)

    assert check("M10", seen_of(tmp_path, body)) is None
