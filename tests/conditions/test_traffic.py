"""M03, M04 and M05, sick and healthy."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.model.live import Switches
from tests.conditions.lives import ran
from tests.conditions.makers import extra, seen_of, shipped, what_its_calls_lose
from tests.evidence import check, findings, found, predict
from tests.traces import Trace

X, ROWS, WEIGHT = [16384, 4096], [16384, 1], [4096]
BYTES = 16384 * 4096
"""Elements of the norm's input; 134 MB in bfloat16, larger than the cache."""


def written(trace: Trace) -> None:
    trace.op("aten::copy_", [X, X], 200.0, dtypes=["float32", "bfloat16"], host_us=10.0)
    trace.op("aten::pow", [X, []], 180.0, dtype="float32", host_us=10.0)
    trace.op("aten::mean", [X, []], 100.0, dtype="float32", host_us=10.0)
    trace.op("aten::add", [ROWS, []], 1.5, dtype="float32", host_us=10.0)
    trace.op("aten::rsqrt", [ROWS], 1.5, dtype="float32", host_us=10.0)
    trace.op("aten::mul", [X, ROWS], 220.0, dtype="float32", host_us=10.0)
    trace.op("aten::copy_", [X, X], 130.0, dtypes=["bfloat16", "float32"], host_us=10.0)
    trace.op("aten::mul", [X, WEIGHT], 170.0, host_us=10.0)
    trace.op("aten::mm", [X, [4096, 4096]], 800.0, host_us=10.0)


