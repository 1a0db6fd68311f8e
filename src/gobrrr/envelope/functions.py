"""The functions that expressions may call: each adds the ATen operation that PyTorch would run to a graph.

FLOPs and bytes are the registry's (gobrrr.cost); what is said here is the shape and the type of the result.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gobrrr.cost.dtypes import accumulated, category, floating, promote
from gobrrr.cost.registry import Uncounted
from gobrrr.cost.shapes import broadcast
from gobrrr.envelope.graph import Constant, Graph, Join, Value
from gobrrr.errors import UsageError
from gobrrr.model.work import Argument, Scalar, Tensor

Given = dict[str, "Value | Constant"]
Build = Callable[[Graph, Given], Value]


@dataclass(frozen=True)
class Function:
    """`parameters` as in PyTorch's signature: "x min=None max=None"; those without a default must be given."""

    name: str
    parameters: str
    build: Build


_TABLE: dict[str, Function] = {}

_UNARY_FLOAT = (
    "cos sin tan acos asin atan cosh sinh tanh exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sigmoid erf erfc "
    "reciprocal mish log_sigmoid"
)
_UNARY_SAME = (
    "abs neg positive sign ceil floor round trunc square relu relu6 hardtanh hardsigmoid hardswish elu selu softplus "
    "silu leaky_relu"
)
_UNARY_BOOL = "isnan isinf logical_not"
_BINARY = "add sub mul pow maximum minimum remainder fmod floor_divide"
_BINARY_FLOAT = "div atan2"
_BINARY_BOOL = "eq ne lt le gt ge logical_and logical_or"
_SYNONYMS = {
    "absolute": "abs", "negative": "neg", "multiply": "mul", "subtract": "sub", "divide": "div", "true_divide": "div",
    "logsigmoid": "log_sigmoid", "clip": "clamp",
}  # fmt: skip


def find(name: str) -> Function:
    """The function called `name`. Raises UsageError with the nearest names."""
    found = _TABLE.get(_SYNONYMS.get(name, name))
    if found is None:
        close = difflib.get_close_matches(name, known(), n=4, cutoff=0.5)
        hint = f"did you mean {', '.join(close)}?" if close else f"known: {', '.join(known())}"
        raise UsageError(f"unknown function {name[:60]!r}; {hint}")
    return found


def known() -> tuple[str, ...]:
    """Every name that an expression may call, sorted."""
    return tuple(sorted([*_TABLE, *_SYNONYMS]))


def bind(function: Function, arguments: Sequence[Value | Constant], keywords: Given) -> Given:
    """The arguments by parameter. Raises UsageError where they don't fit the signature."""
    parameters = [one.partition("=")[0] for one in function.parameters.split()]
    if len(arguments) > len(parameters):
        raise UsageError(f"{_signature(function)} takes {len(parameters)} arguments, not {len(arguments)}")
    given: Given = dict(zip(parameters, arguments, strict=False))
    for name, value in keywords.items():
        if name not in parameters or name in given:
            raise UsageError(f"{_signature(function)} has no free parameter {name[:40]!r}")
        given[name] = value
    for one in function.parameters.split():
        name, has_default, default = one.partition("=")
        if name not in given and not has_default:
            raise UsageError(f"{_signature(function)} needs {name}")
        given.setdefault(name, {"False": False, "True": True}.get(default))
    return given


def _signature(function: Function) -> str:
    return f"{function.name}({', '.join(function.parameters.split())})"


def _define(name: str, parameters: str, build: Build) -> None:
    _TABLE[name] = Function(name, parameters, build)


def tensor(given: Given, name: str, function: str) -> Value:
    """The argument as a tensor. Raises UsageError where it is none."""
    value = given[name]
    if not isinstance(value, Value):
        raise UsageError(f"{function}: {name} must be a tensor, not {value!r}")
    return value


def shaped(function: str, *shapes: Sequence[int]) -> tuple[int, ...]:
    """Shapes broadcast. Raises UsageError, with the shapes, where they don't."""
    try:
        return broadcast(*shapes)
    except Uncounted:
        listed = " and ".join(str(tuple(shape)) for shape in shapes)
        raise UsageError(f"{function}: shapes {listed} don't broadcast") from None


def _typed(values: Sequence[Value | Constant], result: str) -> str:
    arguments: list[Argument] = [value.tensor if isinstance(value, Value) else Scalar(str(value)) for value in values]
    widest = promote(arguments)
    return {"same": widest, "float": floating(widest), "bool": "bool"}[result]


