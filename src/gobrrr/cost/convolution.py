"""Convolutions: every output element takes (input channels / groups) x kernel elements multiply-adds.

Padding is counted as computed (the kernels multiply by the zeros); Winograd and FFT algorithms do fewer.
A depthwise convolution, one input channel a group, leaves the matrix units nothing to sum over: PyTorch's and cuDNN's
kernels for it (conv_depthwise2d, conv2d_c1_k1) run on the vector units, in float32 for halves too. Counted on an H100:
no tensor-core operation, and as many fused multiply-adds as below (bench/results/h100_counters.json, depthwise.*).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gobrrr.cost.arguments import flag, flags, integer, integers, maybe_tensor, tensor, text
from gobrrr.cost.build import contraction
from gobrrr.cost.registry import Rule, Uncounted, register, rule
from gobrrr.cost.shapes import FMA_FLOP, ceil_divide, numel, read_bytes, write_bytes
from gobrrr.model.work import Count, OpCall, Tensor, Work

_MATRIX_KERNEL = re.compile(r"tensorop|hmma|xmma|cutlass|s16816|s1688|_h884|wgmma|implicit_gemm", re.IGNORECASE)
_VECTOR_KERNEL = re.compile(r"depthwise|2d_c1_k1|grouped_direct|simt", re.IGNORECASE)
"""What kernels on the matrix units and on the vector units are called."""


class ConvolutionSchema(NamedTuple):
    """Positions of a schema's arguments; -1: the schema has none."""

    bias: int
    stride: int
    padding: int
    dilation: int
    groups: int
    transposed: int = -1  # position of the flag
    output_padding: int = -1
    always_transposed: bool = False
    added: int = -1


# By operation, from its schema.
_FORWARD: dict[str, ConvolutionSchema] = {
    "aten::convolution": ConvolutionSchema(2, 3, 4, 5, 8, 6, 7),
    "aten::convolution_overrideable": ConvolutionSchema(2, 3, 4, 5, 8, 6, 7),
    "aten::_convolution": ConvolutionSchema(2, 3, 4, 5, 8, 6, 7),
    "aten::conv1d": ConvolutionSchema(2, 3, 4, 5, 6),
    "aten::conv2d": ConvolutionSchema(2, 3, 4, 5, 6),
    "aten::conv3d": ConvolutionSchema(2, 3, 4, 5, 6),
    "aten::conv_transpose1d": ConvolutionSchema(2, 3, 4, 7, 6, -1, 5, True),
    "aten::conv_transpose2d": ConvolutionSchema(2, 3, 4, 7, 6, -1, 5, True),
    "aten::conv_transpose3d": ConvolutionSchema(2, 3, 4, 7, 6, -1, 5, True),
    "aten::cudnn_convolution": ConvolutionSchema(-1, 3, 2, 4, 5),
    "aten::cudnn_convolution_transpose": ConvolutionSchema(-1, 4, 2, 5, 6, -1, 3, True),
    "aten::cudnn_convolution_relu": ConvolutionSchema(2, 3, 4, 5, 6),
    "aten::cudnn_convolution_add_relu": ConvolutionSchema(4, 5, 6, 7, 8, added=2),
    "aten::miopen_convolution": ConvolutionSchema(2, 4, 3, 5, 6),
    "aten::miopen_convolution_transpose": ConvolutionSchema(2, 5, 3, 6, 7, -1, 4, True),
    "aten::miopen_depthwise_convolution": ConvolutionSchema(2, 4, 3, 5, 6),
    "aten::miopen_convolution_relu": ConvolutionSchema(2, 3, 4, 5, 6),
    "aten::miopen_convolution_add_relu": ConvolutionSchema(4, 5, 6, 7, 8, added=2),
    "aten::mkldnn_convolution": ConvolutionSchema(2, 4, 3, 5, 6),
    "aten::_convolution_mode": ConvolutionSchema(2, 3, 4, 5, 6),
    "aten::_mps_convolution": ConvolutionSchema(2, 4, 3, 5, 6),
    "aten::_mps_convolution_transpose": ConvolutionSchema(-1, 4, 2, 5, 6, -1, 3, True),
    "aten::_nnpack_spatial_convolution": ConvolutionSchema(2, 4, 3, -1, -1),
    "aten::slow_conv_transpose2d": ConvolutionSchema(3, 4, 5, 7, -1, -1, 6, True),
    "aten::slow_conv_transpose3d": ConvolutionSchema(3, 4, 5, 7, -1, -1, 6, True),
    "mkldnn::_convolution_pointwise": ConvolutionSchema(2, 4, 3, 5, 6),
    "mkldnn::_convolution_transpose_pointwise": ConvolutionSchema(2, 5, 3, 6, 7, -1, 4, True),
    "aten::thnn_conv2d": ConvolutionSchema(3, 4, 5, -1, -1),
    "aten::_slow_conv2d_forward": ConvolutionSchema(3, 4, 5, -1, -1),
    "aten::slow_conv3d": ConvolutionSchema(3, 4, 5, -1, -1),
    "aten::slow_conv3d_forward": ConvolutionSchema(3, 4, 5, -1, -1),
    "aten::slow_conv_dilated2d": ConvolutionSchema(3, 4, 5, 6, -1),
    "aten::slow_conv_dilated3d": ConvolutionSchema(3, 4, 5, 6, -1),
    "aten::_conv_depthwise2d": ConvolutionSchema(3, 4, 5, 6, -1),
    "aten::conv_depthwise3d": ConvolutionSchema(3, 4, 5, 6, -1),
}


