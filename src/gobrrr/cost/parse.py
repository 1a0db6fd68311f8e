"""The recorded arguments of an op, from the profiler's raw JSON. Malformed input gives what is sure, never an error."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from gobrrr.model.work import DTYPE_BYTES, Argument, Scalar, Tensor, TensorList

_SPELLINGS: dict[str, str] = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "int": "int32",
    "long": "int64", "long int": "int64", "long long": "int64", "short": "int16", "short int": "int16",
    "char": "int8", "signed char": "int8", "unsigned char": "uint8", "byte": "uint8", "bool": "bool",
    "unsigned short": "uint16", "unsigned int": "uint32", "unsigned long": "uint64",
    "complex<half>": "complex32", "complex<c10::half>": "complex32", "complexhalf": "complex32",
    "complex<float>": "complex64", "complexfloat": "complex64", "complex<double>": "complex128",
    "complexdouble": "complex128", "__nv_bfloat16": "bfloat16", "__half": "float16", "at::half": "float16",
}  # fmt: skip
LARGEST_TENSOR_ELEMENTS = 2**63 - 1
"""Torch counts elements in 64 bits with a sign."""
_NOT_TENSORS = ("scalar", "scalarlist", "genericlist", "string", "device", "none", "optional")
"""What the profiler calls arguments that are no tensors."""


def dtype_name(spelling: str) -> str:
    """torch's short name for the profiler's spelling ("c10::BFloat16" -> "bfloat16"); "" when there is none."""
    short = spelling.strip().lower()
    for prefix in ("c10::", "at::", "torch.", "const "):
        short = short.removeprefix(prefix)
    if short in _SPELLINGS:
        return _SPELLINGS[short]
    return short if short in DTYPE_BYTES else ""


def parse_inputs(
    dims: bytes | None, types: bytes | None, strides: bytes | None, concrete: bytes | None
) -> tuple[Argument, ...]:
    """The arguments behind "Input Dims", "Input type", "Input Strides" and "Concrete Inputs", each raw JSON or None.

    Traces of 2021 record sizes only: then a tensor's `dtype` is "", and what has no size is a Scalar. Sizes that no
    tensor can have (negative, or more elements than 64 bits count) leave the call without arguments.
    """
    sizes, kinds = _list(dims), _list(types)
    steps, printed = _list(strides), _list(concrete)
    count = max(len(sizes), len(kinds))
    given = tuple(_argument(_at(sizes, i), _at(kinds, i), _at(steps, i), _at(printed, i)) for i in range(count))
    return () if any(map(_impossible, given)) else given


def _impossible(value: Argument) -> bool:
    """Whether no tensor can have these sizes: what else this record says is not to be trusted either."""
    items = value.items if isinstance(value, TensorList) else (value,)
    return any(isinstance(item, Tensor) and not _possible(item.shape) for item in items)


def _possible(shape: tuple[int, ...]) -> bool:
    """torch keeps sizes and the number of elements in 64 bits with a sign."""
    return all(0 <= size <= LARGEST_TENSOR_ELEMENTS for size in shape) and math.prod(shape) <= LARGEST_TENSOR_ELEMENTS


def _list(raw: bytes | None) -> list[Any]:
    if not raw:
        return []
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return value if isinstance(value, list) else []


def _at(values: list[Any], index: int) -> Any:
    return values[index] if index < len(values) else None


def _argument(sizes: Any, kind: Any, strides: Any, printed: Any) -> Argument:
    name = kind if isinstance(kind, str) else ""
    if name == "TensorList" or _is_nested(sizes):
        return _tensor_list(sizes, kind, strides)
    shape = _ints(sizes)
    if shape is None or name.lower() in _NOT_TENSORS or (not shape and not dtype_name(name)):
        return Scalar(_text(printed))
    return Tensor(shape, dtype_name(name), _strides(strides, shape))


def _is_nested(sizes: Any) -> bool:
    return isinstance(sizes, list) and bool(sizes) and all(isinstance(size, list) for size in sizes)


def _tensor_list(sizes: Any, kinds: Any, strides: Any) -> TensorList:
    """The profiler says "TensorList" and no more; a list of types, one an item, is what the static door knows."""
    shapes = [_ints(size) for size in sizes] if _is_nested(sizes) else []
    steps = strides if isinstance(strides, list) else []
    each = [kind if isinstance(kind, str) else "" for kind in kinds] if isinstance(kinds, list) else []
    items = [
        Tensor(shape, dtype_name(_at(each, i) or ""), _strides(_at(steps, i), shape))
        for i, shape in enumerate(shapes)
        if shape is not None
    ]
    return TensorList(tuple(items))


def parse_outputs(given: Any) -> tuple[Tensor, ...] | None:
    """What the static door records of a call's results: [[sizes, type, strides], ...]; None where there is nothing."""
    if not isinstance(given, list):
        return None
    found = []
    for entry in given:
        shape = _ints(_at(entry, 0)) if isinstance(entry, list) else None
        if shape is None or not _possible(shape):
            return None
        kind = _at(entry, 1)
        found.append(Tensor(shape, dtype_name(kind) if isinstance(kind, str) else "", _strides(_at(entry, 2), shape)))
    return tuple(found)


def _ints(values: Any) -> tuple[int, ...] | None:
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        return None
    return tuple(values)


def _strides(values: Any, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    steps = _ints(values)
    if steps is None or not shape or len(steps) != len(shape):
        return None
    return steps if all(0 <= step <= LARGEST_TENSOR_ELEMENTS for step in steps) else None


def _text(printed: Any) -> str:
    if isinstance(printed, str):
        return printed
    return "" if printed is None else str(printed)
