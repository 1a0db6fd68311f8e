"""What plain containers and attributes hold, and how it is put back: in place, and only where it is something else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from operator import is_
from typing import Any

Undo = Callable[[], None]

CONTAINERS = (list, dict, set, deque)
MOST_HELD = 10_000
"""Entries of one container that are remembered. Of a longer list only its length is: what was appended is taken off."""


def put_back(place: Any) -> Undo | None:
    """Makes a container hold what it holds now, when called; None where it is too large to be remembered."""
    if len(place) > MOST_HELD:
        return _shortened(place, len(place)) if isinstance(place, list) else None
    if isinstance(place, dict):
        return _same_items(place, dict(place))
    before = list(place)

    def undo() -> None:
        if len(place) == len(before) and all(map(is_, place, before)):
            return
        if isinstance(place, list):
            place[:] = before
        else:
            place.clear()
            (place.update if isinstance(place, set) else place.extend)(before)

    return undo


def attributes_back(owner: Any, leave: frozenset[str]) -> Undo:
    """Binds an object's own attributes to what they are bound to now, but for those to `leave` alone."""
    place = vars(owner)
    before = {name: one for name, one in place.items() if name not in leave}

    def undo() -> None:
        for name in [name for name in place if name not in before and name not in leave]:
            del place[name]
        for name, value in before.items():
            if name not in place or place[name] is not value:
                place[name] = value

    return undo


def name_back(place: dict[str, Any], name: str) -> Undo:
    """Binds one name of a module to what it is bound to now."""
    value = place[name]

    def undo() -> None:
        if place.get(name) is not value:
            place[name] = value

    return undo


def dice_back(dice: Any) -> Undo | None:
    """Puts a generator of Python's or NumPy's back to where it is now; None where the system draws its numbers."""
    if hasattr(type(dice), "bit_generator"):
        state = dice.bit_generator.state
        return lambda: setattr(dice.bit_generator, "state", state)
    try:
        position = dice.getstate()
    except NotImplementedError:
        return None
    return lambda: dice.setstate(position)


def cell_back(cell: Any, value: Any) -> Undo:
    """Puts a value back into the variable of a closure."""

    def undo() -> None:
        if cell.cell_contents is not value:
            cell.cell_contents = value

    return undo


def same_items(place: Mapping[Any, Any], before: Mapping[Any, Any]) -> bool:
    """Whether a dictionary holds the same objects under the same keys in the same order."""
    return len(place) == len(before) and all(
        key is other or key == other for key, other in zip(place, before, strict=True)
    ) and all(map(is_, place.values(), before.values()))  # fmt: skip


def _same_items(place: dict[Any, Any], before: dict[Any, Any]) -> Undo:
    def undo() -> None:
        if same_items(place, before):
            return  # a compiler may watch it
        place.clear()
        place.update(before)

    return undo


def _shortened(place: list[Any], length: int) -> Undo:
    def undo() -> None:
        if len(place) > length:
            del place[length:]

    return undo
