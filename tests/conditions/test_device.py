"""M01, M02 and C01 on traces made by hand, sick and healthy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gobrrr.model.diagnosis import NotChecked
from tests.conditions.makers import shipped, what_its_calls_lose
from tests.conftest import H100
from tests.evidence import check, evidence_from, found, predict
from tests.traces import Trace

ROWS = [8192, 4096]
"""67 MB in bfloat16: larger than the cache, 40 us to read and write at 3.35 TB/s."""
SCORES = [8, 16, 1024, 1024]
PASS_US = 50.0
FP32_KERNEL = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n"


def pointwise(trace: Trace, host_us: float, us: float = PASS_US) -> None:
    for _ in range(5):
        for name in ("aten::sigmoid", "aten::tanh", "aten::cos", "aten::relu"):
            trace.op(name, [ROWS], us, host_us=host_us)
        trace.op("aten::mm", [[4096, 4096], [4096, 512]], 30.0, host_us=host_us)


def attention(trace: Trace, host_us: float = 10.0, slow: float = 1.0) -> None:
    for _ in range(4):
        trace.op("aten::mm", [[8192, 1024], [1024, 3072]], 90 * slow, host_us=host_us)
        trace.op("aten::bmm", [[128, 1024, 64], [128, 64, 1024]], 120 * slow, host_us=host_us)
        trace.op("aten::div", [SCORES, []], 180 * slow, host_us=host_us)
        trace.op("aten::_softmax", [SCORES, [], []], 200 * slow, host_us=host_us, concrete=["", "-1", "False"])
        trace.op("aten::bmm", [[128, 1024, 1024], [128, 1024, 64]], 120 * slow, host_us=host_us)
        trace.op("aten::mm", [[8192, 1024], [1024, 1024]], 40 * slow, host_us=host_us)


def fp32(trace: Trace, us: float = 2500.0, kernel: str = FP32_KERNEL, host_us: float = 10.0) -> None:
    for _ in range(6):
        trace.op("aten::mm", [[4096, 4096], [4096, 4096]], us, dtype="float32", kernel=kernel, host_us=host_us)


def seen_of(tmp_path: Path, body, *arguments: object, **options: object):
    trace = Trace(**options)  # type: ignore[arg-type]
    for number in range(3):
        with trace.step(number):
            body(trace, *arguments)
    return evidence_from(trace.write(tmp_path))


def test_a_chain_is_one_place_with_a_count(tmp_path: Path):
    finding = found("M01", seen_of(tmp_path, pointwise, 10.0))
    assert finding.where[0].op == "sigmoid, tanh, cos, relu"
    assert finding.where[0].count == 5
    # by hand: (2 * 3 of 8 passes) of 200 us, and three launches of 1 us, in each of five chains
    assert finding.at_stake_ns[0] == pytest.approx(5 * (0.75 * 4 * PASS_US + 3) * 1e3, rel=0.05)
    # two passes over 67.1 MB at the bandwidth are left of each chain's 200 us
    high = 5 * (4 * PASS_US * 1e3 - 2 * 67_108_864 / 3.35e12 * 1e9)
    assert finding.at_stake_ns[1] == pytest.approx(high, rel=0.05)


def test_a_backward_pass_keeps_the_intermediates(tmp_path: Path):
    def body(trace: Trace) -> None:
        pointwise(trace, 10.0)
        trace.host("autograd::engine::evaluate_function: MulBackward0", 5.0)

    finding = found("M01", seen_of(tmp_path, body))
    # three intermediates of 67.1 MB are written and only not read again, in each of five chains
    assert finding.at_stake_ns[0] == pytest.approx(5 * 3 * 67_108_864 / 3.35e12 * 1e9, rel=0.05)
    assert finding.at_stake_ns[1] == pytest.approx(5 * (0.75 * 4 * PASS_US + 3) * 1e3, rel=0.05)


def test_an_intermediate_that_a_later_call_may_read_is_written(tmp_path: Path):
    """A residual behind each chain: an addition takes the new tensor and an older one of the chain's shape."""

    def body(trace: Trace) -> None:
        for _ in range(5):
            for name in ("sigmoid", "tanh", "cos", "relu"):
                trace.op(f"aten::{name}", [[8192, 4096]], PASS_US, host_us=10.0)
            trace.op("aten::mm", [ROWS, [4096, 4096]], 900.0, host_us=10.0)
            trace.op("aten::add", [ROWS, ROWS], 60.0, host_us=10.0)
            trace.op("aten::mm", [[4096, 4096], [4096, 512]], 30.0, host_us=10.0)

    low, high = found("M01", seen_of(tmp_path, body)).at_stake_ns
    assert low == pytest.approx(5 * 3 * 67_108_864 / 3.35e12 * 1e9, rel=0.05)
    assert high == pytest.approx(5 * (4 * PASS_US * 1e3 - 2 * 67_108_864 / 3.35e12 * 1e9), rel=0.05)


