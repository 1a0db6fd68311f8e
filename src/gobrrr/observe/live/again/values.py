"""Value numbering: a number for what a tensor holds. Equal numbers mean equal contents.

The result of an operation has a number made of the operation, its plain arguments and the numbers of the tensors that
it read. A view has its storage's number and its place in it. No values are compared or kept. Random results, results of
operations that torch knows nothing about, and memory that was never written get a new number each time.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gobrrr.observe.live.again.leaves import UNKNOWN_LEAF, Leaf, Leaves
from gobrrr.observe.static.arguments import many_numbers
from gobrrr.observe.static.memory import storage_of

KNOWN_INSIDE = ("aten::", "prims::", "torchvision::")
"""Operations whose schema says what they read and write; one of another library may keep state of its own."""
UNINITIALIZED = ("aten::empty", "aten::new_empty", "aten::_efficientzerotensor")
"""Operations whose result is memory that was not written."""
OVERWRITING = ("aten::copy_", "aten::fill_", "aten::zero_")
"""Operations that overwrite every element of their first argument."""
STATISTICS = ("running_mean", "running_var")
"""Arguments that a batch norm in training writes, though its schema does not say so."""
ROW_SELECTING = (
    "aten::index",
    "aten::index_select",
    "aten::embedding",
    "aten::gather",
    "aten::take",
    "aten::index_put",
)
"""Operations that take some rows of their first argument."""
MOST_NUMBERED_OPERATIONS = 400_000
"""Operations of one step that get a number: a training step of a 70B model has 20,000."""

_UNIQUE = itertools.count()
"""Numbers for what is like nothing else."""


class NumberedOperation(NamedTuple):
    """One operation that computed something. `number`: what it computed; `needs`: bits of what that depends on.

    `read`, `made`: the numbers of what it read and wrote; `storages`: those that it wrote; `into`: whether it wrote
    into an argument; `draws`: bits of a tensor that it took rows of.
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
        """Whether its memory was freed: another storage may be at its address."""
        return self.ref is None or self.ref.expired()


class ValueNumbers:
    """The numbers of one look. `rows`: by the position that the caller gives an operation."""

    def __init__(self, leaves: Leaves, look: int) -> None:
        self.rows: dict[int, NumberedOperation] = {}
        self._leaves, self._look = leaves, look
        self._states: dict[int, _State] = {}

    def see(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any, at: int) -> None:
        """An operation, after it ran."""
        if len(self.rows) >= MOST_NUMBERED_OPERATIONS:
            return
        name, written, random = _facts(func)
        read: list[_State] = []
        parts = [self._part(argument, read) for argument in args]
        parts += [(key, self._part(argument, read)) for key, argument in sorted(kwargs.items())]
        targets = _targets(written, args, kwargs)
        inputs = {state.key for state in read}
        made = [storage for storage in _storages(outputs) if storage[1]._cdata not in inputs]  # the others are views
        if not targets and not made:
            return
        unique = random and not _no_dropout(func, args, kwargs)
        unique |= name.startswith(UNINITIALIZED) or not name.startswith(KNOWN_INSIDE)
        self._put(name, parts, read, targets, made, at, unique=unique)

    def wrote(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An operation that gets no number: only what it wrote is noted as changed."""
        for _, storage in _targets(_facts(func)[1], args, kwargs):
            self._states.pop(storage._cdata, None)
            self._leaves.wrote(storage._cdata)

    def held(self, tensor: Any) -> tuple[int, int]:
        """(number, dependence bits) of what a tensor holds."""
        read: list[_State] = []
        number = hash(self._tensor(tensor, read))
        return number, read[0].needs

    def alive(self) -> set[int]:
        """The storages whose memory is not freed."""
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
        if name in OVERWRITING and targets and _whole(*targets[0]):  # the first argument's own contents don't matter
            parts, read = [_geometry(targets[0][0]), *parts[1:]], read[1:]
        number = hash((name, next(_UNIQUE), "unique")) if unique else hash((name, *parts))
        needs = 0
        for state in read:
            needs |= state.needs
        results = []
        for place, (_, storage) in enumerate((*targets, *made)):
            result = hash((number, place)) if place else number
            results.append((storage._cdata, result))
            if place < len(targets):
                self._leaves.wrote(storage._cdata)
            self._states[storage._cdata] = _State(storage, result, needs)
        self.rows[at] = NumberedOperation(
            number=number,
            needs=needs | (UNKNOWN_LEAF if unique else 0),
            read=tuple(state.number for state in read),
            made=tuple(result for _, result in results),
            storages=tuple(key for key, _ in results),
            into=bool(targets),
            draws=read[0].needs if read and name in ROW_SELECTING else 0,
        )

    def _part(self, value: Any, read: list[_State]) -> Any:
        """What of an argument goes into the number."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value, read)
        if isinstance(value, list | tuple):
            if many_numbers(value):
                return hash(tuple(value)), "numbers"
            return tuple(self._part(item, read) for item in value)
        if isinstance(value, bool) or value is None or isinstance(value, str):
            return repr(value)
        if isinstance(value, int):
            return value if value >= 0 else ("-", -value)  # hash(-1) is hash(-2)
        return repr(value) if isinstance(value, float | complex) else _plain(value)

    def _tensor(self, tensor: Any, read: list[_State]) -> Any:
        storage = storage_of(tensor)
        if storage is None:
            read.append(_State(None, 0, UNKNOWN_LEAF))
            return "unique", next(_UNIQUE)
        key = storage._cdata
        state = self._states.get(key)
        if state is None or state.gone:
            leaf = self._leaves.of(tensor, storage)
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
    """The text of a dtype, a device or a layout; anything else is like nothing."""
    if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
        return str(value)
    return "unique", next(_UNIQUE)


def writes(func: Any) -> bool:
    """Whether an operation writes into what it is given."""
    return bool(_facts(func)[1])


@cache
def _facts(func: Any) -> tuple[str, tuple[tuple[int, str], ...], bool]:
    """(name, position and name of each argument that it writes, whether it draws random numbers)."""
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
    """The position, name and default of each dropout argument."""
    return tuple(
        (at, argument.name, argument.default_value)
        for at, argument in enumerate(func._schema.arguments)
        if argument.name in ("dropout_p", "dropout")
    )


def _no_dropout(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operation with dropout was called with a dropout of 0."""
    dropouts = _dropouts(func)
    values = [args[at] if at < len(args) else kwargs.get(name, default) for at, name, default in dropouts]
    return bool(values) and all(value in (0, 0.0) for value in values)


def _targets(written: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """(tensor, storage) of each argument that is written."""
    pairs: list[tuple[Any, Any]] = []
    for at, name in written:
        pairs += _storages(args[at] if at < len(args) else kwargs.get(name))
    return pairs


def _storages(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, torch.Tensor):
        storage = storage_of(value)
        return [] if storage is None else [(value, storage)]
    return [pair for item in value for pair in _storages(item)] if isinstance(value, list | tuple) else []
