"""The library's words for treating: what the subcommands call. Machinery is imported when it is called."""

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

    Stages = Callable[[str, int, int], None]


SHOWN, MOST_SHOWN = 40, 4
"""Characters of a wrong argument, and items of a list."""


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
    """Diagnose a step, try what is predicted to save most, keep what helps; printing the result prints the table.

    `workload`: a Workload, a callable that returns one or runs a step, or the name of such a callable,
    "file.py:callable". A named one runs in a process of its own, so that a trial that crashes or hangs ends alone.
    Everything is as it was afterwards; `result.code` is what to paste.

    `budget`: seconds that all of it may take, the diagnosis too, counted from `since` (a time of time.monotonic(); now
    if None). `only` and `without` name ways or treatments. Trials are kept in `ledger` (a folder; the user's cache),
    and are not run twice unless `again`. `dry_run`: the order and the predictions, with nothing applied. `limit`:
    seconds of silence after which a trial is ended. An interrupt ends the search, and what is known so far is returned.
    Raises UsageError or InputError where there is nothing to treat.
    """
    from gobrrr.trials.choosing import Options
    from gobrrr.trials.treat import treat as run

    for name, value in (("budget", budget), ("limit", limit)):
        if value is not None or name == "budget":
            _check_seconds(name, value)
    options = Options(
        budget_s=budget, only=_listed("only", only), without=_listed("without", without), again=again, dry_run=dry_run,
    )  # fmt: skip
    where = _folder("ledger", ledger)
    if isinstance(workload, str) and not names_a_step(workload):
        check_step(workload)
        check_target(workload)
        raise UsageError(f"{sanitise(workload)} is no step: a step to treat is named file.py:callable")
    return run(workload, options, ledger=where, limit_s=limit, stages=stages, begun=since)


def _check_seconds(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise UsageError(f"{name} is a number of seconds above 0, not {_shown(value)}")


def _listed(name: str, names: Any) -> tuple[str, ...]:
    """One name or several."""
    if isinstance(names, str):
        return (names,)
    found = tuple(names) if isinstance(names, Iterable) else (None,)
    if all(isinstance(one, str) for one in found):
        return found
    raise UsageError(f"{name} is a list of names, not {_shown(names)}")


def _shown(value: Any) -> str:
    """What was given, where its text is short and nobody's own; else of what type it is."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        more = ", ..." if len(value) > MOST_SHOWN else ""
        return f"[{', '.join(map(_shown, value[:MOST_SHOWN]))}{more}]"
    text = plain_text(value)
    if text is None:
        return f"an object of type {type(value).__name__}"
    return repr(text[:SHOWN]) if isinstance(value, str) else text[:SHOWN]


def _folder(name: str, value: Any) -> Path | None:
    if value is None:
        return None
    if not isinstance(value, str | bytes | os.PathLike):
        raise UsageError(f"{name} is a folder, not {_shown(value)}")
    return Path(os.fsdecode(value))


def diagnosis_of(treated: Treated) -> Diagnosis:
    """The diagnosis that a treatment began with, its trials filled in: for `save` and `html`."""
    from gobrrr.trials.treat import diagnosis_of as made

    return made(treated)


def ledger(folder: str | os.PathLike[str] | None = None) -> LedgerErrors:
    """How far predicted savings were off from measured ones, by treatment, over the trials of a folder.

    `folder` None: the user's cache. Raises UsageError where it can't be read.
    """
    from gobrrr.model.treated import LedgerErrors
    from gobrrr.trials.ledger import Ledger

    where = _folder("folder", folder)
    if where is not None and where.exists() and not where.is_dir():
        raise UsageError(f"{sanitise(str(where))}: is no folder; the trials of a ledger are files in one")
    book = Ledger.open(where)
    rows = tuple(book.errors_by_treatment())
    trials, notes = len(book.records), tuple(book.notes)
    repeated = trials - sum(row.trials for row in rows)
    return LedgerErrors(folder=str(book.where), trials=trials, errors=rows, repeated=repeated, notes=notes)
