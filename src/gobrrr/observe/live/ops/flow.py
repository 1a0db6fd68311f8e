"""Which memory each operation of a step reads and writes: which storage, and which bytes of it.

Each storage has a number of its own. A weak reference keeps its address from being given to another storage; its memory
is freed as usual.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from torch.multiprocessing.reductions import StorageWeakRef

from gobrrr.observe.static.memory import storage_of
from gobrrr.observe.static.sides import tensors_of

OVERWRITTEN = frozenset(
    (
        "copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_", "arange",
        "_foreach_copy_", "_foreach_zero_", "set_", "resize_",
    )
)  # fmt: skip
"""Operations that write all of an argument without reading it."""

PARTLY_WRITTEN = frozenset(
    ("index_put_", "_index_put_impl_", "masked_fill_", "index_fill_", "index_copy_", "scatter_", "masked_scatter_")
)
"""Operations that write some of an argument without reading it, unless they add to it."""

ANY_ARGUMENT = -1
"""Stands for each argument of an operation."""

ACCUMULATING = {
    **dict.fromkeys(
        (
            "add", "add_", "mul", "mul_", "maximum", "minimum", "logaddexp", "logical_or", "logical_and",
            "logical_or_", "logical_and_", "bitwise_or", "bitwise_and", "bitwise_or_", "bitwise_and_", "cat",
            "_foreach_add_", "_foreach_mul_",
        ),
        ANY_ARGUMENT,
    ),
    **dict.fromkeys(
        (
            "sub", "sub_", "index_add_", "index_add", "scatter_add_", "scatter_add", "scatter_reduce_", "index_put_",
            "_index_put_impl_", "index_reduce_", "addmm", "addmm_", "baddbmm", "baddbmm_", "addcmul", "addcmul_",
            "addcdiv", "addcdiv_",
        ),
        0,
    ),
}  # fmt: skip
"""Operations that may add a term to a sum from turn to turn, so that the terms can be computed at once. The value is
the argument that holds the sum so far; `ANY_ARGUMENT`: it may be each of them."""


class Region(NamedTuple):
    """Bytes of a storage from `first` up to `stop`: items of `item` bytes. `dims`: (stride in bytes, size) of each."""

    storage: int
    first: int
    stop: int
    item: int
    dims: tuple[tuple[int, int], ...]

    @property
    def bytes(self) -> int:
        """How many bytes it has."""
        return self.item * math.prod(count for _, count in self.dims)


class Read(NamedTuple):
    """A region that is read, and the argument that reads it."""

    region: Region
    argument: int


class HostRead(NamedTuple):
    """Memory that the program reads or shares without an operation, before the `at`-th operation.

    `storage`: None where it is not known which, nor what is written there. `shared`: the program may write to it from
    then on.
    """

    at: int
    storage: int | None
    shared: bool


@dataclass(frozen=True)
class Access:
    """What one operation reads and writes. `summed`: the argument that holds a sum it adds to; None for none."""

    reads: tuple[Read, ...]
    writes: tuple[Region, ...]
    covers: bool = True  # all of what is written is new
    summed: int | None = None


VIEW_ACCESS = Access((), ())
"""The access of an operation that only makes a view."""


class Flow:
    """Call `see` for each operation."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, StorageWeakRef]] = {}

    def see(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], written: list[Any]) -> Access | None:
        """What the operation reads and writes; None where that can't be told. A view reads nothing."""
        name, overload, changed = _schema(func)
        arguments = list(_arguments(args, kwargs, changed))
        if any(storage_of(tensor) is None for tensor in (*written, *(tensor for tensor, *_ in arguments))):
            return None
        inputs = {self._number(tensor) for tensor, *_ in arguments}
        made = [tensor for tensor in written if self._number(tensor) not in inputs]
        changes = [tensor for tensor, _, changing in arguments if changing]
        if written and not changes and not made:
            return VIEW_ACCESS
        adding = not _replaces(name, args, kwargs)
        ignores = "out" in overload or name in OVERWRITTEN or (name in PARTLY_WRITTEN and not adding)
        return Access(
            reads=tuple(
                Read(self._region(tensor), place)
                for tensor, place, changing in arguments
                if not (changing and ignores)  # an argument that is written without being read
            ),
            writes=tuple(map(self._region, (*changes, *made))),
            covers="out" in overload or name not in PARTLY_WRITTEN,
            summed=ACCUMULATING.get(name) if adding else None,
        )

    def storage(self, tensor: Any) -> int | None:
        """The number of a tensor's storage; None where there is none."""
        return self._number(tensor) if tensor is not None and storage_of(tensor) is not None else None

    def _number(self, tensor: Any) -> int:
        storage = storage_of(tensor)
        entry = self._known.get(storage._cdata)
        if entry is None:
            entry = self._known[storage._cdata] = len(self._known), StorageWeakRef(storage)
        return entry[0]

    def _region(self, tensor: Any) -> Region:
        item = tensor.element_size()
        dims = tuple(
            sorted(
                ((stride * item, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if stride),
                reverse=True,
            )
        )
        first = tensor.storage_offset() * item
        length = item + sum(step * (size - 1) for step, size in dims) if tensor.numel() else 0
        return Region(self._number(tensor), first, first + length, item, dims)


def overlap(region: Region, other: Region) -> bool:
    """Whether two regions of one storage share a byte; True where that is not clear."""
    if region.storage != other.storage or region.stop <= other.first or other.stop <= region.first:
        return False
    if region.item != other.item:
        return True
    sizes, other_sizes = dict(region.dims), dict(other.dims)
    if len(sizes) < len(region.dims) or len(other_sizes) < len(other.dims):
        return True
    strides = sorted({*sizes, *other_sizes}, reverse=True)
    ranges = [(stride, other_sizes.get(stride, 1) - 1, sizes.get(stride, 1) - 1) for stride in strides]
    return _reached(other.first - region.first, ranges, region.item)


def _reached(distance: int, ranges: list[tuple[int, int, int]], item: int) -> bool:
    """Whether a distance is, within less than an item, a sum of steps, each taken from -`below` to `above` times."""
    if not ranges:
        return abs(distance) < item
    step, below, above = ranges[0]
    near = distance // step
    return any(
        _reached(distance - times * step, ranges[1:], item) for times in (near, near + 1) if -below <= times <= above
    )


@lru_cache(maxsize=4096)
def _schema(func: Any) -> tuple[str, str, frozenset[int | str]]:
    """(name, overload, positions and names of the arguments that it writes)."""
    schema = func._schema
    changed: set[int | str] = set()
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            changed |= {place, argument.name}
    return schema.name.removeprefix("aten::"), schema.overload_name, frozenset(changed)


def _arguments(
    args: tuple[Any, ...], kwargs: dict[str, Any], changed: frozenset[int | str]
) -> Iterator[tuple[Any, int, bool]]:
    """Each tensor with the position of its argument, and whether it is written."""
    arguments: Iterable[tuple[int | str, Any]] = (*enumerate(args), *kwargs.items())
    for key, value in arguments:
        for tensor in tensors_of((value,)):
            yield tensor, key if isinstance(key, int) else len(args), key in changed


def _replaces(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an indexed write replaces values, and does not add to them."""
    if name not in ("index_put_", "_index_put_impl_"):
        return name in PARTLY_WRITTEN
    return not (kwargs.get("accumulate", False) or (len(args) > 3 and args[3]))
