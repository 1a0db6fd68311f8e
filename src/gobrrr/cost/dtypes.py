"""Element types: torch's promotion of inputs to an output type, and the type that arithmetic runs in."""

from __future__ import annotations

from collections.abc import Iterable

from gobrrr.cost.arguments import parse_number
from gobrrr.model.work import Argument, Scalar, Tensor

_INTS = ("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64")
_FLOAT_ORDER = ("float8", "float16", "float32", "float64")
"""From narrow to wide: promotion takes the widest."""
_DEFAULTS = {0: "bool", 1: "int64", 2: "float32", 3: "complex64"}  # of a Python number, by category
_HALVES = ("float16", "bfloat16", "complex32")
"""Types of 16 bits a number."""


def category(dtype: str) -> int:
    """0 bool, 1 integer, 2 floating, 3 complex; -1 unknown."""
    if dtype == "bool":
        return 0
    if dtype in _INTS or dtype.startswith(("qint", "quint")):
        return 1
    if dtype.startswith(("float", "bfloat")):
        return 2
    return 3 if dtype.startswith("complex") else -1


def promote(arguments: Iterable[Argument]) -> str:
    """The result type of a pointwise op: tensors with dimensions first, then 0-d tensors, then Python numbers.

    A lower class decides only when its category (bool < integer < floating < complex) is higher. "" when unknown.
    """
    dimensioned, zero_dimensional, scalars = "", "", ""
    for argument in arguments:
        if isinstance(argument, Tensor) and argument.shape:
            dimensioned = _wider(dimensioned, argument.dtype)
        elif isinstance(argument, Tensor):
            zero_dimensional = _wider(zero_dimensional, argument.dtype)
        elif isinstance(argument, Scalar):
            scalars = _wider(scalars, _scalar_dtype(argument.text.strip()))
    result = dimensioned
    for other in (zero_dimensional, scalars):
        if not result or category(other) > category(result) >= 0:
            result = other or result
    return result


def _scalar_dtype(printed: str) -> str:
    if parse_number(printed) is None:
        return ""
    if printed in ("True", "False"):
        return "bool"
    return _DEFAULTS[1 if printed.lstrip("+-").isdecimal() else 2]


def _wider(left: str, right: str) -> str:
    if not left or not right or left == right:
        return left or right
    if category(left) != category(right):
        return max(left, right, key=category)
    return _wider_of_one_category(left, right)


def _wider_of_one_category(left: str, right: str) -> str:
    if {left, right} == {"float16", "bfloat16"}:
        return "float32"
    if category(left) == 1:
        return max(left, right, key=lambda name: (_width(name), name.startswith("int")))
    return max(left, right, key=_width)


def _width(dtype: str) -> int:
    digits = "".join(char for char in dtype.partition("_")[0] if char.isdigit())
    return int(digits) if digits else 0


def floating(dtype: str) -> str:
    """The type of a division or a transcendental function: integers become float32, torch's default."""
    return "float32" if category(dtype) in (0, 1) else dtype


def accumulated(dtype: str) -> str:
    """The type of a sum: integers and bools become int64."""
    return "int64" if category(dtype) in (0, 1) else dtype


def arithmetic(dtype: str) -> str:
    """The type in which the vector units compute: halves are widened to float32.

    Integers count as float32 too: no device's vector units are faster with them.
    """
    return "float64" if dtype in ("float64", "complex128") else "float32"
