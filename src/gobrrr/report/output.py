"""Output of the command line: the console, progress on standard error, text and bytes on standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

    from gobrrr.report.progress import ReadProgress


def console(*, stderr: bool = False) -> Console:
    """The console on standard output or standard error."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def progress(name: str, quiet: bool) -> ReadProgress | nullcontext[None]:
    """A progress bar for reading a file; none if standard error is not a terminal."""
    if quiet or not sys.stderr.isatty():
        return nullcontext()
    from gobrrr.report.progress import ReadProgress
    from gobrrr.report.terminal import basename

    return ReadProgress(f"reading {basename(name)}", console(stderr=True))


def working(what: str, quiet: bool) -> AbstractContextManager[object]:
    """A spinner while something of unknown length runs."""
    screen = console(stderr=True)
    return nullcontext() if quiet or not screen.is_terminal else screen.status(what)


def aside(screen: TextIO | None) -> Callable[[str], None] | None:
    """A function that prints a line, unless it repeats the last, between the script's own output on a terminal.

    None if `screen` is not a terminal. A newline goes first: the script may be in the middle of a line.
    """
    if screen is None or screen.closed or not screen.isatty():
        return None
    last = ""

    def say(line: str) -> None:
        nonlocal last
        if line != last:
            last = line
            with suppress(OSError, ValueError):  # the terminal is gone, or the script closed it
                screen.write(f"\n{line}\n")
                screen.flush()

    return say


def text(line: str, *, stderr: bool = False) -> None:
    """Write a line; characters that the output can't encode are replaced."""
    stream = sys.stderr if stderr else sys.stdout
    encoding = stream.encoding or "utf-8"
    stream.write(line.encode(encoding, "replace").decode(encoding) + "\n")


@contextmanager
def to_stderr(wanted: bool) -> Iterator[None]:
    """If `wanted`, send what is printed within the block, also by child processes, to standard error."""
    if not wanted:
        yield
        return
    _flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        _flush()
        os.dup2(saved, 1)
        os.close(saved)


def _flush() -> None:
    with suppress(AttributeError, OSError, ValueError):  # the script removed or closed it, or its reader is gone
        sys.stdout.flush()


def raw(data: bytes) -> None:
    """Write bytes to standard output, after earlier text."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def json(value: object) -> None:
    """Write a record as indented JSON, without the user's home folder in paths."""
    import msgspec

    from gobrrr.system.paths import bytes_without_home

    raw(bytes_without_home(msgspec.json.format(msgspec.json.encode(value), indent=2)) + b"\n")


def names(listed: Sequence[str], as_json: bool) -> None:
    """Write names, one per line or as a JSON list."""
    if as_json:
        json(listed)
    else:
        text("\n".join(listed))
