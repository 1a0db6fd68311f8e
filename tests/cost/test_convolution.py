"""Convolutions against a loop that walks every window."""

from __future__ import annotations

import pytest

from gobrrr.cost import price
from gobrrr.cost.build import contraction_flop
from gobrrr.cost.convolution import output_shape
from gobrrr.model.work import OpCall, Scalar, Tensor


def windows(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """How many windows start on the padded axis: counted one by one."""
    padded = size + 2 * padding
    return sum(1 for start in range(0, padded, stride) if start + dilation * (kernel - 1) < padded)


def macs(
    n: int, c: int, k: int, h: int, w: int, kernel: int, stride: int, padding: int, dilation: int, groups: int
) -> int:
    out_h, out_w = windows(h, kernel, stride, padding, dilation), windows(w, kernel, stride, padding, dilation)
    total = 0
    for _image in range(n):
        for _filter in range(k):
            for _place in range(out_h * out_w):
                for _channel in range(c // groups):
                    total += kernel * kernel
    return total


CASES = [
    # n, c, k, h, w, kernel, stride, padding, dilation, groups
    (2, 3, 4, 7, 9, 3, 1, 1, 1, 1),
    (1, 4, 4, 8, 8, 3, 2, 1, 1, 4),  # depthwise
    (2, 4, 6, 9, 7, 3, 2, 0, 2, 2),
    (1, 6, 3, 5, 5, 1, 1, 0, 1, 3),
    (1, 3, 2, 11, 11, 7, 2, 3, 1, 1),
]


def settings(*values: int) -> tuple[Scalar, ...]:
    return tuple(Scalar(f"[{value}, {value}]") for value in values)


@pytest.mark.parametrize("case", CASES)
def test_every_schema_counts_the_loop(case: tuple[int, ...]) -> None:
    n, c, k, h, w, kernel, stride, padding, dilation, groups = case
    given, weight = Tensor((n, c, h, w), "float16"), Tensor((k, c // groups, kernel, kernel), "float16")
    s, p, d = settings(stride, padding, dilation)
    number, off, none, zero = Scalar(str(groups)), Scalar("False"), Scalar(""), Scalar("[0, 0]")
    calls = [
        OpCall(name="aten::conv2d", inputs=(given, weight, none, s, p, d, number)),
        OpCall(name="aten::convolution", inputs=(given, weight, none, s, p, d, off, zero, number)),
        OpCall(name="aten::_convolution", inputs=(given, weight, none, s, p, d, off, zero, number, off, off, off, off)),
        OpCall(name="aten::cudnn_convolution", inputs=(given, weight, p, s, d, number, off, off, off)),
        OpCall(name="aten::miopen_convolution", inputs=(given, weight, none, p, s, d, number, off, off)),
        OpCall(name="aten::mkldnn_convolution", inputs=(given, weight, none, p, s, d, number)),
    ]
    assert {contraction_flop(price(call)) for call in calls} == {2.0 * macs(*case)}


@pytest.mark.parametrize("case", CASES)
def test_backward_is_a_forward_for_each_gradient(case: tuple[int, ...]) -> None:
    n, c, k, h, w, kernel, stride, padding, dilation, groups = case
    given, weight = Tensor((n, c, h, w), "float16"), Tensor((k, c // groups, kernel, kernel), "float16")
    out = (windows(h, kernel, stride, padding, dilation), windows(w, kernel, stride, padding, dilation))
    grad = Tensor((n, k, *out), "float16")
    rest = (Scalar("[0]"), *settings(stride, padding, dilation), Scalar("False"), Scalar("[0, 0]"), Scalar(str(groups)))
    for mask, passes in (("[True, True, False]", 2), ("[False, True, False]", 1), ("[True, False, True]", 1)):
        work = price(OpCall(name="aten::convolution_backward", inputs=(grad, given, weight, *rest, Scalar(mask))))
        assert contraction_flop(work) == 2.0 * passes * macs(*case)
        # Beside them the sum over images and places for the bias.
        assert work.flop == 2.0 * passes * macs(*case) + (n * k * out[0] * out[1] if mask.endswith("True]") else 0)


def test_the_first_layer_of_resnet50_by_hand() -> None:
    # 64 images of 3 x 224 x 224, 64 filters of 7 x 7, stride 2, padding 3: 112 x 112 outputs.
    given, weight = Tensor((64, 3, 224, 224), "bfloat16"), Tensor((64, 3, 7, 7), "bfloat16")
    setting = (Scalar("[3, 3]"), Scalar("[2, 2]"), Scalar("[1, 1]"), Scalar("1"))
    work = price(OpCall(name="aten::cudnn_convolution", inputs=(given, weight, *setting)))
    assert work.matrix_flop == 2 * 64 * 64 * 112 * 112 * 3 * 49 == 15_105_785_856
    assert work.bytes_read == (64 * 3 * 224 * 224 + 64 * 3 * 49) * 2
    assert work.bytes_written == 64 * 64 * 112 * 112 * 2


def test_transposed_is_the_forward_of_the_other_direction() -> None:
    # A transposed convolution of 5 x 5 with kernel 3, stride 2, padding 1 gives 9 x 9; 10 x 10 with output padding.
    shape = output_shape(
        (2, 6, 5, 5), (6, 4, 3, 3), stride=(2,), padding=(1,), dilation=(1,), groups=1, transposed=True
    )
    assert shape == (2, 4, 9, 9)
    given, weight = Tensor((2, 6, 5, 5), "float16"), Tensor((6, 4, 3, 3), "float16")
    setting = (*settings(2, 1), Scalar("[1, 1]"), Scalar("1"), Scalar("[1, 1]"))
    work = price(OpCall(name="aten::conv_transpose2d", inputs=(given, weight, Scalar(""), *setting)))
    assert work.matrix_flop == 2 * (2 * 6 * 5 * 5) * (4 * 3 * 3)
    assert work.bytes_written == 2 * 4 * 10 * 10 * 2


def test_a_kernel_smaller_than_its_stride_skips_pixels() -> None:
    # 1 x 1 with stride 2, channels last: a quarter of the input is read.
    strides = (256 * 56 * 56, 1, 256 * 56, 256)
    given, weight = Tensor((128, 256, 56, 56), "bfloat16", strides), Tensor((512, 256, 1, 1), "bfloat16")
    setting = (Scalar("[0, 0]"), Scalar("[2, 2]"), Scalar("[1, 1]"), Scalar("1"))
    work = price(OpCall(name="aten::cudnn_convolution", inputs=(given, weight, *setting)))
    assert work.bytes_read == 128 * 256 * 28 * 28 * 2 + 512 * 256 * 2


def test_same_padding_is_understood_and_missing_settings_are_not_guessed() -> None:
    given, weight = Tensor((1, 2, 8, 8), "float16"), Tensor((2, 2, 3, 3), "float16")
    one = Scalar("[1, 1]")
    work = price(OpCall(name="aten::conv2d", inputs=(given, weight, Scalar(""), one, Scalar("same"), one, Scalar("1"))))
    assert work.bytes_written == 2 * 8 * 8 * 2
    blank = price(OpCall(name="aten::conv2d", inputs=(given, weight, *(Scalar(""),) * 5)))
    assert blank.count == "unknown"


def test_winograd_does_fewer_flop_than_the_direct_count() -> None:
    given, weight = Tensor((1, 2, 8, 8), "float32"), Tensor((2, 2, 3, 3), "float32")
    setting = (*settings(1, 1, 1), Scalar("1"))
    kernels = ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(...)",)
    work = price(OpCall(name="aten::cudnn_convolution", inputs=(given, weight, *setting), kernels=kernels))
    assert (work.count, work.matrix_dtype) == ("bounded", "float32")


def depthwise(kernels: tuple[str, ...] = (), groups: int = 384) -> list[OpCall]:
    """The measured layer: 64 images of 384 channels, 56 x 56, 3 x 3, forward and both gradients."""
    given, weight = Tensor((64, 384, 56, 56), "bfloat16"), Tensor((384, 384 // groups, 3, 3), "bfloat16")
    rest = (*settings(1, 1, 1), Scalar("False"), Scalar("[0, 0]"), Scalar(str(groups)))
    forward = (given, weight, Scalar(""), *rest)
    backward = (given, given, weight, Scalar(""), *rest, Scalar("[True, True, False]"))
    return [
        OpCall(name="aten::convolution", inputs=forward, kernels=kernels),
        OpCall(name="aten::convolution_backward", inputs=backward, kernels=kernels),
    ]


def test_depthwise_runs_on_the_vector_units() -> None:
    # smsp__sass_thread_inst_executed_op_ffma_pred_on: 677,216,256 forward and for each gradient, zeros beyond the edge
    # left out; no tensor-core operation at all.
    named = ("void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, c10::BFloat16, int>(...)",)
    cudnn = ("conv2d_c1_k1_nhwc_specialized", "sm90_xmma_depthwise_convolution_wgrad_tiling_f32f32_f32f32_f32_...")
    for kernels in ((), named, cudnn):
        for passes, call in zip((1, 2), depthwise(kernels), strict=True):
            work = price(call)
            assert (work.matrix_flop, work.matrix_dtype, work.vector_dtype) == (None, None, "float32")
            flop = passes * 2 * 64 * 384 * 56 * 56 * 9
            assert work.flop == work.needed_flop == contraction_flop(work) == flop
            assert 2 * 677_216_256 * passes == pytest.approx(flop, rel=0.03)
            assert work.family == "convolution"


def test_a_depthwise_layer_whose_kernel_is_the_matrix_units_stays_there() -> None:
    work = price(depthwise(("sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x32x32",))[0])
    assert (work.matrix_dtype, work.vector_flop) == ("bfloat16", None)


def test_groups_of_several_channels_and_one_output_channel_are_not_depthwise() -> None:
    assert all(price(call).matrix_dtype == "bfloat16" for call in depthwise(groups=192))
    # 64 channels to 1, transposed: the weight's second size is 1 and every channel meets every other.
    given, weight = Tensor((2, 64, 8, 8), "bfloat16"), Tensor((64, 1, 3, 3), "bfloat16")
    rest = (*settings(1, 1, 1), Scalar("True"), Scalar("[0, 0]"), Scalar("1"))
    forward = price(OpCall(name="aten::convolution", inputs=(given, weight, Scalar(""), *rest)))
    assert forward.matrix_flop == 2 * 2 * 64 * 64 * 9
    grad = Tensor((2, 1, 8, 8), "bfloat16")
    inputs = (grad, given, weight, Scalar(""), *rest, Scalar("[True, True, False]"))
    assert price(OpCall(name="aten::convolution_backward", inputs=inputs)).matrix_flop == 2 * 2 * 2 * 64 * 64 * 9
