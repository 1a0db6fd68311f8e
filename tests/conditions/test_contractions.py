"""C02 and C03, and what C01 and M02 say beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.model.diagnosis import NotChecked
from tests.conditions.makers import extra, seen_of, shipped, what_its_calls_lose
from tests.evidence import check, findings, found, predict
from tests.traces import Trace

FP32_KERNEL = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n"
SIXTEEN = [[8192, 4096], [4096, 4096]]


def sixteen_bit(trace: Trace, calls: int = 6, us: float = 400.0) -> None:
    for _ in range(calls):
        trace.op("aten::mm", SIXTEEN, us, host_us=10.0, strides=[[4096, 1], [4096, 1]])


def test_one_float32_matmul_in_a_16_bit_model(tmp_path: Path):
    def body(trace: Trace) -> None:
        sixteen_bit(trace)
        trace.op("aten::mm", [[4096, 4096], [4096, 4096]], 2500.0, dtype="float32", kernel=FP32_KERNEL, host_us=10.0)

    seen = seen_of(tmp_path, body)
    finding = found("C03", seen)
    assert "bfloat16" in finding.evidence[0]
    assert any(FP32_KERNEL in fact for fact in finding.evidence)
    assert finding.at_stake_ns[0] == pytest.approx(2.5e6 * (1 - 66.9 / 494.7), rel=0.02)
    assert finding.at_stake_ns[1] == pytest.approx(2.5e6 * (1 - 66.9 / 989.4), rel=0.02)
    assert check("C01", seen) is None
    given = predict("bf16-autocast", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == what_its_calls_lose(finding)


def test_a_16_bit_matmul_on_the_vector_units(tmp_path: Path):
    def body(trace: Trace) -> None:
        sixteen_bit(trace, 20)
        trace.op("aten::mm", [[4096, 4096], [4096, 4096]], 2600.0, kernel="cutlass_80_simt_hgemm_128x64", host_us=10.0)

    assert found("C03", seen_of(tmp_path, body)).where[0].count == 1


@pytest.mark.parametrize("kernel", ["sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n", "nvjet_sm90_tst_192x128_64x5"])
def test_tf32_and_kernels_that_do_not_tell_are_not_named(tmp_path: Path, kernel: str):
    def body(trace: Trace) -> None:
        sixteen_bit(trace)
        trace.op("aten::mm", [[4096, 4096], [4096, 4096]], 2500.0, dtype="float32", kernel=kernel, host_us=10.0)

    seen = seen_of(tmp_path, body)
    assert check("C03", seen) is None
    assert check("C01", seen) is None


def test_a_model_in_float32_is_c01_and_not_c03():
    seen = shipped("gpt_fp32_notf32.faulty")
    assert check("C03", seen) is None
    assert findings(seen)[0].code == "C01"


def test_attention_whose_kernel_does_not_tell_is_not_called_off_the_tensor_cores():
    """fmha_cutlassF_f32 may or may not use TF32: the matmuls of this training do."""
    assert check("C01", extra("holdout/tf32_training")) is None


def test_a_tiny_float32_matmul_far_below_the_peak_is_held_up_by_something_else(tmp_path: Path):
    def body(trace: Trace) -> None:
        sixteen_bit(trace)
        for _ in range(20):
            trace.op("aten::mm", [[512, 512], [512, 512]], 60.0, dtype="float32", kernel=FP32_KERNEL, host_us=10.0)

    assert check("C03", seen_of(tmp_path, body)) is None


def test_the_compiled_bert_is_explained_by_its_first_finding():
    """20.4 ms compiled against 8.8 ms eager: its attention fell back to the math form, in float32."""
    settled = findings(shipped("bert_base_b32_s512.fwd_compiled"))
    first = settled[0]
    assert first.code == "M02"
    text = "\n".join(first.evidence)
    assert "90 % of the matmul FLOP run in bfloat16, but 24 matmuls of the attention in float32" in text
    assert "ffma" in text
    assert "math form of scaled_dot_product_attention" in text
    assert "makes a mask" in text
    assert "48 conversions" in text
    assert "belong to C03 as well" in text
    # the measured difference: 20.405 - 8.797 ms with a synchronize after each step, 19.359 - 9.227 without
    assert first.at_stake_ns[0] <= 10.13e6
    assert first.at_stake_ns[1] >= 11.61e6
    assert check("M02", shipped("bert_base_b32_s512.fwd")) is None


def vocabulary(trace: Trace, size: int, us: float) -> None:
    sixteen_bit(trace)
    trace.op("aten::mm", [[8192, 768], [768, size]], us, host_us=10.0, strides=[[768, 1], [1, 768]])


def test_a_vocabulary_that_eight_does_not_divide(tmp_path: Path):
    seen = seen_of(tmp_path, lambda trace: vocabulary(trace, 50257, 6700.0))
    finding = found("C02", seen)
    assert "50257" in finding.evidence[0]
    # 8192 x 4096 x 4096 in 400 us is 69.5 % of 989.4 TFLOP/s; 632.3 GFLOP at that share, and at two thirds of it
    share = 2 * 8192 * 4096 * 4096 / 989.4e12 / 400e-6
    least = 2 * 8192 * 768 * 50264 / 989.4e12 * 1e9 / share
    assert finding.at_stake_ns == (pytest.approx(6.7e6 - 1.5 * least, rel=0.02), pytest.approx(6.7e6 - least, rel=0.02))
    given = predict("pad-dimensions", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == what_its_calls_lose(finding)


def test_an_odd_size_that_costs_nothing_is_healthy(tmp_path: Path):
    assert check("C02", seen_of(tmp_path, lambda trace: vocabulary(trace, 50257, 1000.0))) is None


def test_an_even_size_is_healthy_however_slow(tmp_path: Path):
    assert check("C02", seen_of(tmp_path, lambda trace: vocabulary(trace, 50304, 6700.0))) is None


def test_the_number_of_tokens_is_no_alignment(tmp_path: Path):
    def body(trace: Trace) -> None:
        for _ in range(6):
            trace.op("aten::mm", [[8191, 4096], [4096, 4096]], 1500.0, host_us=10.0, strides=[[4096, 1], [4096, 1]])

    assert check("C02", seen_of(tmp_path, body)) is None


def test_odd_and_big_matmuls_held_out():
    finding = found("C02", extra("holdout/odd_matmuls"))
    assert "4095, 8191" in finding.evidence[0]
    assert any("is assumed" in fact for fact in finding.evidence)
    assert check("C02", extra("holdout/big_matmuls")) is None


def test_gpt2_s_vocabulary_is_found_forward_and_backward():
    assert found("C02", shipped("gpt2_b8_s1024.fwd")).where[0].count == 1
    assert "align1" in found("C02", shipped("gpt2_b8_s1024.fwdbwd")).evidence[-1]
    assert check("C02", shipped("gpt_eager_attn.fixed")) is None  # its vocabulary is padded to 50,304


@pytest.mark.parametrize("code", ["C02", "C03", "M03", "M04", "M05"])
@pytest.mark.parametrize("options", [{"shapes": False}, {"device": "A device of no table"}])
def test_without_shapes_or_machine_they_are_not_checked(tmp_path: Path, code: str, options: dict[str, object]):
    assert isinstance(check(code, seen_of(tmp_path, sixteen_bit, **options)), NotChecked)
