"""A dispatched call as an OpCall: arguments in the order of the op's schema, scalars as the profiler prints them."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from gobrrr.model.plain import MOST_ITEMS, NUMBER_TYPES, plain_list, plain_text
from gobrrr.model.work import Argument, OpCall, Scalar, Tensor, TensorList

_EMPTY = Scalar("")

_SCALAR_TYPES: dict[Any, int] = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5,
    torch.float32: 6, torch.float64: 7, torch.complex32: 8, torch.complex64: 9, torch.complex128: 10,
    torch.bool: 11, torch.bfloat16: 15, torch.float8_e5m2: 23, torch.float8_e4m3fn: 24,
    torch.float8_e5m2fnuz: 25, torch.float8_e4m3fnuz: 26,
}  # fmt: skip
"""c10::ScalarType, which is how the profiler prints a dtype argument."""


SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


STORED = "_gobrrr_stored"
"""Attribute of a fake sparse tensor: how many elements the real one stores. torch's own count of a fake one is 0."""


@cache
def dtype_word(dtype: Any) -> str:
    """torch's short name ("bfloat16")."""
    return str(dtype).removeprefix("torch.")


@cache
def schema_of(func: Any) -> tuple[str, tuple[tuple[str, Argument], ...]]:
    """(name without overload, (argument name, its default) in order) of an OpOverload."""
    schema = func._schema
    return schema.name, tuple((argument.name, _argument(argument.default_value)) for argument in schema.arguments)


def op_call(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: tuple[Tensor, ...] | None = None
) -> OpCall:
    """The call of `func` as counting rules expect it."""
    name, parameters = schema_of(func)
    count = len(args)
    inputs = tuple(
        _argument(args[place]) if place < count else (_argument(kwargs[key]) if key in kwargs else default)
        for place, (key, default) in enumerate(parameters)
    )
    if count > 1 and torch.Tag.pointwise in func.tags:
        inputs = _once(args, inputs)
    return OpCall(name=name, inputs=inputs, kernels=_unit(name, inputs), outputs=outputs)


def _once(args: tuple[Any, ...], inputs: tuple[Argument, ...]) -> tuple[Argument, ...]:
    """The inputs with an operand that stands there twice (x * x) read once: the second has stride 0 all over."""
    found = list(inputs)
    for place in range(1, min(len(args), len(found))):
        one = found[place]
        if isinstance(one, Tensor) and any(args[place] is other for other in args[:place]):
            found[place] = Tensor(one.shape, one.dtype, (0,) * len(one.shape))
    return tuple(found)


def named_call(name: str, args: tuple[Any, ...], outputs: tuple[Tensor, ...]) -> OpCall:
    """A call that was not dispatched, as if it had been: `args` in the order of its schema."""
    return OpCall(name=name, inputs=tuple(map(_argument, args)), outputs=outputs)


_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "linear", "matmul")
_CONVOLUTIONS = ("convolution", "convolution_backward", "cudnn_convolution", "_convolution")


def _unit(name: str, inputs: tuple[Argument, ...]) -> tuple[str, ...]:
    """For contractions of float32, whose kernels' names tell a trace whether TF32 was on: what the switches say."""
    word = name.removeprefix("aten::")
    if word not in _PRODUCTS and word not in _CONVOLUTIONS:
        return ()
    if not any(isinstance(one, Tensor) and one.dtype == "float32" for one in inputs):
        return ()
    backends = torch.backends
    allowed = backends.cudnn.allow_tf32 if word in _CONVOLUTIONS else backends.cuda.matmul.allow_tf32
    return ("tf32",) if allowed else ("sgemm",)


def tensor_record(value: Any) -> Tensor:
    """Shape, dtype and strides of a tensor; sparse and nested tensors have no strides."""
    try:
        strides = tuple(map(int, value.stride())) if value.layout is torch.strided else None
    except RuntimeError:
        strides = None
    stored = _stored(value) if value.layout in SPARSE else None
    return Tensor(tuple(map(int, value.shape)), dtype_word(value.dtype), strides, stored)


def _stored(value: Any) -> int:
    """How many elements a sparse tensor stores; -1: not known, as of a fake one that stands for no real one."""
    return int(getattr(value, STORED, -1)) if isinstance(value, FakeTensor) else int(value._nnz())


def _argument(value: Any) -> Argument:
    if isinstance(value, torch.Tensor):
        return tensor_record(value)
    if isinstance(value, list | tuple):
        if many_numbers(value):
            return _EMPTY
        given = [one for one in value if isinstance(one, torch.Tensor)]
        return TensorList(tuple(map(tensor_record, given))) if given else Scalar(plain_list(value))
    return _scalar(value)


def many_numbers(value: list[Any] | tuple[Any, ...]) -> bool:
    """Whether this is a list of numbers that is too long to be looked at one by one."""
    return len(value) > MOST_ITEMS and isinstance(value[0], NUMBER_TYPES)


def _scalar(value: Any) -> Scalar:
    if value is None:
        return _EMPTY
    if isinstance(value, torch.dtype):
        return Scalar(str(_SCALAR_TYPES.get(value, "")))
    return Scalar(plain_text(value) or "")  # a storage, a generator, a layout: no rule asks for it
