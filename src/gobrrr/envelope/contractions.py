"""Matrix products, attention, and the views that they need."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.envelope.functions import Given, define, dims_of, shaped, tensor
from gobrrr.envelope.graph import Graph, Value
from gobrrr.errors import UsageError
from gobrrr.model.work import Tensor


def product_shape(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...]:
    """The shape of torch.matmul's result. Raises UsageError, with the shapes, where there is none."""
    if not left or not right:
        raise UsageError("matmul: a tensor without dimensions")
    wide, tall = (tuple(left), tuple(right))
    inner = tall[-2] if len(tall) > 1 else tall[-1]
    if wide[-1] != inner:
        raise UsageError(f"matmul: inner sizes {wide[-1]} and {inner} of {wide} and {tall} don't agree")
    batch = shaped("matmul", wide[:-2], tall[:-2])
    rows = wide[-2:-1]
    columns = tall[-1:] if len(tall) > 1 else ()
    return (*batch, *rows, *columns)


def _same_type(name: str, *values: Value) -> str:
    kinds = {value.tensor.dtype for value in values}
    if len(kinds) > 1:
        raise UsageError(f"{name}: operands of different types ({', '.join(sorted(kinds))})")
    return values[0].tensor.dtype


def _matmul(graph: Graph, given: Given) -> Value:
    left, right = tensor(given, "x", "matmul"), tensor(given, "y", "matmul")
    output = Tensor(product_shape(left.shape, right.shape), _same_type("matmul", left, right))
    return graph.add("matmul", [left, right], output, "none")


def _ranked(name: str, rank: int) -> None:
    def build(graph: Graph, given: Given) -> Value:
        left, right = tensor(given, "x", name), tensor(given, "y", name)
        if len(left.shape) != rank or len(right.shape) != rank or left.shape[:-2] != right.shape[:-2]:
            raise UsageError(f"{name}: takes two tensors of {rank} dimensions, not {left.shape} and {right.shape}")
        output = Tensor(product_shape(left.shape, right.shape), _same_type(name, left, right))
        return graph.add(name, [left, right], output, "none")

    define(name, "x y", build)


def _linear(graph: Graph, given: Given) -> Value:
    value, weight = tensor(given, "x", "linear"), tensor(given, "weight", "linear")
    bias = given["bias"]
    operands = [value, weight, *([bias] if isinstance(bias, Value) else [])]
    if len(weight.shape) != 2 or not value.shape or weight.shape[1] != value.shape[-1]:
        raise UsageError(f"linear: the weight must be (out, in) with in = {value.shape[-1:]}, not {weight.shape}")
    output = Tensor((*value.shape[:-1], weight.shape[0]), _same_type("linear", *operands))
    return graph.add("linear", [value, weight, bias], output, "none")


def _attention(graph: Graph, given: Given) -> Value:
    name = "scaled_dot_product_attention"
    query, key, value = (tensor(given, one, name) for one in ("query", "key", "value"))
    if {len(query.shape), len(key.shape), len(value.shape)} != {4}:
        raise UsageError(f"{name}: query, key and value have four dimensions: batch, heads, rows, head size")
    output = Tensor((*query.shape[:-1], value.shape[-1]), _same_type(name, query, key, value))
    arguments = [query, key, value, given["attn_mask"], 0.0, bool(given["is_causal"])]
    return graph.add(name, arguments, output, "none", "attention")


def _view(shape: Sequence[int], value: Value) -> Value:
    """The same bytes under another shape."""
    return Value(Tensor(tuple(shape), value.tensor.dtype), value.storage)


def _transpose(_: Graph, given: Given) -> Value:
    value = tensor(given, "x", "transpose")
    one, other = (dims_of(value, given[place], "transpose")[0] for place in ("dim0", "dim1"))
    shape = list(value.shape)
    shape[one], shape[other] = shape[other], shape[one]
    return _view(shape, value)


def _t(_: Graph, given: Given) -> Value:
    value = tensor(given, "x", "t")
    if len(value.shape) > 2:
        raise UsageError("t: takes a matrix; for more dimensions: transpose(-2, -1)")
    return _view(value.shape[::-1], value)


def _unsqueeze(_: Graph, given: Given) -> Value:
    value, dim = tensor(given, "x", "unsqueeze"), given["dim"]
    rank = len(value.shape)
    if not isinstance(dim, int) or not -rank - 1 <= dim <= rank:
        raise UsageError(f"unsqueeze: dim must be from {-rank - 1} to {rank}")
    at = dim % (rank + 1)
    return _view((*value.shape[:at], 1, *value.shape[at:]), value)


def _contiguous(graph: Graph, given: Given) -> Value:
    value = tensor(given, "x", "contiguous")
    return graph.add("contiguous", [value], Tensor(value.shape, value.tensor.dtype), "both")


define("matmul", "x y", _matmul)
_ranked("mm", 2)
_ranked("bmm", 3)
define("linear", "x weight bias=None", _linear)
define("scaled_dot_product_attention", "query key value attn_mask=None dropout_p=None is_causal=False", _attention)
define("transpose", "x dim0 dim1", _transpose)
define("t", "x", _t)
define("unsqueeze", "x dim", _unsqueeze)
define("contiguous", "x", _contiguous)
