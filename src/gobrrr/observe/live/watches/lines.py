"""Lines of the user's own code, spelled "path/file.py(12): function"."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterable, Iterator
from traceback import FrameSummary
from types import FrameType

from gobrrr.observe.installed import is_users
from gobrrr.observe.static.sites import DEEPEST

_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+$")
"""The compiler's name for the rest of a function after a graph break."""


def function(name: str) -> str:
    """A function's name in the program's source: the compiler renames what it resumes after a graph break."""
    match = _RESUMED.match(name)
    return match[1] if match else name


def spelled(file: str, line: int | None, name: str) -> str:
    """The spelling of a line."""
    return f"{file}({line or 0}): {function(name)}"


def outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """This frame, then the frames that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's own code, from `frame` outwards."""
    for _ in range(DEEPEST):
        if frame is None or is_users(frame.f_code.co_filename):
            return frame
        frame = frame.f_back
    return None


def user_line(frame: FrameType | None) -> str | None:
    """The innermost line of the user's own code, from `frame` outwards."""
    users = user_frame(frame)
    return None if users is None else spelled(users.f_code.co_filename, users.f_lineno, users.f_code.co_name)


def of_stack(stack: Iterable[FrameSummary]) -> str | None:
    """The innermost line of the user's own code in a recorded stack, whose outermost frame comes first."""
    for summary in reversed(list(stack)):
        if is_users(summary.filename):
            return spelled(summary.filename, summary.lineno, summary.name)
    return None


def within(file: str | None, line: int | None) -> str | None:
    """A line with the function that it is in, read from the source; None where it is not the user's."""
    if not file or not line or not is_users(file):
        return None
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return spelled(file, line, "<module>")
    return spelled(file, line, function_at(tree, line))


def function_at(tree: ast.Module, line: int) -> str:
    """The name of the innermost function that holds a line; "<module>" for none."""
    name = "<module>"
    for node in ast.walk(tree):  # outer functions before those within them
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (node.end_lineno or 0):
            name = node.name
    return name
