"""Quantizing and dequantizing: pointwise, with a change of width. Packed quantized layers record no weights."""

from __future__ import annotations

from gobrrr.cost.arguments import dtype, maybe_tensor, tensor
from gobrrr.cost.build import elementwise
from gobrrr.cost.pointwise import fused
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import numel
from gobrrr.model.work import OpCall, Work

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


@rule("quantized::*", family="quantized")
def _packed(call: OpCall) -> Work:
    raise Uncounted("a quantized layer keeps its weights in a packed object that the profiler doesn't record")
