"""Puts back what containers, attributes, names and closures held: in place, and only where it has changed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from operator import is_
from typing import Any

Undo = Callable[[], None]
"""Puts something back as it was when this function was made."""

CONTAINERS = (list, dict, set, deque)
MOST_HELD = 10_000
"""Entries of one container that are remembered; chosen. A longer list is only cut back to its length."""


def put_back(container: Any) -> Undo | None:
    """Puts a container's entries back; None where there are too many to remember."""
    if len(container) > MOST_HELD:
        return _shortened(container, len(container)) if isinstance(container, list) else None
    if isinstance(container, dict):
        return _same_items(container, dict(container))
    before = list(container)

    def undo() -> None:
        if len(container) == len(before) and all(map(is_, container, before)):
            return
        if isinstance(container, list):
            container[:] = before
        else:
            container.clear()
            (container.update if isinstance(container, set) else container.extend)(before)

    return undo


def attributes_back(owner: Any, leave: frozenset[str]) -> Undo:
    """Puts an object's own attributes back, except those to `leave` alone."""
    attributes = vars(owner)
    before = {name: value for name, value in attributes.items() if name not in leave}

    def undo() -> None:
        for name in [name for name in attributes if name not in before and name not in leave]:
            del attributes[name]
        rebind(attributes, before)

    return undo


def rebind(names: dict[Any, Any], before: Mapping[Any, Any]) -> None:
    """Gives each name of `before` its value back; sets none that still has it, since a compiler may watch it."""
    for name, value in before.items():
        if name not in names or names[name] is not value:
            names[name] = value


def name_back(names: dict[str, Any], name: str) -> Undo:
    """Puts one global name of a module back."""
    before = {name: names[name]}
    return lambda: rebind(names, before)


def generator_back(generator: Any) -> Undo | None:
    """Puts the state of a random generator of Python or NumPy back; None where the system draws its numbers."""
    if hasattr(type(generator), "bit_generator"):
        state = generator.bit_generator.state
        return lambda: setattr(generator.bit_generator, "state", state)
    try:
        position = generator.getstate()
    except NotImplementedError:
        return None
    return lambda: generator.setstate(position)


def cell_back(cell: Any, value: Any) -> Undo:
    """Puts the value of a closure's variable back."""

    def undo() -> None:
        if cell.cell_contents is not value:
            cell.cell_contents = value

    return undo


def same_items(now: Mapping[Any, Any], before: Mapping[Any, Any]) -> bool:
    """Whether two mappings hold the same objects under the same keys in the same order."""
    return len(now) == len(before) and all(
        key is other or key == other for key, other in zip(now, before, strict=True)
    ) and all(map(is_, now.values(), before.values()))  # fmt: skip


def _same_items(container: dict[Any, Any], before: dict[Any, Any]) -> Undo:
    def undo() -> None:
        if same_items(container, before):
            return  # a compiler may watch it
        container.clear()
        container.update(before)

    return undo


def _shortened(container: list[Any], length: int) -> Undo:
    def undo() -> None:
        del container[length:]

    return undo
