"""Operations whose shape function in torch asks for more than shapes: those that refuse a dtype or a device here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _grouped_mm(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Matrices in groups along a dimension that `offs` cuts up: [M, K] x [G, K, N], [G, M, K] x [K, N], and so on.

    torch's own shape function takes bfloat16 alone (2.13); the kernel behind it falls back for other dtypes.
    """
    left, right = args[0], args[1]
    offsets = args[2] if len(args) > 2 else kwargs.get("offs")
    groups = offsets.shape[0] if offsets is not None else None
    shape = _grouped_shape(tuple(left.shape), tuple(right.shape), groups)
    dtype = args[4] if len(args) > 4 else kwargs.get("out_dtype")
    return left.new_empty(shape, dtype=dtype or left.dtype)


def _grouped_shape(left: tuple[int, ...], right: tuple[int, ...], groups: int | None) -> tuple[int, ...]:
    if len(left) == 2 and len(right) == 2:
        if groups is None:
            raise RuntimeError("grouped_mm of two matrices needs offs")
        return groups, left[0], right[1]
    if len(left) == 3 and len(right) == 3:
        return left[0], left[1], right[2]
    if len(left) == 2:
        return left[0], right[2]
    return left[1], right[1]


def _histc(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """[bins]. torch's own shape function refuses integers for a device that is, here, the CPU's."""
    bins = args[1] if len(args) > 1 else kwargs.get("bins", 100)
    return args[0].new_empty((bins,))


REPLACED: dict[str, Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]] = {
    "aten::_grouped_mm": _grouped_mm,
    "aten::histc": _histc,
}
"""By the operation's name: what stands in for it under fake tensors."""
