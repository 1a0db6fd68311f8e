"""The library's functions for treating, which the subcommands call. They import the machinery when called."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gobrrr.doors.targets import check_step, check_target, names_a_step
from gobrrr.errors import UsageError
from gobrrr.model.plain import plain_text
from gobrrr.report.text import sanitise

if TYPE_CHECKING:
    from gobrrr.model.diagnosis import Diagnosis
    from gobrrr.model.treated import LedgerErrors, Treated
    from gobrrr.model.workload import Workload
    from gobrrr.trials.pace import Stages


MOST_ARGUMENT_CHARACTERS, MOST_ARGUMENT_ITEMS = 40, 4
"""Characters of a wrong argument, and items of a list, that an error message shows at most."""


def treat(
    workload: Workload | Callable[..., Any] | str,
    *,
    budget: float = 300.0,
    only: Sequence[str] = (),
    without: Sequence[str] = (),
    ledger: str | os.PathLike[str] | None = None,
    again: bool = False,
    dry_run: bool = False,
    limit: float | None = None,
    stages: Stages | None = None,
    since: float | None = None,
) -> Treated:
    """Diagnose a step, try the ways with the largest predicted savings, keep what helps; print the result for the
    table.

    `workload`: a Workload, a callable that returns one or runs a step, or the name of such a callable,
    "file.py:callable". A named one runs in a process of its own, so that a trial that crashes or hangs ends nothing
    else. The workload is restored afterwards; `result.code` is the code to paste.

    `budget`: seconds for everything, including the diagnosis, counted from `since` (a time of time.monotonic(); now if
    None). `only` and `without` name ways or treatments. Trials are stored in `ledger` (a folder; default: the user's
    cache), and are not run twice unless `again`. `dry_run`: only the order and the predictions; nothing is applied.
    `limit`: seconds of silence after which a trial is ended. An interrupt ends the search and returns what is known so
    far. Raises UsageError or InputError where there is nothing to treat.
    """
    from gobrrr.trials.choosing import SearchOptions
    from gobrrr.trials.treat import treat as run

    for name, value in (("budget", budget), ("limit", limit)):
        if value is not None or name == "budget":
            _check_seconds(name, value)
    options = SearchOptions(
        budget_s=budget, only=_listed("only", only), without=_listed("without", without), again=again, dry_run=dry_run,
    )  # fmt: skip
    where = _folder("ledger", ledger)
    if isinstance(workload, str) and not names_a_step(workload):
        check_step(workload)
        check_target(workload)
        raise UsageError(f"{sanitise(workload)} is not a step: name a step as file.py:callable")
    return run(workload, options, ledger=where, limit_s=limit, stages=stages, begun=since)


def _check_seconds(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise UsageError(f"{name} is a number of seconds above 0, not {_shown(value)}")


def _listed(name: str, names: Any) -> tuple[str, ...]:
    """One name, or several, as a tuple."""
    if isinstance(names, str):
        return (names,)
    found = tuple(names) if isinstance(names, Iterable) else (None,)
    if all(isinstance(item, str) for item in found):
        return found
    raise UsageError(f"{name} is a list of names, not {_shown(names)}")


def _shown(value: Any) -> str:
    """A wrong argument in a message: its value where that is plain, else its type."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        more = ", ..." if len(value) > MOST_ARGUMENT_ITEMS else ""
        return f"[{', '.join(map(_shown, value[:MOST_ARGUMENT_ITEMS]))}{more}]"
    text = plain_text(value)
    if text is None:
        return f"an object of type {type(value).__name__}"
    return repr(text[:MOST_ARGUMENT_CHARACTERS]) if isinstance(value, str) else text[:MOST_ARGUMENT_CHARACTERS]


def _folder(name: str, value: Any) -> Path | None:
    if value is None:
        return None
    if not isinstance(value, str | bytes | os.PathLike):
        raise UsageError(f"{name} is a folder, not {_shown(value)}")
    return Path(os.fsdecode(value))


def diagnosis_of(treated: Treated) -> Diagnosis:
    """The diagnosis before treating, with the trials filled in: for `save` and `html`."""
    from gobrrr.trials.treat import diagnosis_of as made

    return made(treated)


def ledger(folder: str | os.PathLike[str] | None = None) -> LedgerErrors:
    """How far predicted savings were from measured ones, by treatment, for the trials in a folder.

    `folder` None: the user's cache. Raises UsageError where it can't be read.
    """
    from gobrrr.model.treated import LedgerErrors
    from gobrrr.trials.ledger import Ledger

    where = _folder("folder", folder)
    if where is not None and where.exists() and not where.is_dir():
        raise UsageError(f"{sanitise(str(where))}: is not a folder; a ledger keeps its trials as files in a folder")
    book = Ledger.open(where)
    rows = tuple(book.errors_by_treatment())
    trials, notes = len(book.records), tuple(book.notes)
    repeated = trials - sum(row.trials for row in rows)
    return LedgerErrors(folder=str(book.where), trials=trials, errors=rows, repeated=repeated, notes=notes)