def pointwise(graph: Graph, name: str, values: Sequence[Value | Constant], result: str = "same") -> Value:
    """A pointwise operation on tensors and numbers; the result has the broadcast shape."""
    shapes = [value.shape for value in values if isinstance(value, Value)]
    if not shapes:
        raise UsageError(f"{name}: of numbers alone there is nothing to count")
    if any(isinstance(value, tuple) for value in values):
        raise UsageError(f"{name}: takes tensors and numbers, not a list")
    output = Tensor(shaped(name, *shapes), _typed([value for value in values if value is not None], result))
    return graph.add(name, values, output, "both")


def _unary(name: str, result: str) -> Build:
    return lambda graph, given: pointwise(graph, name, [tensor(given, "x", name)], result)


def _binary(name: str, result: str) -> Build:
    return lambda graph, given: pointwise(graph, name, [given["x"], given["y"]], result)


def _sub(graph: Graph, given: Given) -> Value:
    left, right = given["x"], given["y"]
    if isinstance(left, Value) or not isinstance(right, Value):
        return pointwise(graph, "sub", [left, right])
    return pointwise(graph, "rsub", [right, left])


def _div(graph: Graph, given: Given) -> Value:
    """PyTorch divides a number by a tensor in two operations: the reciprocal, then the product."""
    left, right = given["x"], given["y"]
    if isinstance(left, Value) or not isinstance(right, Value):
        return pointwise(graph, "div", [left, right], "float")
    return pointwise(graph, "mul", [pointwise(graph, "reciprocal", [right], "float"), left])


def _clamp(graph: Graph, given: Given) -> Value:
    return pointwise(graph, "clamp", [tensor(given, "x", "clamp"), given["min"], given["max"]])


def _gelu(graph: Graph, given: Given) -> Value:
    return pointwise(graph, "gelu", [tensor(given, "x", "gelu")])


def _ternary(name: str) -> Build:
    return lambda graph, given: pointwise(graph, name, [tensor(given, "x", name), given["y"], given["z"]])


def _where(graph: Graph, given: Given) -> Value:
    condition = tensor(given, "condition", "where")
    kind = _typed([given["x"], given["y"]], "same")
    parts = [condition, given["x"], given["y"]]
    shapes = [part.shape for part in parts if isinstance(part, Value)]
    return graph.add("where", parts, Tensor(shaped("where", *shapes), kind), "both")


def _masked_fill(graph: Graph, given: Given) -> Value:
    target, mask = tensor(given, "x", "masked_fill"), tensor(given, "mask", "masked_fill")
    shape = shaped("masked_fill", target.shape, mask.shape)
    return graph.add("masked_fill", [target, mask, given["value"]], Tensor(shape, target.tensor.dtype), "both")


def _cast(name: str, dtype: str) -> Build:
    def build(graph: Graph, given: Given) -> Value:
        value = tensor(given, "x", name)
        if value.tensor.dtype == dtype:
            return value
        return graph.add(name, [value], Tensor(value.shape, dtype), "both")

    return build


for _name in _UNARY_FLOAT.split():
    _define(_name, "x", _unary(_name, "float"))
for _name in _UNARY_SAME.split():
    _define(_name, "x", _unary(_name, "same"))
for _name in _UNARY_BOOL.split():
    _define(_name, "x", _unary(_name, "bool"))
for _name in _BINARY.split():
    _define(_name, "x y", _binary(_name, "same"))
for _name in _BINARY_FLOAT.split():
    _define(_name, "x y", _binary(_name, "float"))
for _name in _BINARY_BOOL.split():
    _define(_name, "x y", _binary(_name, "bool"))
_define("sub", "x y", _sub)
_define("div", "x y", _div)
_define("leaky_relu", "x negative_slope=None", _unary("leaky_relu", "same"))
_define("gelu", "x approximate=None", _gelu)
_define("clamp", "x min=None max=None", _clamp)
_define("addcmul", "x y z", _ternary("addcmul"))
_define("addcdiv", "x y z", _ternary("addcdiv"))
_define("lerp", "x y z", _ternary("lerp"))
_define("where", "condition x y", _where)
_define("masked_fill", "x mask value", _masked_fill)
_define("float", "x", _cast("float", "float32"))
_define("half", "x", _cast("half", "float16"))
_define("bfloat16", "x", _cast("bfloat16", "bfloat16"))


def dims_of(value: Value, dim: Value | Constant, function: str) -> tuple[int, ...]:
    """`dim` as positions from the front, sorted; all dimensions for None."""
    rank = len(value.shape)
    if dim is None:
        return tuple(range(rank))
    wanted = dim if isinstance(dim, tuple) else (dim,)
    whole = [one for one in wanted if isinstance(one, int) and not isinstance(one, bool)]
    if len(whole) != len(wanted) or not all(-rank <= one < rank for one in whole):
        raise UsageError(f"{function}: dim must be among the {rank} dimensions of the tensor")
    return tuple(sorted({one % rank for one in whole}))


