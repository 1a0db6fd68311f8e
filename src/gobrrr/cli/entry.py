"""The root command, and how errors become exit statuses."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from gobrrr.cli.begun import BEGUN
from gobrrr.cli.options import Debug, app
from gobrrr.errors import GobrrrError, UsageError
from gobrrr.report import failures, output

INTERRUPTED = 130
"""The exit status after an interrupt: 128 + SIGINT, as a shell gives it."""

_NO_NUMBER = re.compile(
    r"Invalid value for .?(?P<option>-[-\w]+).*\bvalid (?P<kind>float|int|number)\w*\b.*", re.DOTALL
)
"""The parser's message for a value that is not a number."""


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    debug: Debug = False,
) -> None:
    """Say what a PyTorch step is bound by (compute, memory bandwidth or overhead), from a profiler trace,
    find the causes, and predict what each remedy would save.

    Four commands to try first:

    \b
      gobrrr demo                     the answers for traces that gobrrr ships
      gobrrr diagnose trace.json.gz   the answer for a trace of yours
      gobrrr explain O01              what a code in an answer means
      gobrrr predict --example        a step to predict on GPUs that are not here
    """
    if version:
        import gobrrr

        output.text(f"gobrrr {gobrrr.__version__}")
    elif context.invoked_subcommand is None:
        output.text(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; it raises nothing.

    0: done. 2: the input, the call or the output can't be used; one line on standard error says why. 70: a bug in
    gobrrr; one line, and the traceback under --debug. 130: interrupted.
    """
    with failures.no_tracebacks_left():
        return _status(arguments)


def _status(arguments: Sequence[str] | None) -> int:
    try:
        status = _run(sys.argv[1:], BEGUN) if arguments is None else _run(arguments, time.monotonic())
        sys.stdout.flush()
    except GobrrrError as error:
        return failures.complain(str(error), error.exit_code)
    except BrokenPipeError:
        return failures.close_stdout()
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except OSError as error:
        return failures.unwritable(error)
    except Exception as error:
        return failures.internal(error)
    return status


@cache
def _command() -> Any:
    """The parser of the command line, built once: building it takes longer than most calls."""
    return typer.main.get_command(app)


def _run(arguments: Sequence[str], begun: float) -> int:
    """Run a command; its context holds the time at which the process began."""
    # The parser's own main() would print usage errors in several lines and swallow interrupts and broken pipes.
    command = _command()
    try:
        with command.make_context("gobrrr", list(arguments), obj=begun) as context:
            command.invoke(context)
    except typer.Exit as done:
        return int(done.exit_code)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        if arguments and arguments[0] not in getattr(command, "commands", ()) and Path(arguments[0]).is_file():
            raise UsageError(f"no such command; to diagnose a trace: gobrrr diagnose {arguments[0]}") from None
        where = getattr(getattr(error, "ctx", None), "command_path", "gobrrr")
        raise UsageError(f"{_message(error).rstrip('.')}; see: {where} --help") from None
    return 0


def _message(error: Any) -> str:
    """The parser's message for a wrong call; reworded where a value is not a number."""
    message = str(error.format_message())
    match = _NO_NUMBER.fullmatch(message)
    if match is None:
        return message
    unit = " of seconds" if getattr(getattr(error, "param", None), "metavar", "") == "SECONDS" else ""
    return f"{match['option']} takes a {'whole number' if match['kind'] == 'int' else 'number'}{unit}"
