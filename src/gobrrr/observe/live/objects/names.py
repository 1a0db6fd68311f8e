"""The program's name for an object: the variable of a frame, or the attribute of its `self`, that holds it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from gobrrr.observe.installed import is_users
from gobrrr.observe.static.sites import DEEPEST

_PULL = str(Path(__file__).resolve().parents[1] / "pull.py")
"""Calls a step that was handed over: what is around that is no part of the program."""

_NAME = re.compile(r"(?!_+\d*$)[A-Za-z_]\w*")
"""A variable's name; not "_" or "_12", which an interactive shell gives to results."""


class Named(NamedTuple):
    """A name, and the frame in which it is one."""

    name: str
    frame: FrameType


class Around(NamedTuple):
    """The user's frames around a call, outermost first. `pulled`: the outermost one was called as the whole step."""

    frames: tuple[FrameType, ...]
    pulled: bool


def around(frame: FrameType | None) -> Around:
    """The user's frames from `frame` outwards."""
    frames = []
    for _ in range(DEEPEST):
        if frame is None or frame.f_code.co_filename == _PULL:
            break
        if is_users(frame.f_code.co_filename):
            frames.append(frame)
        frame = frame.f_back
    return Around(tuple(reversed(frames)), frame is not None and frame.f_code.co_filename == _PULL)


def named(frames: tuple[FrameType, ...], meant: Callable[[Any], bool]) -> Named | None:
    """The name of the object for which `meant` is true, in the first frame that has one.

    In a frame its variables are searched first, then the attributes of its `self`, then its globals.
    """
    for frame in frames:
        for prefix, namespace in _namespaces(frame):
            for name, value in list(namespace.items()):
                if isinstance(name, str) and _NAME.fullmatch(name) and meant(value):
                    return Named(prefix + name, frame)
    return None


def _namespaces(frame: FrameType) -> Iterator[tuple[str, Mapping[str, Any]]]:
    variables = frame.f_locals
    yield "", variables
    own_self = variables.get("self")
    attributes = getattr(own_self, "__dict__", None) if own_self is not None else None
    if isinstance(attributes, dict):
        yield "self.", attributes
        modules = attributes.get("_modules")  # where torch keeps the modules of a module
        if isinstance(modules, dict):
            yield "self.", modules
    if variables is not frame.f_globals:
        yield "", frame.f_globals
