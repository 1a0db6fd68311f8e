"""Pointwise ops, by name: inputs read once, the broadcast result written once; 1 FLOP an element unless the table says.

A special function (exp, tanh, erf) counts 1: what the vector units spend on it is the device's business.
"""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.cost.arguments import argument, dtype, integer, maybe_tensor, tensor, tensors
from gobrrr.cost.build import elementwise, made_bytes, vector
from gobrrr.cost.dtypes import floating, promote
from gobrrr.cost.registry import Rule, Uncounted, register, rule
from gobrrr.cost.shapes import broadcast, numel, read_bytes, write_bytes
from gobrrr.model.work import Argument, OpCall, Tensor, Work

_UNARY_FLOAT = (
    "acos acosh asin asinh atan atanh cos cosh sin sinh tan exp exp2 expm1 log log10 log1p log2 sqrt rsqrt tanh "
    "sigmoid erf erfc erfinv lgamma digamma reciprocal sinc logit i0 special_erfcx special_i0e special_i1 "
    "special_ndtri special_log_ndtr log_sigmoid mish special_entr deg2rad rad2deg"
)
_UNARY_SAME = (
    "neg negative sign sgn ceil floor round trunc frac square relu relu6 bitwise_not positive conj_physical "
    "nan_to_num hardtanh hardsigmoid hardswish leaky_relu elu celu selu softplus threshold hardshrink softshrink "
    "silu gelu clamp clip rrelu_with_noise dropout alpha_dropout fake_quantize"
)
_UNARY_BOOL = "isnan isinf isfinite isneginf isposinf logical_not signbit isreal"
_BINARY = (
    "add sub rsub mul multiply subtract minimum maximum fmax fmin remainder fmod floor_divide bitwise_and bitwise_or "
    "bitwise_xor bitwise_left_shift bitwise_right_shift __and__ __or__ __xor__ __lshift__ __rshift__ pow hypot "
    "copysign nextafter gcd lcm heaviside float_power prelu _prelu_kernel ldexp clamp_min clamp_max _add_relu __iand__ "
    "__ior__"
)
_BINARY_FLOAT = "polygamma div divide true_divide atan2 logaddexp logaddexp2 xlogy special_xlog1py"
_BINARY_BOOL = (
    "eq ne lt le gt ge not_equal less less_equal greater greater_equal logical_and logical_or logical_xor isclose"
)
_BACKWARD = (  # of (gradient, saved tensor): one tensor of the gradient's type
    "threshold sigmoid tanh silu gelu hardtanh hardswish hardsigmoid leaky_relu softplus mish elu logit hardshrink "
    "softshrink log_sigmoid rrelu_with_noise infinitely_differentiable_gelu"
)
FLOP_PER_ELEMENT: dict[str, int] = {
    "gelu": 5, "gelu_backward": 10, "silu": 2, "silu_backward": 5, "mish": 3, "mish_backward": 6, "softplus": 2,
    "sigmoid_backward": 3, "tanh_backward": 3, "hardswish": 4, "hardswish_backward": 4, "elu": 2, "elu_backward": 2,
    "clamp": 2, "clip": 2, "logaddexp": 4, "hypot": 4, "addcmul": 3, "addcdiv": 3, "lerp": 3,
}  # fmt: skip
"""Stated exceptions from 1 FLOP an element, additions and multiplications of the formula each 1."""


def _flop(name: str) -> int:
    return FLOP_PER_ELEMENT.get(name, 1)


def _operands(call: OpCall, count: int) -> tuple[list[Tensor], list[Argument], Tensor | None]:
    """The tensors among the first `count` arguments, those arguments, and the `out` tensor after them."""
    heads = [value for value in (argument(call, index) for index in range(count)) if value is not None]
    given = [head for head in heads if isinstance(head, Tensor)]
    last = call.inputs[-1] if len(call.inputs) > count else None
    if not given:
        tensor(call, 0)
    return given, heads, last if isinstance(last, Tensor) else None


def _count(call: OpCall, name: str, places: int, result: str) -> Work:
    """`result`: "same" (promotion), "float" (integers become float32), "bool"."""
    given, heads, out = _operands(call, places)
    if name.endswith("_") and not name.endswith("__"):
        return elementwise(given, _in_place(call).dtype, flop_per_element=_flop(name[:-1]))
    widest = promote(heads)
    kind = {"same": widest, "float": floating(widest), "bool": "bool"}[result]
    return elementwise(given, out.dtype if out is not None else kind, flop_per_element=_flop(name))


def _in_place(call: OpCall) -> Tensor:
    target = maybe_tensor(call, 0)
    if target is None:
        raise Uncounted("the tensor written in place is not recorded")
    return target


def _rule_for(name: str, places: int, result: str) -> Rule:
    def count(call: OpCall) -> Work:
        return _count(call, name, places, result)

    return count


