"""Operations of oneDNN on shapes that each step has for itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gobrrr.analysis.findings.evidence import Evidence
from tests.conditions.makers import seen_of
from tests.conditions.test_on_cpu import on_cpu
from tests.evidence import check, found, predict
from tests.traces import Trace

CONVOLUTION = "aten::mkldnn_convolution"
WEIGHT = [8, 3, 3, 3]


def steps(folder: Path, width: Callable[[int], int], *, count: int = 4, name: str = CONVOLUTION) -> Evidence:
    """Steps with one operation of 500 us on an image that is `width(number)` wide."""
    numbers = iter(range(count))

    def body(trace: Trace) -> None:
        image = [1, 3, 32, width(next(numbers))]
        trace.op(name, [image, WEIGHT], 500.0, dtype="float32", host_us=20.0)
        for _ in range(10):
            trace.op("aten::add", [[64, 64], [64, 64]], 20.0, dtype="float32", host_us=20.0)

    return on_cpu(seen_of(folder, body, count))


def test_sizes_that_no_other_step_has_are_first_uses(tmp_path: Path):
    seen = steps(tmp_path, lambda number: 40 + 7 * (number % 3) + number)
    finding = found("O05", seen)
    assert "new shapes in every step" in finding.title
    assert [one.op for one in finding.where] == [CONVOLUTION]
    # 500 us, which are nearly all beyond the floor of 3 MFLOP
    assert finding.at_stake_ns == (0, pytest.approx(5e5, rel=0.1))
    given = predict("static-shapes", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns[0] == 0
    assert "pad to a few sizes" in given.how


@pytest.mark.parametrize("width", [lambda _: 40, lambda number: 40 + number % 2], ids=["one size", "two sizes"])
def test_sizes_that_come_again_are_kept(width: Callable[[int], int], tmp_path: Path):
    assert check("O05", steps(tmp_path, width)) is None


def test_two_steps_say_nothing(tmp_path: Path):
    assert check("O05", steps(tmp_path, lambda number: 40 + number, count=2)) is None


def test_other_operations_need_no_code_for_their_sizes(tmp_path: Path):
    assert check("O05", steps(tmp_path, lambda number: 40 + number, name="aten::conv_other")) is None