def test_the_shipped_chain_saves_what_was_measured():
    times = json.loads((H100 / "truth.json").read_text(encoding="utf-8"))["pointwise_chain"]
    measured = sorted(times["faulty"][key] - times["fixed"][key] for key in ("sync_ms", "pipelined_ms"))
    low, high = (ns / 1e6 for ns in found("M01", shipped("pointwise_chain.faulty")).at_stake_ns)
    assert low <= measured[0] <= measured[1] <= high


def test_fusing_gives_nothing_where_the_host_is_the_bound(tmp_path: Path):
    """Liger-Kernel#323: fused kernels in a launch-bound step."""
    assert check("M01", seen_of(tmp_path, pointwise, 400.0)) is None


def test_pointwise_calls_on_different_shapes_are_no_chain(tmp_path: Path):
    def body(trace: Trace) -> None:
        for number in range(10):
            trace.op("aten::relu", [[8192, 4096 + 8 * number]], PASS_US, host_us=10.0)

    assert check("M01", seen_of(tmp_path, body)) is None


def test_attention_between_batched_matmuls_is_found(tmp_path: Path):
    seen = seen_of(tmp_path, attention)
    finding = found("M02", seen)
    assert finding.where[0].op == "aten::_softmax"
    assert finding.where[0].count == 4
    assert finding.where[0].shapes is not None
    assert "[8, 16, 1024, 1024]" in finding.where[0].shapes
    # softmax and division of four layers; the matmuls' 17.2 GFLOP at 989.4 TFLOP/s are the floor of what stays
    least = 17.18e9 / 989.4e12 * 1e9
    assert finding.at_stake_ns[0] == pytest.approx(4 * (380e3 + 2 * (120e3 - least / 0.15)), rel=0.02)
    assert finding.at_stake_ns[1] == pytest.approx(4 * (380e3 + 2 * (120e3 - 17.18e9 / 989.4e12 * 1e9)), rel=0.02)


def test_copies_that_the_products_make_go_with_them(tmp_path: Path):
    """Keys laid out for the product surely, queries laid out by the program at the most; a copy of the scores' size is
    one of their passes, one of another size stays."""

    def body(trace: Trace) -> None:
        queries, keys = [8, 16, 1024, 64], [8, 16, 64, 1024]
        trace.op("aten::copy_", [queries, queries], 30.0, host_us=10.0)
        with trace.inside("aten::matmul"), trace.inside("aten::clone"):
            trace.op("aten::copy_", [keys, keys], 50.0, host_us=10.0)
        trace.op("aten::copy_", [[8192, 512], [8192, 512]], 40.0, host_us=10.0)
        attention(trace)

    plain = found("M02", seen_of(tmp_path, attention)).at_stake_ns
    given = found("M02", seen_of(tmp_path, body)).at_stake_ns
    assert given[0] - plain[0] == pytest.approx(50e3, rel=0.02)
    assert given[1] - plain[1] == pytest.approx(80e3, rel=0.02)