def _register_table(names: str, places: int, result: str) -> None:
    for name in names.split():
        register(f"aten::{name}", _rule_for(name, places, result), family="pointwise")
        if not name.endswith("__"):
            register(f"aten::{name}_", _rule_for(f"{name}_", places, result), family="pointwise")


_register_table(_UNARY_FLOAT, 1, "float")
_register_table(" ".join(name for name in _UNARY_SAME.split() if name not in ("clamp", "clip")), 1, "same")
_register_table(_UNARY_BOOL, 1, "bool")
_register_table(_BINARY, 2, "same")
_register_table(_BINARY_FLOAT, 2, "float")
_register_table(_BINARY_BOOL, 2, "bool")
_register_table("clamp clip", 3, "same")


def _backward_rule(name: str) -> Rule:
    def count(call: OpCall) -> Work:
        # Some schemas have the saved tensor behind their settings, some a second one (noise, a buffer).
        given = list(tensors(call))
        if len(given) < 2:
            raise Uncounted("the gradient and the saved tensor are not both recorded")
        return elementwise(given[:3], given[0].dtype, flop_per_element=_flop(name))

    return count


for _name in _BACKWARD.split():
    register(f"aten::{_name}_backward", _backward_rule(f"{_name}_backward"), family="pointwise")


@rule("aten::abs", "aten::absolute", "aten::angle", "prims::abs", family="pointwise")
def _magnitude(call: OpCall) -> Work:
    """Real, of complex numbers too; a float of what angle is given as integers."""
    given = tensor(call, 0)
    real = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}.get(given.dtype, given.dtype)
    return elementwise([given], floating(real) if call.name == "aten::angle" else real)


@rule("aten::abs_", family="pointwise")
def _magnitude_in_place(call: OpCall) -> Work:
    return elementwise([tensor(call, 0)], tensor(call, 0).dtype)


@rule("aten::_prelu_kernel_backward", family="pointwise")
def _prelu_backward(call: OpCall) -> Work:
    """The input's gradient, and the weight's before it is summed: both of the input's size."""
    given = [tensor(call, place) for place in range(3)]
    return elementwise(given, given[1].dtype, flop_per_element=2, outputs=2)


@rule("aten::log_sigmoid_forward", family="pointwise")
def _log_sigmoid(call: OpCall) -> Work:
    """On the CPU the kernel saves exp(-|x|) as well; on a GPU its buffer is empty."""
    given = tensor(call, 0)
    second = call.outputs is not None and len(call.outputs) > 1 and call.outputs[1].shape == given.shape
    return elementwise([given], given.dtype, flop_per_element=4, outputs=2 if second else 1)


@rule("aten::frexp", family="pointwise")
def _frexp(call: OpCall) -> Work:
    given = tensor(call, 0)
    return elementwise([given], given.dtype, extra_written=write_bytes(given.shape, "int32"))


@rule("aten::addcmul", "aten::addcmul_", "aten::addcdiv", "aten::addcdiv_", family="pointwise")
@rule("aten::lerp", "aten::lerp_", family="pointwise")
def _ternary(call: OpCall) -> Work:
    given = [operand for operand in (maybe_tensor(call, index) for index in range(3)) if operand is not None]
    return elementwise(given, promote(given), flop_per_element=3)


@rule("aten::where", family="pointwise")
def _where(call: OpCall) -> Work:
    if len(call.inputs) < 3:
        raise Uncounted("where with a condition alone: how many elements it finds is not recorded")
    given, _, _ = _operands(call, 3)
    return elementwise(given, promote(call.inputs[1:3]))


@rule("aten::masked_fill", "aten::masked_fill_", family="pointwise")
def _masked_fill(call: OpCall) -> Work:
    target, mask = tensor(call, 0), tensor(call, 1)
    return elementwise([target, mask], target.dtype)


@rule("aten::native_dropout", "aten::_fused_dropout", family="pointwise")
def _dropout(call: OpCall) -> Work:
    given = tensor(call, 0)
    mask = write_bytes(given.shape, "bool" if call.name == "aten::native_dropout" else "uint8")
    return elementwise([given], given.dtype, flop_per_element=3, extra_written=mask)


@rule("aten::native_dropout_backward", "aten::_masked_scale", family="pointwise")
def _dropout_backward(call: OpCall) -> Work:
    grad, mask = tensor(call, 0), tensor(call, 1)
    return elementwise([grad, mask], grad.dtype, flop_per_element=2)


@rule("aten::glu", family="pointwise")
def _glu(call: OpCall) -> Work:
    given = tensor(call, 0)
    half = numel(given.shape) // 2
    return vector(flop=3 * half, dtype=given.dtype, read=read_bytes(given), written=write_bytes((half,), given.dtype))