def _row_join(shape: Sequence[int], dims: Sequence[int]) -> Join:
    """Along the last dimensions a row stays on the chip; over everything, later operations wait for the end."""
    trailing = tuple(dims) == tuple(range(len(shape) - len(dims), len(shape)))
    rows = any(size > 1 for index, size in enumerate(shape) if index not in dims)
    return "both" if trailing and rows else "before"


def _reduce(name: str, result: str, *, op: str = "", ordinal: bool = False) -> Build:
    def build(graph: Graph, given: Given) -> Value:
        value = tensor(given, "x", name)
        dims, keep = dims_of(value, given["dim"], name), given["keepdim"]
        if keep:
            shape = tuple(1 if index in dims else size for index, size in enumerate(value.shape))
        else:
            shape = tuple(size for index, size in enumerate(value.shape) if index not in dims)
        kind = value.tensor.dtype
        kind = {"sum": accumulated(kind), "float": floating(kind), "same": kind, "index": "int64"}[result]
        # the schemas: (x, dims, ...) or, for norms, (x, order, dims, ...)
        arguments: list[Value | Constant] = [value, *([2] if ordinal else []), dims, bool(keep), None]
        return graph.add(op or name, arguments, Tensor(shape, kind), _row_join(value.shape, dims), name)

    return build


def _everything(name: str) -> Build:
    """max and min of all elements; along a dimension they are amax and amin here (torch's max returns indices too)."""

    def build(graph: Graph, given: Given) -> Value:
        value = tensor(given, "x", name)
        return graph.add(name, [value], Tensor((), value.tensor.dtype), "before")

    return build


for _name, _result in {"sum": "sum", "prod": "sum", "mean": "float", "amax": "same", "amin": "same"}.items():
    _define(_name, "x dim=None keepdim=False", _reduce(_name, _result))
_define("max", "x", _everything("max"))
_define("min", "x", _everything("min"))
_define("var", "x dim=None unbiased=None keepdim=False", _reduce("var", "same"))
_define("std", "x dim=None unbiased=None keepdim=False", _reduce("std", "same"))
_define("norm", "x p=None dim=None keepdim=False", _reduce("norm", "float", op="linalg_vector_norm", ordinal=True))
_define("logsumexp", "x dim keepdim=False", _reduce("logsumexp", "float"))
_define("argmax", "x dim=None keepdim=False", _reduce("argmax", "index"))
_define("argmin", "x dim=None keepdim=False", _reduce("argmin", "index"))


def _softmax(name: str) -> Build:
    def build(graph: Graph, given: Given) -> Value:
        value = tensor(given, "x", name)
        dims = dims_of(value, given["dim"], name)
        last = dims == (len(value.shape) - 1,)
        if len(dims) != 1 or category(value.tensor.dtype) != 2:
            raise UsageError(f"{name}: takes one dimension of a floating-point tensor")
        output = Tensor(value.shape, value.tensor.dtype)
        return graph.add(f"_{name}", [value, dims[0], False], output, "both" if last else "before", name)

    return build


_define("softmax", "x dim=None", _softmax("softmax"))
_define("log_softmax", "x dim=None", _softmax("log_softmax"))


def _normalize(name: str, op: str, parameters: Sequence[str]) -> Build:
    def build(graph: Graph, given: Given) -> Value:
        value = tensor(given, "x", name)
        wanted = given["normalized_shape"]
        if wanted is not None and (isinstance(wanted, float | Value) or wanted is True or wanted is False):
            raise UsageError(f"{name}: normalized_shape is a size or a list of sizes")
        shape = value.shape[-1:] if wanted is None else wanted if isinstance(wanted, tuple) else (wanted,)
        if not shape or value.shape[-len(shape) :] != shape:
            raise UsageError(f"{name}: normalized_shape {shape} is not the end of the tensor's {value.shape}")
        affine = [given[parameter] for parameter in parameters]
        if any(one is not None and (not isinstance(one, Value) or one.shape != shape) for one in affine):
            raise UsageError(f"{name}: {' and '.join(parameters)} must be tensors of shape {shape}")
        output = Tensor(value.shape, value.tensor.dtype)
        return graph.add(op, [value, tuple(shape), *affine, 1e-5], output, "both", name)

    return build


_define(
    "layer_norm",
    "x normalized_shape=None weight=None bias=None eps=None",
    _normalize("layer_norm", "native_layer_norm", ("weight", "bias")),
)
_define(
    "rms_norm", "x normalized_shape=None weight=None eps=None", _normalize("rms_norm", "_fused_rms_norm", ("weight",))
)


def define(name: str, parameters: str, build: Build) -> None:
    """Add a function to the table: contractions and views are defined beside their shapes (contractions.py)."""
    _define(name, parameters, build)
