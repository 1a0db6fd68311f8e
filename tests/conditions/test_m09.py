"""M09: pointwise operations on tensors that lie in different orders."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conditions.makers import seen_of, what_its_calls_lose
from tests.evidence import certain, check, found, predict
from tests.traces import Trace

X = [8192, 8192]
ROWS, COLUMNS = [8192, 1], [1, 8192]
AT_ROOF = 3 * 8192 * 8192 * 4 / 3.35e12 * 1e6
"""Microseconds of x + y in float32 at an H100's bandwidth."""


def added(trace: Trace, us: float, *strides: list[int]) -> None:
    for _ in range(4):
        trace.op("aten::add", [X, X], us, dtype="float32", strides=strides, host_us=10.0)


def test_an_operand_that_is_read_across_its_rows(tmp_path: Path):
    seen = certain(seen_of(tmp_path, lambda trace: added(trace, 10 * AT_ROOF, ROWS, COLUMNS)))
    finding = found("M09", seen)
    assert finding.at_stake_ns == (0.0, pytest.approx(4 * 9 * AT_ROOF * 1e3, rel=0.02))
    assert "[8192, 1], [1, 8192]" in finding.evidence[1]
    given = predict("keep-order", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == what_its_calls_lose(finding)


@pytest.mark.parametrize("order", [ROWS, COLUMNS])
def test_one_order_is_healthy_whichever_it_is(tmp_path: Path, order: list[int]):
    assert check("M09", seen_of(tmp_path, lambda trace: added(trace, 10 * AT_ROOF, order, order))) is None


def test_near_the_roof_the_order_does_not_matter(tmp_path: Path):
    assert check("M09", seen_of(tmp_path, lambda trace: added(trace, 1.5 * AT_ROOF, ROWS, COLUMNS))) is None


def test_a_bias_is_no_other_order(tmp_path: Path):
    def body(trace: Trace) -> None:
        trace.op("aten::add", [X, X], 10 * AT_ROOF, dtype="float32", strides=[ROWS, [0, 1]], host_us=10.0)

    assert check("M09", seen_of(tmp_path, body)) is None


def test_a_copy_into_another_order_is_a_layout_copy(tmp_path: Path):
    def body(trace: Trace) -> None:
        trace.op("aten::copy_", [X, X], 10 * AT_ROOF, dtype="float32", strides=[ROWS, COLUMNS], host_us=10.0)

    seen = seen_of(tmp_path, body)
    assert check("M09", seen) is None
    assert check("M05", seen) is not None
