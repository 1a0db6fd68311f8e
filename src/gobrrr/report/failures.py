"""Errors that end a run, as one line on standard error; their tracebacks under --debug."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gobrrr.errors import GobrrrError
from gobrrr.guarded import LOG

INTERNAL_ERROR = 70
"""The exit status of a bug in gobrrr (EX_SOFTWARE of sysexits.h)."""


def complain(message: str, status: int) -> int:
    """Print the message on standard error, safe for a terminal and wrapped to its width; return the status."""
    from gobrrr.report.text import sanitise  # it lays text out: not for `--help`

    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    line = f"gobrrr: {sanitise(message)}".encode(encoding, "replace").decode(encoding)
    line = _wrapped(line)
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(line, file=sys.stderr)
    return status


def _wrapped(line: str) -> str:
    """A line wrapped to the width of the terminal; unchanged if standard error is not a terminal."""
    with suppress(OSError, ValueError, AttributeError):
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns
            return textwrap.fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return line


class _Tracebacks(logging.Handler):
    """Prints log records on the current standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message with its traceback."""
        print(self.format(record), file=sys.stderr)


def show_tracebacks() -> None:
    """From now on, print the tracebacks of errors in gobrrr on standard error."""
    if not tracebacks_shown():
        LOG.addHandler(_Tracebacks())
        LOG.setLevel(logging.DEBUG)


@contextmanager
def no_tracebacks_left() -> Iterator[None]:
    """Undo `show_tracebacks` after the block."""
    try:
        yield
    finally:
        for tracebacks in [handler for handler in LOG.handlers if isinstance(handler, _Tracebacks)]:
            LOG.removeHandler(tracebacks)
            LOG.setLevel(logging.NOTSET)


def tracebacks_shown() -> bool:
    """Whether tracebacks are printed."""
    return any(isinstance(handler, _Tracebacks) for handler in LOG.handlers)


def internal(error: Exception) -> int:
    """Report a bug in gobrrr, and return its exit status."""
    return complain(about(error), INTERNAL_ERROR)


def about(error: Exception) -> str:
    """One line about a bug in gobrrr: its kind, and how to see where."""
    LOG.debug("internal error", exc_info=error)
    hint = "gobrrr --debug COMMAND ... shows where; please report it"
    return f"internal error: {type(error).__name__}: {str(error)[:500]} ({hint})"


def unwritable(error: OSError) -> int:
    """Report an unexpected error of the system on a read or a write, such as a full disk; return the exit status."""
    LOG.debug("the system refused a read or a write", exc_info=error)
    with suppress(OSError, ValueError):
        close_stdout()  # what is left in its buffer would fail again at exit
    what = f"{error.filename}" if error.filename else "the output can't be written"
    return complain(f"{what}: {error.strerror or error}", GobrrrError.exit_code)


def close_stdout() -> int:
    """The reader of standard output is gone (`gobrrr ... | head`): write nothing more, and succeed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
