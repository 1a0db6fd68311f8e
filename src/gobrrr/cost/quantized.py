"""Quantizing and dequantizing: pointwise, with a change of width. Packed quantized layers record no weights."""

from __future__ import annotations

from gobrrr.cost.arguments import dtype, maybe_tensor, tensor, tensors
from gobrrr.cost.build import contraction, elementwise, made_bytes, vector
from gobrrr.cost.pointwise import fused
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import FMA_FLOP, numel, read_bytes, write_bytes
from gobrrr.model.work import OpCall, Work

_PACKED = "a quantized layer keeps its weights in a packed object that the profiler doesn't record"
"""Why such a layer is not counted."""
QUANTIZE_FLOP = 4  # scale, shift, round, clamp


@rule(
    "aten::quantize_per_tensor", "aten::quantize_per_tensor_dynamic", "aten::quantize_per_channel", family="quantized"
)
def _quantize(call: OpCall) -> Work:
    given = tensor(call, 0)
    place = {"aten::quantize_per_tensor": 3, "aten::quantize_per_tensor_dynamic": 1}.get(call.name, 4)
    return elementwise([given], dtype(call, place) or "qint8", flop_per_element=QUANTIZE_FLOP)


@rule("aten::dequantize", family="quantized")
def _dequantize(call: OpCall) -> Work:
    return elementwise([tensor(call, 0)], "float32", flop_per_element=2)


@rule("quantized_decomposed::quantize_per_tensor", "quantized_decomposed::quantize_per_channel", family="quantized")
def _decomposed(call: OpCall) -> Work:
    last = dtype(call, len(call.inputs) - 1)
    return elementwise([tensor(call, 0)], last or "int8", flop_per_element=QUANTIZE_FLOP)


@rule("_C::static_scaled_fp8_quant", "_C::dynamic_scaled_fp8_quant", family="quantized")
@rule("_C::dynamic_per_token_scaled_fp8_quant", "_C::static_scaled_int8_quant", family="quantized")
@rule("_C::dynamic_scaled_int8_quant", family="quantized")
def _into(call: OpCall) -> Work:
    """(output, input, scale): vLLM's kernels are handed their output."""
    out, given, scale = tensor(call, 0), tensor(call, 1), maybe_tensor(call, 2)
    inputs = [given] if scale is None else [given, scale]
    return fused(inputs, [out], QUANTIZE_FLOP * numel(given.shape))


@rule("quantized::linear", "quantized::linear_relu", "quantized::linear_dynamic", family="matmul")
@rule(
    "quantized::linear_relu_dynamic", "quantized::linear_dynamic_fp16", "quantized::linear_leaky_relu", family="matmul"
)
@rule("quantized::linear_relu_dynamic_fp16", "quantized::linear_tanh", family="matmul")
def _linear(call: OpCall) -> Work:
    """The packed weight is (N, K): K is the input's last size and N the output's, where that is recorded."""
    given = tensor(call, 0)
    if not call.outputs or not given.shape:
        raise Uncounted(_PACKED)
    out = call.outputs[0]
    columns = out.shape[-1] if out.shape else 1
    half = "fp16" in call.name
    weight = write_bytes((columns, given.shape[-1]), "float16" if half else "int8")
    return contraction(
        call,
        flop=FMA_FLOP * numel(out.shape) * given.shape[-1],
        dtype=given.dtype if half else "int8",
        read=read_bytes(given) + weight,
        written=write_bytes(out.shape, out.dtype),
        count="bounded",
        note="quantizing the input on the way is not counted",
    )


@rule("quantized::*", family="quantized")
def _packed(call: OpCall) -> Work:
    raise Uncounted(_PACKED)


@rule(
    "aten::_fake_quantize_learnable_per_tensor_affine", "aten::_fake_quantize_learnable_per_channel_affine",
    "aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
    "aten::_fake_quantize_learnable_per_tensor_affine_backward", "aten::_fused_moving_avg_obs_fq_helper",
    "aten::_fake_quantize_learnable_per_channel_affine_backward", "aten::_fused_moving_avg_obs_fq_helper_functional",
    family="quantized",
)  # fmt: skip
def _observed(call: OpCall) -> Work:
    """Quantized and dequantized at once; what a backward pass sums for the scale is not counted apart."""
    given, made = list(tensors(call)), made_bytes(call)
    largest = max(given, key=lambda operand: numel(operand.shape), default=None)
    if largest is None:
        raise Uncounted("shapes are not recorded")
    return vector(
        flop=5 * numel(largest.shape),
        dtype=largest.dtype,
        read=read_bytes(*given),
        written=write_bytes(largest.shape, largest.dtype) if made is None else made,
        count="bounded",
        note="one pass over the tensors",
    )
