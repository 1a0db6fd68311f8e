"""What ends a run, in one line on standard error."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from gobrrr.errors import GobrrrError

INTERNAL_ERROR = 70
"""The exit status of a bug in gobrrr (EX_SOFTWARE of sysexits.h)."""
TRACEBACK = "GOBRRR_TRACEBACK"


def complain(message: str, status: int) -> int:
    """Print the message in one line that is safe for a terminal, and return the status."""
    from gobrrr.report.text import sanitise  # it lays text out: not for `--help`

    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    print(f"gobrrr: {sanitise(message)}".encode(encoding, "replace").decode(encoding), file=sys.stderr)
    return status


def traceback_if_wanted(error: BaseException) -> None:
    """The traceback, where the environment asks for it."""
    if os.environ.get(TRACEBACK):
        import traceback

        traceback.print_exception(error)


def internal(error: Exception) -> int:
    """A bug in gobrrr: its kind, and how to see where."""
    traceback_if_wanted(error)
    kind = type(error).__name__
    hint = f"set {TRACEBACK}=1 to see where, and please report it"
    return complain(f"internal error: {kind}: {str(error)[:500]} ({hint})", INTERNAL_ERROR)


def unwritable(error: OSError) -> int:
    """The system refuses a read or a write that no command expects to fail: most often standard output is full."""
    traceback_if_wanted(error)
    with suppress(OSError, ValueError):
        close_stdout()  # what is left in its buffer would fail again at exit
    what = f"{error.filename}" if error.filename else "the output can't be written"
    return complain(f"{what}: {error.strerror or error}", GobrrrError.exit_code)


def close_stdout() -> int:
    """The reader is gone (`gobrrr ... | head`): what it wanted was printed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
