"""What the command line writes to: the console, progress on standard error, text and bytes on standard output."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
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


def text(line: str) -> None:
    """Text that is safe to print, in what standard output can encode."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(line.encode(encoding, "replace").decode(encoding) + "\n")


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
