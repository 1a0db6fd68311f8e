"""What a tensor holds, as a number: equal numbers mean equal contents.

The result of an operation has a number made of the operation, its plain arguments and the numbers of the tensors that
it read; a view has its storage's, with its place in it. Nothing is compared and nothing is kept. What is random, what
torch does not know the inside of, and memory that nothing has been written to have a number of their own each time.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gobrrr.observe.live.again.leaves import UNKNOWN, Leaf, Leaves
from gobrrr.observe.static.arguments import many_numbers
from gobrrr.observe.static.memory import storage_of

KNOWN_INSIDE = ("aten::", "prims::", "torchvision::")
"""Operations of which torch says what they read and write; one of another library may keep what it likes."""
EMPTY = ("aten::empty", "aten::new_empty", "aten::_efficientzerotensor")
OVER = ("aten::copy_", "aten::fill_", "aten::zero_")
"""Operations that write every element of what they are given, whatever was there."""
STATISTICS = ("running_mean", "running_var")
"""Arguments that a batch norm in training writes, though its schema does not say so."""
DRAWN = ("aten::index", "aten::index_select", "aten::embedding", "aten::gather", "aten::take", "aten::index_put")
"""Operations that take some of the rows of their first argument."""
MOST_ROWS = 400_000

_UNIQUE = itertools.count()


class Row(NamedTuple):
    """One operation that computed something. `number`: what it computed; `needs`: bits of what that depends on.

    `read`, `made`: numbers of the storages' contents; `storages`: those that it wrote; `into`: it wrote into what was
    there; `draws`: bits of a tensor that it took rows of.
    """

    number: int
    needs: int
    read: tuple[int, ...]
    made: tuple[int, ...]
    storages: tuple[int, ...]
    into: bool
    draws: int


class _State:
    """What a storage holds now."""

    __slots__ = ("key", "leaf", "needs", "number", "ref")

    def __init__(self, storage: Any, number: int, needs: int, leaf: Leaf | None = None) -> None:
        self.key = storage._cdata if storage is not None else 0
        self.ref = StorageWeakRef(storage) if storage is not None else None
        self.number, self.needs, self.leaf = number, needs, leaf

    @property
    def gone(self) -> bool:
        """Whether its memory was given back: another one may be at its address."""
        return self.ref is None or self.ref.expired()


class Values:
    """The numbers of one look. `rows`: by the position that the caller gives an operation."""

    def __init__(self, leaves: Leaves, look: int) -> None:
        self.rows: dict[int, Row] = {}
        self._leaves, self._look = leaves, look
        self._states: dict[int, _State] = {}

    def see(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any, at: int) -> None:
        """An operation, after it ran."""
        if len(self.rows) >= MOST_ROWS:
            return
        name, written, random = _facts(func)
        read: list[_State] = []
        parts = [self._part(argument, read) for argument in args]
        parts += [(key, self._part(one, read)) for key, one in sorted(kwargs.items())]
        targets = _targets(func, written, args, kwargs)
        there = {state.key for state in read}
        made = [storage for storage in _storages(outputs) if storage[1]._cdata not in there]  # the others are views
        if not targets and not made:
            return
        apart = random and not _no_dropout(func, args, kwargs)
        apart |= name.startswith(EMPTY) or not name.startswith(KNOWN_INSIDE)
        self._put(name, parts, read, targets, made, at, unique=apart)

    def wrote(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An operation that is not looked at otherwise: what it wrote holds something else now."""
        for _, storage in _targets(func, _facts(func)[1], args, kwargs):
            self._states.pop(storage._cdata, None)
            self._leaves.wrote(storage._cdata)

    def held(self, tensor: Any) -> tuple[int, int]:
        """(the number, the bits of what it depends on) of what a tensor holds."""
        read: list[_State] = []
        number = hash(self._tensor(tensor, read))
        return number, read[0].needs

    def alive(self) -> set[int]:
        """Storages whose memory is still held."""
        return {key for key, state in self._states.items() if not state.gone}

    def _put(
        self,
        name: str,
        parts: list[Any],
        read: list[_State],
        targets: list[Any],
        made: list[Any],
        at: int,
        *,
        unique: bool,
    ) -> None:
        over = name in OVER and bool(targets) and _whole(*targets[0])
        if over:  # the first argument's own contents don't matter
            parts, read = [_geometry(targets[0][0]), *parts[1:]], read[1:]
        number = hash((name, next(_UNIQUE), "unique")) if unique else hash((name, *parts))
        needs = 0
        for one in read:
            needs |= one.needs
        left = []
        for place, (_, storage) in enumerate((*targets, *made)):
            state = hash((number, place)) if place else number
            left.append((storage._cdata, state))
            if place < len(targets):
                self._leaves.wrote(storage._cdata)
            self._states[storage._cdata] = _State(storage, state, needs)
        self.rows[at] = Row(
            number=number,
            needs=needs | (UNKNOWN if unique else 0),
            read=tuple(one.number for one in read),
            made=tuple(state for _, state in left),
            storages=tuple(key for key, _ in left),
            into=bool(targets),
            draws=read[0].needs if read and name in DRAWN else 0,
        )

    def _part(self, value: Any, read: list[_State]) -> Any:
        """What stands for an argument in a number."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value, read)
        if isinstance(value, list | tuple):
            if many_numbers(value):
                return hash(tuple(value)), "numbers"
            return tuple(self._part(one, read) for one in value)
        if isinstance(value, bool) or value is None or isinstance(value, str):
            return repr(value)
        if isinstance(value, int):
            return value if value >= 0 else ("-", -value)  # hash(-1) is hash(-2)
        return repr(value) if isinstance(value, float | complex) else _plain(value)

    def _tensor(self, tensor: Any, read: list[_State]) -> Any:
        storage = storage_of(tensor)
        if storage is None:
            read.append(_State(None, 0, UNKNOWN))
            return "unique", next(_UNIQUE)
        key = storage._cdata
        state = self._states.get(key)
        if state is None or state.gone:
            leaf = self._leaves.of(tensor, storage, self._look)
            number = self._leaves.number(leaf, tensor, storage, self._look)
            state = self._states[key] = _State(storage, number, leaf.bit, leaf)
        read.append(state)
        place = _geometry(tensor)
        if state.leaf is not None:
            state.leaf.views.setdefault(self._look, set()).add(hash(place))
        return state.number, *place


def _geometry(tensor: Any) -> tuple[Any, ...]:
    return (
        tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg(),
    )  # fmt: skip


def _whole(tensor: Any, storage: Any) -> bool:
    return bool(tensor.numel() * tensor.element_size() == storage.nbytes())


def _plain(value: Any) -> Any:
    """A dtype, a device, a layout; anything else is like nothing."""
    if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
        return str(value)
    return "unique", next(_UNIQUE)


def writes(func: Any) -> bool:
    """Whether an operation writes into what it is given."""
    return bool(_facts(func)[1])


@cache
def _facts(func: Any) -> tuple[str, tuple[tuple[int, str], ...], bool]:
    """(name, the arguments that it writes by position and name, whether it draws random numbers)."""
    schema = func._schema
    statistics = "batch_norm" in schema.name and "backward" not in schema.name
    written = tuple(
        (at, argument.name)
        for at, argument in enumerate(schema.arguments)
        if (argument.alias_info is not None and argument.alias_info.is_write)
        or (statistics and argument.name in STATISTICS)
    )
    return schema.name, written, torch.Tag.nondeterministic_seeded in func.tags


@cache
def _dropouts(func: Any) -> tuple[tuple[int, str, Any], ...]:
    given = ((at, argument) for at, argument in enumerate(func._schema.arguments))
    return tuple((at, one.name, one.default_value) for at, one in given if one.name in ("dropout_p", "dropout"))


def _no_dropout(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operation that may drop values at random was told not to."""
    found = _dropouts(func)
    values = [args[at] if at < len(args) else kwargs.get(name, default) for at, name, default in found]
    return bool(values) and all(value in (0, 0.0) for value in values)


def _targets(func: Any, written: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """(tensor, storage) of each that is written into."""
    found: list[tuple[Any, Any]] = []
    for at, name in written:
        found += _storages(args[at] if at < len(args) else kwargs.get(name))
    return found


def _storages(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, torch.Tensor):
        storage = storage_of(value)
        return [] if storage is None else [(value, storage)]
    return [pair for one in value for pair in _storages(one)] if isinstance(value, list | tuple) else []
