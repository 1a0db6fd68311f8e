"""What the command line writes to: the console, progress on standard error, text and bytes on standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

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
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)


def raw(data: bytes) -> None:
    """Bytes as they are, after all text before them."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def json(value: object) -> None:
    """A record as indented JSON."""
    import msgspec

    raw(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def names(listed: Sequence[str], as_json: bool) -> None:
    """Names, one a line or as a JSON list."""
    if as_json:
        json(listed)
    else:
        text("\n".join(listed))
