"""What the command line writes to: the console, progress on standard error, text and bytes on standard output."""

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
    """The terminal, or whatever stands in its place."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def progress(name: str, quiet: bool) -> ReadProgress | nullcontext[None]:
    """A bar for a file that is read; nothing where nobody looks."""
    if quiet or not sys.stderr.isatty():
        return nullcontext()
    from gobrrr.report.progress import ReadProgress
    from gobrrr.report.terminal import basename

    return ReadProgress(f"reading {basename(name)}", console(stderr=True))


def working(what: str, quiet: bool) -> AbstractContextManager[object]:
    """A sign of life while something runs whose length is not known."""
    screen = console(stderr=True)
    return nullcontext() if quiet or not screen.is_terminal else screen.status(what)


def aside(screen: TextIO | None) -> Callable[[str], None] | None:
    """Prints a line when it is another one than before, between what a script prints to the same terminal.

    None where there is no terminal. Each line begins on a fresh one: the script may be in the middle of its own.
    """
    if screen is None or screen.closed or not screen.isatty():
        return None
    last = ""

    def say(line: str) -> None:
        nonlocal last
        if line != last:
            last = line
            with suppress(OSError, ValueError):  # the terminal is gone, or the script has closed it
                screen.write(f"\n{line}\n")
                screen.flush()

    return say


def text(line: str, *, stderr: bool = False) -> None:
    """Text that is safe to print, in what the output can encode."""
    stream = sys.stderr if stderr else sys.stdout
    encoding = stream.encoding or "utf-8"
    stream.write(line.encode(encoding, "replace").decode(encoding) + "\n")


@contextmanager
def to_stderr(wanted: bool) -> Iterator[None]:
    """What is printed within the block, by child processes as well, goes to standard error, where that is wanted."""
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
    with suppress(AttributeError, OSError, ValueError):  # a script has taken it away, closed it, or its reader is gone
        sys.stdout.flush()


def raw(data: bytes) -> None:
    """Bytes as they are, after all text before them."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def json(value: object) -> None:
    """A record as indented JSON, without anybody's home folder."""
    import msgspec

    from gobrrr.system.paths import bytes_without_home

    raw(bytes_without_home(msgspec.json.format(msgspec.json.encode(value), indent=2)) + b"\n")


def names(listed: Sequence[str], as_json: bool) -> None:
    """Names, one a line or as a JSON list."""
    if as_json:
        json(listed)
    else:
        text("\n".join(listed))
