"""Values that are known although no data is: what follows from constants alone (masks, positions, step counters).

A small tensor that comes from `arange`, `ones`, `tensor([...])` or integer inputs, and whatever is computed from such
tensors only, is also computed for real, so that `if mask.all():` takes the branch that it takes in truth. What depends
on weights or data has no value here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

MOST_INTEGERS = 1 << 20
MOST_FLOATS = 4_096
MOST_PLACES = 1_024
"""Elements up to which a value is followed; larger floats are data, not control."""

_WHOLE = frozenset((torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64))
_VALUE = "_gobrrr_value"
_ASSUMED = "_gobrrr_assumed"


def small(tensor: Any) -> bool:
    """Whether a value of this size is worth following."""
    most = MOST_INTEGERS if tensor.dtype in _WHOLE else MOST_FLOATS
    return bool(tensor.layout is torch.strided and tensor.numel() <= most)


@cache
def random(func: Any) -> bool:
    """Whether the operation draws numbers or leaves memory as it finds it."""
    return torch.Tag.nondeterministic_seeded in func.tags or "empty" in func._schema.name


@cache
def mutated(func: Any) -> tuple[int, ...]:
    """Positions of the arguments that the operation writes to."""
    return tuple(
        place
        for place, argument in enumerate(func._schema.arguments)
        if argument.alias_info and argument.alias_info.is_write
    )


class Values:
    """The real values behind fake tensors, as far as they are known."""

    def __init__(self) -> None:
        self._stale: set[int] = set()
        self.on_host = True  # what is made now is made on the host

    def of(self, tensor: Any) -> Any:
        """The real value of a fake tensor; None if it is not known."""
        value = getattr(tensor, _VALUE, None)
        if value is None and isinstance(tensor, FakeTensor):
            value = tensor.constant
        if value is None or value.untyped_storage()._cdata in self._stale:
            return None
        return value

    def one(self, tensor: Any) -> Any:
        """The number or bool in a tensor of one element; None if it is not known."""
        value = self.of(tensor)
        if value is None:
            return None
        with _disable_current_modes():
            return value.item()

    def keep(self, tensor: Any, value: Any) -> None:
        """Remember that `tensor` stands for `value`, if that is small."""
        if isinstance(value, torch.Tensor) and small(value):
            setattr(tensor, _VALUE, value)

    def follow(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        read: list[Any],
        outputs: Any,
        written: list[Any],
    ) -> bool:
        """Compute the operation for real where all that it reads is known. Whether it is."""
        if not written and not mutated(func):
            return False
        first = written[0] if written else read[0]
        if not small(first) and written and torch.Tag.pointwise in func.tags and not mutated(func):
            return self._repeated(func, args, kwargs, read, first)
        if (
            not small(first)
            or (random(func) and not _drawn(func, first, self.on_host))
            or any(self.of(one) is None for one in read)
        ):
            self._forget(func, args)
            return False
        computed = self._real(func, args, kwargs)
        if computed is None and written:
            self._forget(func, args)
            return False
        for fake, value in zip(_listed(outputs), _listed(computed), strict=False):
            if isinstance(fake, torch.Tensor) and isinstance(value, torch.Tensor):
                self.keep(fake, value)
        return True

    def _repeated(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], read: list[Any], made: Any) -> bool:
        """A pointwise operation on values that are each one number repeated, however many there are."""
        found = [self.of(one) for one in read]
        if any(one is None or any(one.stride()) for one in found):
            return False
        with _disable_current_modes():
            numbers = {id(one): value[(0,) * value.dim()] for one, value in zip(read, found, strict=True)}

        def number(value: Any) -> Any:
            return numbers.get(id(value), value)

        value = _compute(func, tuple(map(number, args)), {key: number(one) for key, one in kwargs.items()})
        if not isinstance(value, torch.Tensor):
            return False
        with _disable_current_modes():
            value = value.expand(tuple(made.shape))
        setattr(value, _ASSUMED, any(getattr(one, _ASSUMED, False) for one in found))
        setattr(made, _VALUE, value)
        return True

    def assume(self, func: Any, args: tuple[Any, ...], output: Any) -> None:
        """Data are finite: what asks for NaN or infinity gets no, whatever it reads. And whole numbers among them
        (tokens, labels) are not the constant that they are compared with; that is noted where it decides something.
        """
        finite = _finite(func, args)
        answer = _different(func, args) if finite is None else finite
        if answer is not None and isinstance(output, torch.Tensor) and output.layout is torch.strided:
            with _disable_current_modes():
                value = torch.tensor(answer).expand(tuple(output.shape))
            setattr(value, _ASSUMED, finite is None)
            setattr(output, _VALUE, value)

    def assumed(self, tensor: Any) -> bool:
        """Whether the known value of a tensor rests on an assumption about data."""
        return bool(getattr(self.of(tensor), _ASSUMED, False))

    def computed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A fake result of an operation whose size depends on values, where these are known; else None."""
        found = self._real(func, args, kwargs)
        if found is None or any(getattr(one, _ASSUMED, False) for one in _listed(found)):
            return None  # how much there is to do must not rest on an assumption about data

        def stand_in(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            made = _first_tensor(args).new_empty(tuple(value.shape), dtype=value.dtype)
            self.keep(made, value)
            return made

        return type(found)(map(stand_in, found)) if isinstance(found, list | tuple) else stand_in(found)

    def _real(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the operation gives for the known values; None where one of them is not known."""
        known, assumed = True, [False]
        if func._schema.name in _REDUCED and isinstance(args[0], torch.Tensor) and not small(args[0]):
            value = self.of(args[0])
            return None if value is None or any(value.stride()) else _uniform(func, args, value)

        def real(value: Any) -> Any:
            nonlocal known
            if isinstance(value, torch.Tensor):
                found = self.of(value)
                known = known and found is not None
                assumed.append(getattr(found, _ASSUMED, False))
                return found
            if isinstance(value, list | tuple):
                return type(value)(real(one) for one in value) if type(value) in (list, tuple) else value
            return torch.device("cpu") if isinstance(value, torch.device) else value

        given = tuple(real(argument) for argument in args)
        named = {key: real(one) for key, one in kwargs.items()}
        made = _compute(func, given, named) if known else None
        if any(assumed):
            for one in _listed(made):
                if isinstance(one, torch.Tensor):
                    setattr(one, _ASSUMED, True)
        return made

    def _forget(self, func: Any, args: tuple[Any, ...]) -> None:
        if func is torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default:
            return  # gradients are finite: the found_inf that it writes to stays as it is
        for place in mutated(func):
            for one in _listed(args[place]) if place < len(args) else ():
                value = getattr(one, _VALUE, None)
                if value is not None:
                    self._stale.add(value.untyped_storage()._cdata)


_REDUCED = ("aten::any", "aten::all")


def _uniform(func: Any, args: tuple[Any, ...], value: Any) -> Any:
    """`any` and `all` of one value repeated, however many there are."""
    with _disable_current_modes():
        return func(value[tuple(slice(0, 1) for _ in value.shape)], *args[1:])


def _drawn(func: Any, output: Any, on_host: bool) -> bool:
    """Whether random numbers are drawn for real: a permutation, a seed, a few places to cut data at; never data.

    Places are drawn on the host; whole numbers that are made on the device are data.
    """
    name = func._schema.name
    if "empty" in name:
        return False
    few = name == "aten::randint" and on_host and output.numel() <= MOST_PLACES
    return bool(few or name == "aten::randperm" or output.numel() == 1)


def _finite(func: Any, args: tuple[Any, ...]) -> bool | None:
    """What the operation answers everywhere for finite values; None if it doesn't ask whether they are."""
    name = str(func._schema.name)
    if name in ("aten::isnan", "aten::isinf", "aten::isposinf", "aten::isneginf"):
        return False
    if name in ("aten::eq", "aten::ne") and isinstance(args[0], torch.Tensor) and args[0].is_floating_point():
        other = args[1]
        if other is args[0]:
            return name == "aten::eq"
        if isinstance(other, float) and math.isinf(other):
            return name == "aten::ne"
    return None


def _different(func: Any, args: tuple[Any, ...]) -> bool | None:
    """False for the equality of unknown whole numbers with something else, True for `ne`; None for all else."""
    name = str(func._schema.name)
    given = [argument for argument in args[:2] if isinstance(argument, torch.Tensor)]
    if name not in ("aten::eq", "aten::ne", "aten::isin") or not given:
        return None
    whole = all(one.dtype in _WHOLE and one.dtype is not torch.bool for one in given)
    return name == "aten::ne" if whole and (len(given) < 2 or given[0] is not given[1]) else None


def _compute(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        with _disable_current_modes(), torch.no_grad():
            return func(*args, **kwargs)
    except Exception:  # a value less is no harm: whoever asks for it gets the stand-in
        return None


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _first_tensor(value: Any) -> Any:
    return next((one for one in _listed(value) if isinstance(one, torch.Tensor)), None)