def output_shape(
    given: Sequence[int],
    weight: Sequence[int],
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    transposed: bool = False,
    output_padding: Sequence[int] = (0,),
) -> tuple[int, ...]:
    """The result's (N, C, ...) shape; raises Uncounted when the arguments don't fit together."""
    kernel, space = weight[2:], given[2:]
    rank = len(space)
    steps, pads, holes, more = (_spread(v, rank) for v in (stride, padding, dilation, output_padding))
    sizes = [
        (size - 1) * s - 2 * p + d * (k - 1) + o + 1
        if transposed
        else ceil_divide(size + 2 * p - d * (k - 1), s)  # floor((size + 2p - d(k-1) - 1) / s) + 1
        for size, k, s, p, d, o in zip(space, kernel, steps, pads, holes, more, strict=True)
    ]
    if any(size < 0 for size in sizes):
        raise Uncounted("a convolution whose kernel is larger than its input")
    return (given[0], weight[1] * groups if transposed else weight[0], *sizes)


def _spread(values: Sequence[int], rank: int) -> tuple[int, ...]:
    if len(values) == rank:
        return tuple(values)
    if len(values) == 1:
        return tuple(values) * rank
    raise Uncounted("stride, padding and dilation don't fit the convolution's rank")


def _forward(call: OpCall, places: ConvolutionSchema) -> Work:
    given, weight = _batched(tensor(call, 0), tensor(call, 1)), tensor(call, 1)
    transposed = places.always_transposed or (places.transposed >= 0 and bool(flag(call, places.transposed)))
    groups = _groups(call, places, given, weight, transposed)
    shape = output_shape(
        given.shape,
        weight.shape,
        stride=_setting(call, places.stride, 1),
        padding=_padding(call, places, weight),
        dilation=_setting(call, places.dilation, 1),
        groups=groups,
        transposed=transposed,
        output_padding=_setting(call, places.output_padding, 0),
    )
    # Each element of the larger side (the output; the input if transposed) meets one filter's window.
    flop = FMA_FLOP * numel(given.shape if transposed else shape) * numel(weight.shape[1:])
    bias, added = maybe_tensor(call, places.bias), maybe_tensor(call, places.added)
    count, note = _algorithm(call)
    return contraction(
        call,
        flop=flop,
        dtype=given.dtype,
        read=_input_bytes(given, weight, () if transposed else shape[2:]) + read_bytes(weight, bias, added),
        written=write_bytes(shape, given.dtype),
        count=count,
        note=note,
        on_vector_units=_on_vector_units(call, given, weight, groups),
    )


def _input_bytes(given: Tensor, weight: Tensor, out: Sequence[int]) -> float:
    """Bytes of the input that some window touches: a kernel smaller than its stride skips pixels.

    Along a row the skipped pixels are saved only where a pixel's channels lie together (channels last).
    """
    whole = read_bytes(given)
    channels_last = given.strides is not None and len(given.strides) > 1 and given.strides[1] == 1
    pairs = list(zip(given.shape[2:], weight.shape[2:], out, strict=False))
    for size, kernel, steps in pairs if channels_last else pairs[:-1]:
        if size:
            whole *= min(size, steps * kernel) / size
    return whole


