"""Reading an OpCall's arguments: what isn't recorded is None, what a rule can't do without raises Uncounted."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gobrrr.cost.registry import Uncounted
from gobrrr.model.work import DTYPE_BYTES, Argument, OpCall, Scalar, Tensor, TensorList

DTYPE_CODES: dict[int, str] = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64",
    8: "complex32", 9: "complex64", 10: "complex128", 11: "bool", 12: "qint8", 13: "quint8", 14: "qint32",
    15: "bfloat16", 23: "float8_e5m2", 24: "float8_e4m3fn", 25: "float8_e5m2fnuz", 26: "float8_e4m3fnuz",
    27: "uint16", 28: "uint32", 29: "uint64", 44: "float8_e8m0fnu", 45: "float4_e2m1fn_x2",
}  # fmt: skip
"""c10::ScalarType, which is how the profiler prints a `dtype` argument."""


def argument(call: OpCall, index: int) -> Argument | None:
    """The argument at a position of the op's schema, or None when fewer are recorded."""
    return call.inputs[index] if 0 <= index < len(call.inputs) else None


def maybe_tensor(call: OpCall, index: int) -> Tensor | None:
    """The tensor at a position, or None when there is none."""
    value = argument(call, index)
    return value if isinstance(value, Tensor) else None


def tensor(call: OpCall, index: int, rank: int | None = None) -> Tensor:
    """The tensor at a position. Raises Uncounted when it isn't one, or hasn't the rank."""
    value = maybe_tensor(call, index)
    if value is None:
        raise Uncounted("shapes are not recorded" if not call.inputs else f"argument {index} is not a recorded tensor")
    if rank is not None and len(value.shape) != rank:
        raise Uncounted(f"argument {index} has {len(value.shape)} dimensions instead of {rank}")
    return value


def tensor_list(call: OpCall, index: int) -> tuple[Tensor, ...]:
    """The tensors of the list at a position. Raises Uncounted for an empty one: the profiler drops long lists."""
    value = argument(call, index)
    if not isinstance(value, TensorList) or not value.items:
        raise Uncounted("the tensor list is not recorded (the profiler drops lists of more than 30)")
    return value.items


def tensors(call: OpCall) -> Iterator[Tensor]:
    """Every tensor, those in lists too."""
    for value in call.inputs:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, TensorList):
            yield from value.items


def text(call: OpCall, index: int) -> str:
    """What the profiler printed of a scalar; "" when it didn't."""
    value = argument(call, index)
    return value.text.strip() if isinstance(value, Scalar) else ""


def integer(call: OpCall, index: int) -> int | None:
    """A scalar as an int, or None."""
    value = number(call, index)
    return int(value) if value is not None and math.isfinite(value) else None


def number(call: OpCall, index: int) -> float | None:
    """A scalar as a float (infinities included), or None."""
    return parse_number(text(call, index))


def parse_number(printed: str) -> float | None:
    """A printed number, True and False included, or None."""
    if printed in ("True", "False"):
        return float(printed == "True")
    try:
        value = float(printed)
    except ValueError:
        return None
    return None if math.isnan(value) else value


def flag(call: OpCall, index: int) -> bool | None:
    """A scalar as a bool, or None."""
    printed = text(call, index).lower()
    return {"true": True, "1": True, "false": False, "0": False}.get(printed)


def flags(call: OpCall, index: int) -> tuple[bool, ...] | None:
    """A list of bools ("[True, False]"), or None."""
    values = numbers(call, index)
    return None if values is None else tuple(bool(value) for value in values)


def is_list(call: OpCall, index: int) -> bool:
    """Whether a scalar was printed as a list ("[1]"), which tells overloads apart."""
    return text(call, index).startswith(("[", "("))


def integers(call: OpCall, index: int) -> tuple[int, ...] | None:
    """A list of ints ("[1, 1]"; a single int is a list of one), or None when not recorded."""
    values = numbers(call, index)
    if values is None or not all(math.isfinite(value) for value in values):
        return None
    return tuple(int(value) for value in values)


def numbers(call: OpCall, index: int) -> tuple[float, ...] | None:
    """A list of numbers, or None when not recorded or not a list of numbers."""
    printed = text(call, index)
    if not printed:
        return None
    parts = [part.strip() for part in printed.strip("[]()").split(",") if part.strip()]
    values = [parse_number(part) for part in parts]
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else None


def dtype(call: OpCall, index: int) -> str | None:
    """A dtype argument (printed as its code, or spelled as torch does), or None."""
    code = integer(call, index)
    if code is not None:
        return DTYPE_CODES.get(code)
    name = text(call, index).removeprefix("torch.")
    return name if name in DTYPE_BYTES else None
