"""What a larger batch costs: weights are read once for any batch. Traces whose answer can be said by hand, in us."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.replay.what_if import FIXED_NS
from gobrrr.analysis.savings.batches import factors
from gobrrr.analysis.savings.gains import length
from gobrrr.analysis.savings.regions import larger
from tests.analysis.slow_simulator import unprofiled
from tests.traces import Trace

BF16 = "bfloat16"
US = 20.0
WIDE = 4096


def step(folder: Path, name: str, dims: list[list[int]], *, trains: bool = False, dtype: str = BF16) -> Evidence:
    """Ten calls of 20 us a step. Reading 4096 x 4096 weights of 2 bytes takes an H100 10 us."""
    trace = Trace(device="NVIDIA H100 80GB HBM3")
    for number in range(3):
        with trace.step(number):
            for _ in range(10):
                trace.op(name, dims, US, dtypes=[dtype] * len(dims))
            if trains:
                with trace.inside("autograd::engine::evaluate_function: MmBackward0"):
                    trace.op(name, dims, US, dtypes=[dtype] * len(dims))
            trace.synchronize()
    return unprofiled(trace, folder)


MM = [[1, WIDE], [WIDE, WIDE]]


@pytest.mark.parametrize(
    ("name", "dims"),
    [("aten::mm", MM), ("aten::addmm", [[WIDE], *MM]), ("aten::linear", [[1, WIDE], [WIDE, WIDE]])],
)
def test_rows_that_are_added_to_a_product_read_no_weights_again(name: str, dims: list[list[int]], tmp_path: Path):
    (one,) = set(factors(step(tmp_path, name, dims), 8.0).tolist())
    # beside 4096 x 4096 weights a row in and a row out, of 4096 each
    assert one == pytest.approx((WIDE + 2 * 8) / (WIDE + 2), rel=2e-4)


def test_of_many_rows_the_compute_takes_longer_than_the_weights(tmp_path: Path):
    """2 x 4096 x 4096 x 4096 FLOP for 4,096 rows are 139 us at 989 TFLOP/s; the bytes take some 7 from the cache."""
    evidence = step(tmp_path, "aten::mm", [[64, WIDE], [WIDE, WIDE]])
    floor = next(group.floor for group in evidence.priced.groups if group.floor is not None)
    (one,) = set(factors(evidence, 64.0).tolist())
    assert one == pytest.approx(2 * 64 * 64 * WIDE * WIDE / 989.4e12 * 1e9 / floor.ns, rel=0.02)


@pytest.mark.parametrize(
    ("name", "dims", "trains"),
    [
        ("aten::mm", [[8192, WIDE], [WIDE, WIDE]], False),  # bound by compute
        ("aten::add", [[WIDE, WIDE], [WIDE, WIDE]], False),  # activations
        ("aten::bmm", [[1, 64, WIDE], [1, WIDE, WIDE]], False),  # both its operands are a batch's
        ("aten::mm", MM, True),  # of a backward pass it is not told which operand is the weights
    ],
)
def test_everything_else_grows_with_the_batch(name: str, dims: list[list[int]], trains: bool, tmp_path: Path):
    assert set(factors(step(tmp_path, name, dims, trains=trains), 8.0).tolist()) == {8.0}


def test_a_decode_step_of_eight_takes_as_long_as_one_of_one(tmp_path: Path):
    evidence = step(tmp_path, "aten::mm", MM)
    now = length(evidence, evidence.graph)
    assert length(evidence, larger(evidence, 8.0)(1.0)(evidence.graph)) == pytest.approx(now, rel=0.01)
    adds = step(tmp_path, "aten::add", [[1024, WIDE], [1024, WIDE]])
    fixed = FIXED_NS / 1e3
    grown = length(adds, larger(adds, 8.0)(1.0)(adds.graph)) / 1e3
    assert grown == pytest.approx(10 * (fixed + 8 * (US - fixed)), rel=0.03)
