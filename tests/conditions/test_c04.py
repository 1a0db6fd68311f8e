"""C04: float64 that one array brought in, float64 that is meant, and none."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.conditions.base import NotChecked
from gobrrr.model.live import Switches
from tests.conditions.lives import framed, live_of
from tests.conditions.makers import seen_of, what_its_calls_lose
from tests.evidence import certain, check, found, predict, watched
from tests.traces import Trace

SHAPE, ROW = [4096, 4096], [4096]
MIXED = ["float32", "float64"]


def contaminated(trace: Trace, passes: int = 8) -> None:
    """A float32 activation times a float64 row, and what follows; 134 MB a float64 tensor, 268 for read and write."""
    framed(
        trace,
        "model.py(7): scale",
        lambda: trace.op("aten::mul", [SHAPE, ROW], 70.0, dtypes=MIXED, host_us=10.0),
    )
    for _ in range(passes):
        trace.op("aten::relu", [SHAPE], 100.0, dtype="float64", host_us=10.0)


def test_the_first_operation_that_promotes_is_named(tmp_path: Path):
    seen = certain(seen_of(tmp_path, contaminated))
    finding = found("C04", seen)
    assert finding.title == "float64 by accident"
    assert finding.certainty == "high"
    assert finding.where[0].op == "aten::mul"
    # half of the bytes: 8 passes of 100 us become 50 us each; of the mixed product only the written half shrinks
    half = 8 * 50e3
    third = 70e3 * (134.2 / (67.1 + 134.2)) / 2
    assert finding.at_stake_ns[1] == pytest.approx(half + third, rel=0.03)
    assert finding.at_stake_ns[0] <= finding.at_stake_ns[1]
    given = predict("cast-at-source", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == what_its_calls_lose(finding)


def test_a_contraction_gets_the_lower_type_s_peak(tmp_path: Path):
    def body(trace: Trace) -> None:
        trace.op("aten::copy_", [SHAPE, SHAPE], 90.0, dtypes=["float64", "float32"], host_us=10.0)
        trace.op("aten::mm", [SHAPE, SHAPE], 2600.0, dtype="float64", host_us=10.0, kernel="dgemm_128x64")

    known = live_of(switches=Switches(matmul_tf32=False))
    finding = found("C04", watched(certain(seen_of(tmp_path, body)), live=known))
    # an H100's float64 matrix peak is that of float32 on the vector units, 66.9 TFLOP/s: only the bytes halve there
    assert finding.where[0].op == "aten::copy_"
    assert finding.at_stake_ns[1] == pytest.approx(90e3, rel=0.05)
    assert finding.at_stake_ns[0] == pytest.approx(0.0, abs=1e3)


def test_a_program_that_allows_tf32_may_gain_its_matrix_units(tmp_path: Path):
    """An H100 does 66.9 TFLOP/s in float64 and in float32, 494.7 in TF32; the bytes need less than either."""

    def body(trace: Trace) -> None:
        trace.op("aten::copy_", [SHAPE, SHAPE], 90.0, dtypes=["float64", "float32"], host_us=10.0)
        trace.op("aten::mm", [SHAPE, SHAPE], 2600.0, dtype="float64", host_us=10.0, kernel="dgemm_128x64")

    seen = certain(seen_of(tmp_path, body))
    finding = found("C04", seen)
    given = predict("cast-at-source", seen, finding)
    assert given is not None
    assert "TF32" in given.assumes
    # the finding has at stake what its remedy may save
    assert finding.at_stake_ns == pytest.approx(given.predicted_saving_ns, rel=0.02)
    low, high = given.predicted_saving_ns
    assert low == pytest.approx(0.0, abs=1e3)
    assert high == pytest.approx(90e3 + 2600e3 * (1 - 66.9 / 494.7), rel=0.03)
    # what a live run has seen of the switch decides it
    for allowed, product in ((False, 0.0), (True, 2600e3 * (1 - 66.9 / 494.7))):
        known = watched(seen, live=live_of(switches=Switches(matmul_tf32=allowed)))
        given = predict("cast-at-source", known, found("C04", known))
        assert given is not None
        assert given.predicted_saving_ns[1] == pytest.approx(90e3 + product, rel=0.03)
        assert given.predicted_saving_ns[0] == pytest.approx(product, rel=0.03, abs=1e3)


def test_float64_throughout_may_be_meant(tmp_path: Path):
    def body(trace: Trace) -> None:
        for _ in range(8):
            trace.op("aten::relu", [SHAPE], 100.0, dtype="float64", host_us=10.0)

    finding = found("C04", certain(seen_of(tmp_path, body)))
    assert finding.title == "float64 throughout"
    assert finding.certainty == "low"
    assert "this may be intended" in finding.evidence[0]


def test_an_update_in_place_stays_in_its_own_type(tmp_path: Path):
    def body(trace: Trace) -> None:
        trace.op("aten::add_", [SHAPE, SHAPE], 100.0, dtypes=MIXED, host_us=10.0)
        for _ in range(8):
            trace.op("aten::relu", [SHAPE], 60.0, dtype="float32", host_us=10.0)

    finding = check("C04", certain(seen_of(tmp_path, body)))
    assert finding is None or (not isinstance(finding, NotChecked) and finding.certainty == "low")


def test_a_few_numbers_in_float64_are_no_finding(tmp_path: Path):
    def body(trace: Trace) -> None:
        for _ in range(8):
            trace.op("aten::relu", [SHAPE], 60.0, dtype="float32", host_us=10.0)
        trace.op("aten::add", [[], []], 2.0, dtypes=["float64", "float64"], host_us=5.0)
        trace.op("aten::mul", [[16], []], 2.0, dtypes=["float64", "float64"], host_us=5.0)

    assert check("C04", certain(seen_of(tmp_path, body))) is None


def test_a_number_times_a_float32_tensor_stays_float32(tmp_path: Path):
    def body(trace: Trace) -> None:
        for _ in range(8):
            trace.op("aten::mul", [SHAPE, []], 60.0, dtypes=["float32", "float64"], host_us=10.0)

    assert check("C04", certain(seen_of(tmp_path, body))) is None
