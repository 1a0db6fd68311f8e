"""Treatments applied and measured, and how far the ledger's predictions were off."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gobrrr.cli.entry import INTERRUPTED
from gobrrr.cli.options import (
    AsHtml,
    AsJson,
    AsSpeedscope,
    Debug,
    Width,
    app,
    check_printable,
    keep,
    listed,
    savable,
    show_record,
    stages,
)
from gobrrr.errors import UsageError
from gobrrr.report import output

if TYPE_CHECKING:
    from gobrrr.model.treated import Treated

DEFAULT_BUDGET_S = 300.0
"""Default for the time of a whole run; chosen, not measured."""


@app.command(short_help="Apply treatments, measure each, keep what helps.")
def treat(
    context: typer.Context,
    target: Annotated[
        str | None, typer.Argument(metavar="FILE.py:NAME", help="A step, or a function that returns a Workload.")
    ] = None,
    budget: Annotated[
        float, typer.Option("--budget", metavar="SECONDS", help="Time limit of the whole run.")
    ] = DEFAULT_BUDGET_S,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="A,B", help="Try only these ways or treatments.")
    ] = None,
    without: Annotated[list[str] | None, typer.Option("--without", metavar="A,B", help="Do not try these.")] = None,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", metavar="FOLDER", help="Where trials are kept [the user's cache].")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Repeat trials that are in the ledger already.")] = False,
    limit: Annotated[
        float | None,
        typer.Option("--limit", metavar="SECONDS", help="End a trial silent for this long [120, or 500 steps]."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the order and predictions; apply nothing.")] = False,
    example: Annotated[bool, typer.Option("--example", help="Print an example file to start from.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON instead of the table.")] = False,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Also write the diagnosis with its trials to FILE.")
    ] = None,
    html: AsHtml = None,
    speedscope: AsSpeedscope = None,
    width: Width = None,
    debug: Debug = False,
) -> None:
    """Diagnose a step, predict what each treatment would save, try them in that order, and keep those that help
    (needs torch).

    FILE.py:NAME or package.module:NAME is a callable that runs one step, or one that returns a gobrrr.Workload. It runs
    in a process of its own, so a trial that crashes or hangs ends alone. Each trial times the step with and without the
    treatment in turns and compares the results. Your files are not changed; the code to paste is printed.

    \b
      gobrrr treat --example > workload.py
      gobrrr treat workload.py:workload --budget 120
    """
    if example:
        _show_example()
        return
    if target is None:
        raise UsageError("name a step, FILE.py:NAME; gobrrr treat --example prints an example file")
    save, html, speedscope = savable(save, html, speedscope, target=target)
    check_printable()
    from gobrrr import api

    with stages(target) as progress:
        treated = api.treat(
            target, budget=budget, only=listed(only), without=listed(without), ledger=ledger, again=again,
            dry_run=dry_run, limit=limit, stages=progress, since=context.obj,
        )  # fmt: skip
    try:
        _show(treated, as_json, width)
    finally:
        _keep(treated, save, html, speedscope)


@app.command(short_help="How far predictions were off, by treatment.")
def ledger(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[FOLDER]", help="Where the trials are [the user's cache].")
    ] = None,
    as_json: AsJson = False,
    width: Width = None,
) -> None:
    """Show how much predicted savings differed from measured ones, by treatment, over all trials in the ledger. These
    errors widen or narrow the intervals of later predictions on the same device.
    """
    from gobrrr import api
    from gobrrr.report import treated

    errors = api.ledger(folder)
    show_record(errors, treated.ledger_lines, as_json, width)


def _show_example() -> None:
    from gobrrr.trials.example import EXAMPLE

    output.text(EXAMPLE.rstrip())


def _keep(result: Treated, save: Path | None, html: Path | None, speedscope: Path | None) -> None:
    from gobrrr import api

    if any(path is not None for path in (save, html, speedscope)):
        keep(api.diagnosis_of(result), save, html, speedscope)


def _show(result: Treated, as_json: bool, width: int | None) -> None:
    from gobrrr.report import treated

    show_record(result, treated.lines, as_json, width)
    if result.stopped == "interrupted":
        raise typer.Exit(INTERRUPTED)