def _batched(given: Tensor, weight: Tensor) -> Tensor:
    if len(weight.shape) < 3:
        raise Uncounted("a convolution whose weight has no kernel dimension")
    if len(given.shape) == len(weight.shape):
        return given
    if len(given.shape) == len(weight.shape) - 1:
        return Tensor((1, *given.shape), given.dtype)
    raise Uncounted("a convolution whose input and weight don't fit")


def _groups(call: OpCall, places: ConvolutionSchema, given: Tensor, weight: Tensor, transposed: bool) -> int:
    recorded = integer(call, places.groups) if places.groups >= 0 else None
    if recorded:
        return recorded
    return 1 if transposed or not weight.shape[1] else max(1, given.shape[1] // weight.shape[1])


def _setting(call: OpCall, place: int, default: int) -> tuple[int, ...]:
    if place < 0 or place >= len(call.inputs):
        return (default,)
    values = integers(call, place)
    if not values:
        raise Uncounted("the convolution's stride, padding and dilation are not recorded")
    return values


def _padding(call: OpCall, places: ConvolutionSchema, weight: Tensor) -> tuple[int, ...]:
    named = text(call, places.padding).strip("\"'")
    if named == "valid":
        return (0,)
    if named == "same":
        # Total padding is dilation x (kernel - 1): half of it on either side, as far as the output's size goes.
        holes = _spread(_setting(call, places.dilation, 1), len(weight.shape) - 2)
        return tuple(hole * (size - 1) // 2 for hole, size in zip(holes, weight.shape[2:], strict=True))
    return _setting(call, places.padding, 0)


def _algorithm(call: OpCall) -> tuple[Count, str]:
    if any("winograd" in name.lower() or "fft2d" in name.lower() for name in call.kernels):
        return "bounded", "a Winograd or FFT kernel does fewer FLOP than this direct count"
    return "exact", ""


def _is_depthwise(given: Tensor, weight: Tensor, groups: int | None) -> bool:
    """Whether each channel is a group of its own, more than one of them; `groups` None: not recorded."""
    if len(weight.shape) < 3 or weight.shape[1] != 1:
        return False
    channels = given.shape[1 - len(weight.shape) + len(given.shape)] if len(given.shape) >= 2 else 1
    return channels > 1 and (groups is None or groups == channels)


def _on_vector_units(call: OpCall, given: Tensor, weight: Tensor, groups: int | None) -> bool:
    """A depthwise convolution, unless its kernels are named as those of the matrix units are."""
    if not _is_depthwise(given, weight, groups):
        return False
    return not any(_MATRIX_KERNEL.search(name) and not _VECTOR_KERNEL.search(name) for name in call.kernels)


@rule("aten::convolution_backward", "aten::convolution_backward_overrideable", family="convolution")
def _backward(call: OpCall) -> Work:
    # The second schema has neither bias_sizes nor anything else in its place.
    shift = -1 if call.name.endswith("overrideable") else 0
    grad, given, weight = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    mask = flags(call, 10 + shift)
    if mask is None or len(mask) != 3:
        raise Uncounted("which gradients are computed is not recorded")
    transposed = bool(flag(call, 7 + shift))
    pass_flop = FMA_FLOP * numel(given.shape if transposed else grad.shape) * numel(weight.shape[1:])
    # One kernel a gradient, each with its own reads: input (dY, W), weight (dY, X), bias (dY).
    read = written = 0.0
    others = (read_bytes(weight), _input_bytes(given, weight, () if transposed else grad.shape[2:]), 0.0)
    for wanted, other, shape in zip(mask, others, (given.shape, weight.shape, grad.shape[1:2]), strict=True):
        if wanted:
            read += read_bytes(grad) + other
            written += write_bytes(shape, grad.dtype)
    count, note = _algorithm(call)
    return contraction(
        call,
        flop=pass_flop * (mask[0] + mask[1]),
        dtype=grad.dtype,
        read=read,
        written=written,
        count=count,
        note=note,
        vector_flop=float(numel(grad.shape)) if mask[2] else None,
        on_vector_units=_on_vector_units(call, given, weight, integer(call, 9 + shift)),
    )


@rule("aten::mps_convolution_backward", "aten::mps_convolution_transpose_backward", family="convolution")
@rule("aten::_slow_conv2d_backward", family="convolution")
def _other_backward(call: OpCall) -> Work:
    """(input, dY, weight, ..., mask) on Apple's GPUs, (dY, input, weight, ..., mask) on the CPU."""
    mps = "::mps" in call.name
    given, grad, weight = tensor(call, 0 if mps else 1), tensor(call, 1 if mps else 0), tensor(call, 2)
    mask = flags(call, {"aten::mps_convolution_backward": 7, "aten::_slow_conv2d_backward": 6}.get(call.name, 8))
    if mask is None or len(mask) < 2:
        raise Uncounted("which gradients are computed is not recorded")
    wide = given if "transpose" in call.name else grad
    return contraction(
        call,
        flop=FMA_FLOP * numel(wide.shape) * numel(weight.shape[1:]) * (mask[0] + mask[1]),
        dtype=grad.dtype,
        read=mask[0] * read_bytes(grad, weight) + mask[1] * read_bytes(grad, given),
        written=mask[0] * write_bytes(given.shape, grad.dtype) + mask[1] * write_bytes(weight.shape, grad.dtype),
        on_vector_units="transpose" not in call.name and _on_vector_units(call, given, weight, None),
    )


@rule("aten::conv_tbc", family="convolution")
def _time_major(call: OpCall) -> Work:
    """Input (T, B, I), weight (K, I, O): T + 2 p - K + 1 steps, each K I O multiply-adds a sequence."""
    given, weight = tensor(call, 0, 3), tensor(call, 1, 3)
    steps = given.shape[0] + 2 * (integer(call, 3) or 0) - weight.shape[0] + 1
    if steps < 0 or given.shape[2] != weight.shape[1]:
        raise Uncounted("a convolution whose input and weight don't fit")
    shape = (steps, given.shape[1], weight.shape[2])
    return contraction(
        call,
        flop=FMA_FLOP * numel(shape) * numel(weight.shape[:2]),
        dtype=given.dtype,
        read=read_bytes(given, weight, maybe_tensor(call, 2)),
        written=write_bytes(shape, given.dtype),
    )


@rule("aten::cudnn_convolution_backward_input", "aten::miopen_convolution_backward_input", family="convolution")
def _backward_input(call: OpCall) -> Work:
    """Before torch 1.11: (input size, dY, weight, ...). The FLOP are sure; the input's size is printed or isn't."""
    grad, weight = tensor(call, 1), tensor(call, 2)
    size = integers(call, 0)
    groups = integer(call, 6) or 1
    channels = numel(weight.shape[1:2]) * groups
    shape = size or (*grad.shape[:1], channels, *grad.shape[2:])
    count, note = _algorithm(call)
    return contraction(
        call,
        flop=FMA_FLOP * numel(grad.shape) * numel(weight.shape[1:]),
        dtype=grad.dtype,
        read=read_bytes(grad, weight),
        written=write_bytes(shape, grad.dtype),
        count=count if size else "bounded",
        note=note if size else "the input's size is not recorded: taken as the output's, the fewest bytes",
        on_vector_units=_on_vector_units(call, Tensor(shape, grad.dtype), weight, groups),
    )


@rule("aten::cudnn_convolution_backward_weight", "aten::miopen_convolution_backward_weight", family="convolution")
def _backward_weight(call: OpCall) -> Work:
    size = integers(call, 0)
    grad, given = tensor(call, 1), tensor(call, 2)
    if not size:
        raise Uncounted("the weight's size is not recorded")
    return contraction(
        call,
        flop=FMA_FLOP * numel(grad.shape) * numel(size[1:]),
        dtype=grad.dtype,
        read=read_bytes(grad, given),
        written=write_bytes(size, grad.dtype),
        on_vector_units=_on_vector_units(call, given, Tensor(size, grad.dtype), integer(call, 6)),
    )


def _bound(places: ConvolutionSchema) -> Rule:
    def count(call: OpCall) -> Work:
        return _forward(call, places)

    return count


for _name, _places in _FORWARD.items():
    register(_name, _bound(_places), family="convolution")