@rule("aten::glu_jvp", "aten::glu_backward_jvp", "aten::rrelu_with_noise_functional", family="pointwise")
@rule("aten::_transform_bias_rescale_qkv", family="pointwise")
def _several(call: OpCall) -> Work:
    """Pointwise over all that it is handed: 4 FLOP an element of the largest; written once at that size."""
    given = list(tensors(call))
    if not given:
        raise Uncounted("shapes are not recorded")
    largest, made = max(given, key=lambda operand: numel(operand.shape)), made_bytes(call)
    written = write_bytes(largest.shape, largest.dtype) if made is None else made
    return vector(
        flop=4 * numel(largest.shape), dtype=largest.dtype, read=read_bytes(*given), written=written,
        count="bounded", note="4 FLOP an element of its largest tensor",
    )  # fmt: skip


@rule("aten::glu_backward", family="pointwise")
def _glu_backward(call: OpCall) -> Work:
    grad, given = tensor(call, 0), tensor(call, 1)
    count = numel(given.shape)
    read = read_bytes(grad, given)
    return vector(flop=4 * count, dtype=given.dtype, read=read, written=write_bytes(given.shape, given.dtype))


_REDUCTION_PLACE = {"aten::binary_cross_entropy": 3, "aten::binary_cross_entropy_with_logits": 4}
"""The position of a loss's `reduction`; 2 for every other."""


@rule("aten::mse_loss", "aten::l1_loss", "aten::smooth_l1_loss", "aten::huber_loss", family="pointwise")
@rule("aten::binary_cross_entropy", "aten::binary_cross_entropy_with_logits", family="pointwise")
@rule("aten::soft_margin_loss", family="pointwise")
def _loss(call: OpCall) -> Work:
    place = _REDUCTION_PLACE.get(call.name, 2)
    weights = (maybe_tensor(call, index) for index in range(2, place))
    given = [tensor(call, 0), tensor(call, 1), *(weight for weight in weights if weight is not None)]
    shape = broadcast(*(operand.shape for operand in given[:2]))
    reduces = integer(call, place) != 0  # Reduction: 0 none, 1 mean, 2 sum
    result = () if reduces else shape
    return vector(
        flop=3 * numel(shape),
        dtype=given[0].dtype,
        read=read_bytes(*given),
        written=write_bytes(result, promote(given[:2])),
    )


@rule("aten::mse_loss_backward", "aten::l1_loss_backward", "aten::smooth_l1_loss_backward", family="pointwise")
@rule("aten::huber_loss_backward", "aten::binary_cross_entropy_backward", family="pointwise")
@rule("aten::soft_margin_loss_backward", family="pointwise")
def _loss_backward(call: OpCall) -> Work:
    weight = maybe_tensor(call, 3)
    given = [tensor(call, 0), tensor(call, 1), tensor(call, 2), *([] if weight is None else [weight])]
    return elementwise(given, given[1].dtype, flop_per_element=3)


@rule("aten::fake_quantize_per_tensor_affine_cachemask", family="pointwise")
@rule("aten::fake_quantize_per_channel_affine_cachemask", family="pointwise")
def _fake_quantize(call: OpCall) -> Work:
    given = tensor(call, 0)
    return elementwise([given], given.dtype, flop_per_element=5, extra_written=write_bytes(given.shape, "bool"))


@rule("aten::_to_copy", family="pointwise")
def _cast(call: OpCall) -> Work:
    given = tensor(call, 0)
    return _converted(given, dtype(call, 1) or given.dtype)


@rule("aten::to", "aten::type_as", "aten::float", "aten::half", "aten::bfloat16", family="pointwise")
def _composite_cast(call: OpCall) -> Work:
    given, other = tensor(call, 0), maybe_tensor(call, 1)
    named = {"aten::float": "float32", "aten::half": "float16", "aten::bfloat16": "bfloat16"}.get(call.name)
    return _converted(given, named or (other.dtype if other is not None else dtype(call, 1)) or given.dtype)


def _converted(given: Tensor, out: str) -> Work:
    return elementwise([given], out, flop_per_element=0.0)


@rule("aten::complex", "aten::polar", family="pointwise")
def _complex(call: OpCall) -> Work:
    given = [tensor(call, 0), tensor(call, 1)]
    return elementwise(given, "complex128" if given[0].dtype == "float64" else "complex64")


@rule("aten::isin", family="pointwise")
def _isin(call: OpCall) -> Work:
    """Each element against every wanted one."""
    given, wanted = tensor(call, 0), maybe_tensor(call, 1)
    count = numel(given.shape) * (numel(wanted.shape) if wanted is not None else 1)
    return vector(
        flop=count, dtype=given.dtype, read=read_bytes(given, wanted), written=write_bytes(given.shape, "bool")
    )


def fused(inputs: Sequence[Tensor], outputs: Sequence[Tensor], flop: float) -> Work:
    """A pointwise kernel with given outputs: for rules of custom ops that are handed their outputs."""
    first = inputs[0] if inputs else None
    if first is None:
        raise Uncounted("no tensor argument is recorded")
    written = sum(write_bytes(output.shape, output.dtype) for output in outputs)
    return vector(flop=flop, dtype=first.dtype, read=read_bytes(*inputs), written=written)