def test_a_norm_written_out_of_pointwise_calls(tmp_path: Path):
    seen = seen_of(tmp_path, written)
    finding = found("M03", seen)
    assert "copy, pow, mean, add, rsqrt, mul, copy, mul" in finding.evidence[1]
    # one kernel reads and writes it once in bfloat16
    least = 2 * 2 * BYTES / 3.35e12 * 1e9
    assert finding.at_stake_ns[1] == pytest.approx(1003e3 - least, rel=0.02)
    assert finding.at_stake_ns[0] == pytest.approx(1003e3 - least / 0.45, rel=0.02)
    given = predict("fused-norm", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == what_its_calls_lose(finding)
    # the same calls are a chain and hold conversions: counted once
    assert [one.code for one in findings(seen)] == ["M03"]


def test_a_fused_norm_near_the_bandwidth_is_healthy(tmp_path: Path):
    def body(trace: Trace) -> None:
        trace.op("aten::native_layer_norm", [X, [], WEIGHT, WEIGHT, []], 95.0, host_us=10.0)
        trace.op("aten::mm", [X, [4096, 4096]], 800.0, host_us=10.0)

    assert check("M03", seen_of(tmp_path, body)) is None


def test_norms_in_a_launch_bound_step_save_nothing(tmp_path: Path):
    """Liger-Kernel#323: a fused norm where the host is the bound."""

    def body(trace: Trace) -> None:
        for _ in range(20):
            trace.op("aten::native_layer_norm", [[512, 1024], [], [1024], [1024], []], 12.0, host_us=100.0)

    assert check("M03", seen_of(tmp_path, body)) is None


def test_a_residual_s_addition_is_not_part_of_the_norm(tmp_path: Path):
    def body(trace: Trace) -> None:
        trace.op("aten::add", [X, X], 130.0, host_us=10.0)
        written(trace)

    assert "add, copy, pow" not in found("M03", seen_of(tmp_path, body)).evidence[1]


@pytest.mark.parametrize(("name", "norms"), [("holdout/rms_eager", "8 norms"), ("holdout/llama_prefill", "33 norms")])
def test_held_out_norms_written_out(name: str, norms: str):
    seen = extra(name)
    assert findings(seen)[0].code == "M03"
    assert norms in found("M03", seen).evidence[0]


def test_batch_norm_over_nchw_is_slow_and_gets_channels_last():
    finding = found("M03", extra("holdout/resnet_nchw"))
    assert finding.treatments == ["channels-last"]
    assert found("M03", shipped("resnet50_b64_cl.fwdbwd")).treatments == ["compile"]
    # no row-wise norm stands for a batch norm, and nothing is sure
    assert finding.at_stake_ns[0] == 0
    assert predict("fused-norm", extra("holdout/resnet_nchw"), finding) is None
    assert "channels-last" not in found("M03", shipped("resnet50_b64_cl.fwdbwd")).treatments


def test_norms_that_a_compiler_fused_are_healthy():
    assert check("M03", shipped("dit_adaln.fixed")) is None


def casts(trace: Trace, us: float = 130.0) -> None:
    for _ in range(4):
        trace.op("aten::copy_", [X, X], us, dtypes=["bfloat16", "float32"], host_us=10.0)
        trace.op("aten::mm", [X, [4096, 4096]], 800.0, host_us=10.0)


def test_conversions_between_matmuls(tmp_path: Path):
    seen = seen_of(tmp_path, casts)
    finding = found("M04", seen)
    assert finding.at_stake_ns == (0, pytest.approx(520e3, rel=0.01))
    assert finding.treatments == ["compile"]
    assert predict("cast-once", seen, finding) is not None


SMALL = [8, 96]


def small_layers(trace: Trace, product_us: float = 2.0) -> None:
    """Autocast on small layers: three conversions of 1.5 us a product, 20 us of host time each."""
    for _ in range(20):
        for _ in range(3):
            trace.op("aten::copy_", [SMALL, SMALL], 1.5, dtypes=["bfloat16", "float32"], host_us=20.0)
        trace.op("aten::mm", [SMALL, [96, 96]], product_us, host_us=20.0)
    with trace.inside("autograd::engine::evaluate_function: MmBackward0"):
        trace.op("aten::mm", [SMALL, [96, 96]], 2.0, host_us=10.0)


def test_conversions_on_small_layers_cost_their_dispatch(tmp_path: Path):
    seen = ran(tmp_path, small_layers, switches=Switches(autocast="bfloat16"))
    finding = found("M04", seen)
    part = 60 / 81 * seen.wall_ns  # by hand: 60 of 81 launches that take equally long
    assert finding.at_stake_ns == (0, pytest.approx(part, rel=0.2))
    assert finding.treatments[0] == "no-autocast"
    given = predict("no-autocast", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns[1] == pytest.approx(part, rel=0.2)
    assert given.predicted_saving_ns[0] > 0.7 * part  # products of 2 us that take twice as long are no matter


def test_autocast_stays_where_products_are_large(tmp_path: Path):
    seen = ran(tmp_path, casts, switches=Switches(autocast="bfloat16"))
    assert "no-autocast" not in found("M04", seen).treatments


def test_without_autocast_nobody_leaves_it_out(tmp_path: Path):
    assert "no-autocast" not in found("M04", ran(tmp_path, small_layers)).treatments


def weights(trace: Trace, backward: bool = False) -> None:
    for _ in range(4):
        with trace.inside("aten::to"):
            trace.op("aten::copy_", [[4096, 4096]] * 2, 40.0, dtypes=["bfloat16", "float32"], host_us=10.0)
        trace.op("aten::mm", [[2048, 4096], [4096, 4096]], 120.0, host_us=10.0)
    if backward:
        with trace.inside("autograd::engine::evaluate_function: MmBackward0"):
            trace.op("aten::mm", [[2048, 4096], [4096, 4096]], 120.0, host_us=10.0)


def linear(trace: Trace, backward: bool = False) -> None:
    """The weight's conversion within `aten::linear`, as autocast does it."""
    begin = trace.now
    weights(trace, backward)
    arguments = {"Input Dims": [[2048, 4096], [4096, 4096], []], "Input type": ["float", "float", ""]}
    trace._add("cpu_op", "aten::linear", begin - 0.5, trace.now - begin + 1.0, arguments)


def test_weights_cast_in_every_step_of_an_inference_are_another_finding(tmp_path: Path):
    assert check("M04", seen_of(tmp_path, linear)) is None


def test_in_training_the_weights_change(tmp_path: Path):
    assert found("M04", seen_of(tmp_path, lambda trace: linear(trace, True))).at_stake_ns[0] == 0


@pytest.mark.parametrize("dtypes", [["bfloat16", "bfloat16"], ["int64", "float32"]])
def test_a_copy_within_one_type_or_to_integers_is_no_conversion(tmp_path: Path, dtypes: list[str]):
    def body(trace: Trace) -> None:
        trace.op("aten::copy_", [X, X], 130.0, dtypes=dtypes, host_us=10.0)

    assert check("M04", seen_of(tmp_path, body)) is None


def test_a_16_bit_model_converts_nothing():
    assert check("M04", shipped("vit_b16_b64.fwd")) is None
    assert check("M04", shipped("pointwise_chain.faulty")) is None


def conv(trace: Trace, kernels: tuple[str, ...], shape: tuple[int, ...] = (128, 64, 56, 56)) -> None:
    weight = [64, shape[1], 3, 3]
    for _ in range(5):
        begin = trace.now
        for kernel in kernels:
            trace._launch("cudaLaunchKernel", "kernel", kernel, 100.0, {})
        arguments = {"Input Dims": [list(shape), weight], "Input type": ["c10::BFloat16"] * 2,
                     "Concrete Inputs": ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]}  # fmt: skip
        trace._add("cpu_op", "aten::cudnn_convolution", begin - 1, trace.now - begin + 2, arguments)


CONVERTER = "void cudnn::engines_precompiled::nchwToNhwcKernel<__nv_bfloat16>"
KERNEL = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc"


def test_converters_around_convolutions(tmp_path: Path):
    seen = seen_of(tmp_path, lambda trace: conv(trace, (CONVERTER, KERNEL)))
    finding = found("M05", seen)
    assert finding.at_stake_ns == (pytest.approx(500e3, rel=0.01), pytest.approx(500e3, rel=0.01))
    given = predict("channels-last", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == what_its_calls_lose(finding)


def test_a_convolution_without_converters_is_healthy(tmp_path: Path):
    assert check("M05", seen_of(tmp_path, lambda trace: conv(trace, (KERNEL,)))) is None


def test_images_come_in_the_usual_order(tmp_path: Path):
    seen = seen_of(tmp_path, lambda trace: conv(trace, (CONVERTER, KERNEL), (128, 3, 224, 224)))
    assert found("M05", seen).at_stake_ns[0] == 0


def transposes(trace: Trace, target: list[int], source: list[int]) -> None:
    shape = [64, 16, 1024, 64]
    for _ in range(4):
        trace.op("aten::copy_", [shape, shape], 200.0, host_us=10.0, strides=[target, source])
        trace.op("aten::mm", [X, [4096, 4096]], 800.0, host_us=10.0)


def test_a_copy_into_another_order(tmp_path: Path):
    def body(trace: Trace) -> None:
        transposes(trace, [1048576, 65536, 64, 1], [1048576, 64, 1024, 1])

    finding = found("M05", seen_of(tmp_path, body))
    assert finding.at_stake_ns == (0, pytest.approx(800e3, rel=0.01))
    assert finding.treatments == ["keep-order", "compile"]


def test_copies_of_a_packed_projection_are_no_matter_of_channels():
    seen = shipped("vit_b16_b64.fwdbwd")
    finding = found("M05", seen)
    given = predict("keep-order", seen, finding)
    assert given is not None
    assert "[64, 197, 3, 12, 64]" in given.how
    last = predict("channels-last", seen, finding)
    # the first layer's converters at most
    assert last is None or last.predicted_saving_ns[1] < 0.4 * finding.at_stake_ns[1]


def test_a_copy_into_a_slice_keeps_the_order(tmp_path: Path):
    def body(trace: Trace) -> None:
        transposes(trace, [2097152, 131072, 64, 1], [1048576, 65536, 64, 1])

    assert check("M05", seen_of(tmp_path, body)) is None


def test_resnet_in_nchw_converts_and_in_channels_last_does_not():
    finding = found("M05", extra("holdout/resnet_nchw"))
    assert finding.at_stake_ns[0] > 5e6
    assert "63 convolutions" in finding.evidence[0]
    assert check("M05", shipped("resnet50_b64_cl.fwd")) is None
    assert check("M05", shipped("resnet50_b64_cl.fwdbwd")) is None
