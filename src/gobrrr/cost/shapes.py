"""Arithmetic on shapes: elements, bytes and broadcasting. Reading of arguments is in arguments.py."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gobrrr.cost.registry import Uncounted
from gobrrr.model.work import DTYPE_BYTES, Tensor

FMA_FLOP = 2
"""FLOP of one fused multiply-add: the only place that says so."""

OPAQUE = "bytes"
"""Prefix of the stand-in for a type of which only the size is known: "bytes2"."""

_LIMIT = 2**200  # beyond any real count; keeps hostile sizes out of float arithmetic


def numel(shape: Iterable[int]) -> int:
    """Elements of a shape; () is one element. Raises Uncounted for sizes that no tensor has."""
    count = 1
    for size in shape:
        if size < 0:
            raise Uncounted(f"a negative size ({size})")
        count *= size
        if count > _LIMIT:
            raise Uncounted("sizes beyond any tensor")
    return count


def item_bytes(dtype: str) -> float:
    """Bytes an element. Raises Uncounted for an unknown type."""
    if dtype in DTYPE_BYTES:
        return DTYPE_BYTES[dtype]
    if dtype.startswith(OPAQUE) and dtype[len(OPAQUE) :].isdecimal():
        return float(dtype[len(OPAQUE) :])
    raise Uncounted(f"element type {dtype!r} is not known" if dtype else "element types are not recorded")


def stored_elements(tensor: Tensor) -> int:
    """Distinct elements of storage behind a tensor: an expanded dimension (stride 0) is read once."""
    if tensor.nnz is not None:
        return max(0, tensor.nnz)
    full = numel(tensor.shape)
    strides = tensor.strides
    if full == 0 or strides is None or len(strides) != len(tensor.shape):
        return full
    # Overlapping windows (as_strided) can't touch more than the span from the first to the last element.
    span = 1 + sum((size - 1) * abs(stride) for size, stride in zip(tensor.shape, strides, strict=True))
    dense = numel(size for size, stride in zip(tensor.shape, strides, strict=True) if stride != 0)
    return min(dense, span)


def read_bytes(*tensors: Tensor | None) -> float:
    """Bytes to read every tensor's storage once; None counts nothing."""
    return float(sum(stored_elements(tensor) * item_bytes(tensor.dtype) for tensor in tensors if tensor is not None))


def write_bytes(shape: Iterable[int], dtype: str) -> float:
    """Bytes to write a dense tensor once."""
    return numel(shape) * item_bytes(dtype)


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The common shape by NumPy's rules. Raises Uncounted when there is none."""
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(_common(sizes) for sizes in zip(*padded, strict=True))


def _common(sizes: tuple[int, ...]) -> int:
    wide = {size for size in sizes if size != 1}
    if len(wide) > 1:
        raise Uncounted(f"shapes don't broadcast (sizes {sorted(wide)})")
    return wide.pop() if wide else 1


def reduced(shape: Sequence[int], dims: Sequence[int] | None) -> tuple[int, ...]:
    """The shape after a reduction over `dims`, kept as 1 (as many elements as without keeping); None: all."""
    if not dims:
        return (1,) * len(shape)
    rank = max(len(shape), 1)
    gone = {dim % rank for dim in dims}
    return tuple(1 if index in gone else size for index, size in enumerate(shape))


def ceil_divide(value: int, by: int) -> int:
    """The quotient rounded up. Raises Uncounted for a divisor of 0."""
    if by == 0:
        raise Uncounted("a stride or group count of 0")
    return -(-value // by)


def product(values: Iterable[float]) -> float:
    """The product as a float; 1 for none."""
    return float(math.prod(values))