def test_weights_that_are_averaged_over_the_heads_need_not_be_asked_for(tmp_path: Path):
    def body(trace: Trace) -> None:
        attention(trace)
        trace.op("aten::mean", [SCORES, [], []], 100.0, concrete=["", "[1]", "False"], host_us=10.0)

    seen = seen_of(tmp_path, body)
    finding = found("M02", seen)
    assert finding.treatments == ["need-weights-false"]
    assert "need_weights=True" in finding.evidence[-1]
    given = predict("need-weights-false", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == what_its_calls_lose(finding)
    plain = found("M02", seen_of(tmp_path, attention))
    assert plain.treatments == ["sdpa", "compile"]
    assert predict("need-weights-false", seen, plain) is None


def test_attention_is_not_a_pointwise_chain_as_well(tmp_path: Path):
    assert check("M01", seen_of(tmp_path, attention)) is None


def test_attention_in_a_launch_bound_step_saves_nothing(tmp_path: Path):
    assert check("M02", seen_of(tmp_path, attention, 400.0, 0.2)) is None


def test_a_lone_softmax_is_not_attention(tmp_path: Path):
    """A router and a classifier: softmax over the output of a matmul, on a matrix that no batched matmul reads."""

    def body(trace: Trace) -> None:
        for _ in range(4):
            trace.op("aten::mm", [[8192, 1024], [1024, 128]], 20, host_us=10)
            trace.op("aten::_softmax", [[8192, 128], [], []], 20, host_us=10)
            trace.op("aten::bmm", [[128, 64, 1024], [128, 1024, 1024]], 120, host_us=10)
        trace.op("aten::mm", [[8192, 1024], [1024, 50304]], 900, host_us=10)
        trace.op("aten::_log_softmax", [[8, 1024, 50304], [], []], 500, host_us=10)

    assert check("M02", seen_of(tmp_path, body)) is None


def test_one_row_of_scores_is_decoding_and_not_attention_to_fuse(tmp_path: Path):
    def body(trace: Trace) -> None:
        for _ in range(4):
            trace.op("aten::bmm", [[128, 1, 64], [128, 64, 4096]], 60, host_us=10)
            trace.op("aten::_softmax", [[8, 16, 1, 4096], [], []], 20, host_us=10)
            trace.op("aten::bmm", [[128, 1, 4096], [128, 4096, 64]], 60, host_us=10)

    assert check("M02", seen_of(tmp_path, body)) is None


def test_full_float32_matmuls_are_found(tmp_path: Path):
    seen = seen_of(tmp_path, fp32)
    finding = found("C01", seen)
    # 137.4 GFLOP in 2.5 ms is 82 % of 66.9 TFLOP/s; the same share of 494.7 and of 989.4
    assert finding.at_stake_ns[0] == pytest.approx(6 * 2.5e6 * (1 - 66.9 / 494.7), rel=0.02)
    assert finding.at_stake_ns[1] == pytest.approx(6 * 2.5e6 * (1 - 66.9 / 989.4), rel=0.02)
    assert finding.certainty == "high"


def test_tf32_kernels_are_healthy(tmp_path: Path):
    seen = seen_of(tmp_path, fp32, 400.0, "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16")
    assert check("C01", seen) is None


def test_a_matrix_vector_product_is_memory_bound_and_healthy(tmp_path: Path):
    def body(trace: Trace) -> None:
        for _ in range(20):
            trace.op("aten::mm", [[1, 8192], [8192, 8192]], 110, dtype="float32", host_us=10)

    assert check("C01", seen_of(tmp_path, body)) is None


def test_a_tiny_matmul_far_below_its_roof_is_not_helped_by_a_higher_one(tmp_path: Path):
    def body(trace: Trace) -> None:
        for _ in range(50):
            trace.op("aten::mm", [[512, 512], [512, 512]], 60, dtype="float32", host_us=10)

    assert check("C01", seen_of(tmp_path, body)) is None


def test_faster_matmuls_give_nothing_where_the_host_is_the_bound(tmp_path: Path):
    seen = seen_of(tmp_path, fp32, 2500.0, FP32_KERNEL, 20_000.0)
    assert check("C01", seen) is None


@pytest.mark.parametrize(("groups", "told"), [(4, "repeat_interleave(4, dim=-3)"), (16, "warns why")])
def test_the_form_without_a_kernel_is_told_what_a_fused_kernel_would_take(tmp_path: Path, groups: int, told: str):
    shapes = [[8, 16, 1024, 512], [8, groups, 1024, 512], [8, groups, 1024, 512]]

    def body(trace: Trace) -> None:
        with trace.inside("aten::_scaled_dot_product_attention_math", shapes=shapes):
            attention(trace)

    seen = seen_of(tmp_path, body)
    given = predict("sdpa", seen, found("M02", seen))
    assert given is not None
    assert told in given.how
    plain = seen_of(tmp_path, attention)
    given = predict("sdpa", plain, found("M02", plain))
    assert given is not None
    assert given.how.startswith("y = torch.nn.functional.scaled_dot_product_attention(")


@pytest.mark.parametrize("code", ["M01", "M02", "C01"])
def test_without_shapes_they_are_not_checked(tmp_path: Path, code: str):
    result = check(code, seen_of(tmp_path, attention, shapes=False))
    assert isinstance(result, NotChecked)
    assert "record_shapes" in result.needs


@pytest.mark.parametrize("code", ["M01", "M02", "C01"])
def test_on_an_unknown_device_they_are_not_checked(tmp_path: Path, code: str):
    result = check(code, seen_of(tmp_path, attention, device="A device of no table"))
    assert isinstance(result, NotChecked)
    assert "--on" in result.needs


def test_treatments_answer_only_for_their_own_findings(tmp_path: Path):
    seen = seen_of(tmp_path, fp32)
    finding = found("C01", seen)
    tf32, half = predict("tf32", seen, finding), predict("bf16-autocast", seen, finding)
    assert tf32 is not None
    assert half is not None
    assert tf32.predicted_saving_ns[0] == pytest.approx(finding.at_stake_ns[0])
    assert half.predicted_saving_ns[1] == pytest.approx(finding.at_stake_ns[1])
    assert predict("sdpa", seen, finding) is None
    assert predict("cuda-graph", seen, finding) is None
