"""What ends a run, in one line on standard error; and the tracebacks of what failed, where they are asked for."""

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
    """Print the message, safe for a terminal and in one line unless that is narrower, and return the status."""
    from gobrrr.report.text import sanitise  # it lays text out: not for `--help`

    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    line = f"gobrrr: {sanitise(message)}".encode(encoding, "replace").decode(encoding)
    line = _wrapped(line)
    if sys.stderr is not None:  # where it is closed there is nobody to tell
        with suppress(OSError, ValueError):
            print(line, file=sys.stderr)
    return status


def _wrapped(line: str) -> str:
    """A line between words at the width of a terminal; elsewhere as it is, for whatever reads it."""
    with suppress(OSError, ValueError, AttributeError):
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns
            return textwrap.fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return line


class _Tracebacks(logging.Handler):
    """Prints what is logged on whatever standard error is then."""

    def emit(self, record: logging.LogRecord) -> None:
        """One message, with its traceback."""
        print(self.format(record), file=sys.stderr)


def show_tracebacks() -> None:
    """From here on the tracebacks of what fails in gobrrr are printed on standard error."""
    if not tracebacks_shown():
        LOG.addHandler(_Tracebacks())
        LOG.setLevel(logging.DEBUG)


@contextmanager
def no_tracebacks_left() -> Iterator[None]:
    """After the block they are printed no longer."""
    try:
        yield
    finally:
        for tracebacks in [handler for handler in LOG.handlers if isinstance(handler, _Tracebacks)]:
            LOG.removeHandler(tracebacks)
            LOG.setLevel(logging.NOTSET)


def tracebacks_shown() -> bool:
    """Whether they are printed."""
    return any(isinstance(handler, _Tracebacks) for handler in LOG.handlers)


def internal(error: Exception) -> int:
    """A bug in gobrrr."""
    return complain(about(error), INTERNAL_ERROR)


def about(error: Exception) -> str:
    """A bug in gobrrr: its kind, and how to see where."""
    LOG.debug("internal error", exc_info=error)
    hint = "gobrrr --debug COMMAND ... shows where; please report it"
    return f"internal error: {type(error).__name__}: {str(error)[:500]} ({hint})"


def unwritable(error: OSError) -> int:
    """The system refuses a read or a write that no command expects to fail: most often standard output is full."""
    LOG.debug("the system refused a read or a write", exc_info=error)
    with suppress(OSError, ValueError):
        close_stdout()  # what is left in its buffer would fail again at exit
    what = f"{error.filename}" if error.filename else "the output can't be written"
    return complain(f"{what}: {error.strerror or error}", GobrrrError.exit_code)


def close_stdout() -> int:
    """The reader is gone (`gobrrr ... | head`): what it wanted was printed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
