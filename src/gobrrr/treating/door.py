"""The library's words for treating: what the subcommands call. Machinery is imported when it is called."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gobrrr.errors import UsageError
from gobrrr.report.text import sanitise
from gobrrr.targets import check_target, names_a_step

if TYPE_CHECKING:
    from gobrrr.model.diagnosis import Diagnosis
    from gobrrr.model.treated import LedgerErrors, Treated
    from gobrrr.model.workload import Workload

    Stages = Callable[[str, int, int], None]


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
) -> Treated:
    """Diagnose a step, try what is predicted to save most, keep what helps; printing the result prints the table.

    `workload`: a Workload, a callable that returns one or runs a step, or the name of such a callable,
    "file.py:callable". A named one runs in a process of its own, so that a trial that crashes or hangs ends alone.
    Everything is as it was afterwards; `result.code` is what to paste.

    `budget`: seconds that all of it may take. `only` and `without` name ways or treatments. Trials are kept in `ledger`
    (a folder; the user's cache), and are not run twice unless `again`. `dry_run`: the order and the predictions, with
    nothing applied. `limit`: seconds of silence after which a trial is ended. An interrupt ends the search, and what is
    known so far is returned. Raises UsageError or InputError where there is nothing to treat.
    """
    from gobrrr.treating.search import Options
    from gobrrr.treating.treat import treat as run

    for name, value in (("budget", budget), ("limit", limit)):
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"{name} is a number of seconds above 0, not {value:g}")
    options = Options(
        budget_s=budget, only=_listed(only), without=_listed(without), again=again, dry_run=dry_run,
    )  # fmt: skip
    if isinstance(workload, str) and not names_a_step(workload):
        check_target(workload)
        raise UsageError(f"{sanitise(workload)} is no step: a step to treat is named file.py:callable")
    where = None if ledger is None else Path(os.fsdecode(ledger))
    return run(workload, options, ledger=where, limit_s=limit, stages=stages)


def _listed(names: Sequence[str]) -> tuple[str, ...]:
    """One name or several."""
    return (names,) if isinstance(names, str) else tuple(names)


def diagnosis_of(treated: Treated) -> Diagnosis:
    """The diagnosis that a treatment began with, its trials filled in: for `save` and `html`."""
    from gobrrr.treating.treat import diagnosis_of as made

    return made(treated)


def ledger(folder: str | os.PathLike[str] | None = None) -> LedgerErrors:
    """How far predicted savings were off from measured ones, by treatment, over the trials of a folder.

    `folder` None: the user's cache. Raises UsageError where it can't be read.
    """
    from gobrrr.model.treated import LedgerErrors
    from gobrrr.treating.ledger import Ledger

    book = Ledger.open(None if folder is None else Path(os.fsdecode(folder)))
    rows = tuple(book.errors_by_treatment())
    return LedgerErrors(folder=str(book.where), trials=len(book.records), errors=rows, notes=tuple(book.notes))
