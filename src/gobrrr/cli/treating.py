"""Treatments applied and measured, and what the ledger says of their predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    stages,
)
from gobrrr.errors import UsageError
from gobrrr.report import output

if TYPE_CHECKING:
    from collections.abc import Callable

    from gobrrr.model.treated import Treated
    from gobrrr.report.layout import Line, Page

INTERRUPTED = 130

BUDGET_S = 300.0


@app.command(short_help="Apply treatments, measure each, keep what helps.")
def treat(
    context: typer.Context,
    target: Annotated[
        str | None, typer.Argument(metavar="FILE.py:NAME", help="A step, or what makes a Workload.")
    ] = None,
    budget: Annotated[
        float, typer.Option("--budget", metavar="SECONDS", help="What the whole run may take.")
    ] = BUDGET_S,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="A,B", help="Try these ways or treatments alone.")
    ] = None,
    without: Annotated[list[str] | None, typer.Option("--without", metavar="A,B", help="Leave these out.")] = None,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", metavar="FOLDER", help="Where trials are kept [the user's cache].")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Run trials that the ledger holds again.")] = False,
    limit: Annotated[
        float | None,
        typer.Option("--limit", metavar="SECONDS", help="End a trial that is silent for so long [120, or 500 steps]."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Order and predictions; nothing is applied.")] = False,
    example: Annotated[bool, typer.Option("--example", help="Print a file to begin with.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON instead of the table.")] = False,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Also write the diagnosis with its trials to FILE.")
    ] = None,
    html: AsHtml = None,
    speedscope: AsSpeedscope = None,
    width: Width = None,
    debug: Debug = False,
) -> None:
    """Diagnose a step, predict what each treatment would save, try them in that order, and keep what helps (needs
    torch).

    FILE.py:NAME or package.module:NAME is a callable that runs one step, or one that returns a gobrrr.Workload. It runs
    in a process of its own: a trial that crashes or hangs ends alone. Each trial times the step with and without in
    turns and compares the numbers; your files are not changed, and the code to paste is printed.

    \b
      gobrrr treat --example > workload.py
      gobrrr treat workload.py:workload --budget 120
    """
    if example:
        _show_example()
        return
    if target is None:
        raise UsageError("name a step, FILE.py:NAME; gobrrr treat --example prints a file to begin with")
    save, html, speedscope = savable(save, html, speedscope, target=target)
    check_printable()
    from gobrrr import api

    with stages(target) as progress:
        found = api.treat(
            target, budget=budget, only=listed(only), without=listed(without), ledger=ledger, again=again,
            dry_run=dry_run, limit=limit, stages=progress, since=context.obj,
        )  # fmt: skip
    try:
        _show(found, as_json, width)
    finally:
        _keep(found, save, html, speedscope)


@app.command(short_help="How far predictions were off, by treatment.")
def ledger(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[FOLDER]", help="Where the trials are [the user's cache].")
    ] = None,
    as_json: AsJson = False,
    width: Width = None,
) -> None:
    """Show how far predicted savings were off from measured ones, treatment by treatment, over all trials kept. These
    errors widen or narrow the intervals of later predictions on the same device.
    """
    from gobrrr import api

    found = api.ledger(folder)
    if as_json:
        output.json(found)
        return
    from gobrrr.report import treated

    _print(treated.ledger_lines, found, width)


def _show_example() -> None:
    from gobrrr.trials.example import EXAMPLE

    output.text(EXAMPLE.rstrip())


def _keep(found: Treated, save: Path | None, html: Path | None, speedscope: Path | None) -> None:
    from gobrrr import api

    if any(path is not None for path in (save, html, speedscope)):
        keep(api.diagnosis_of(found), save, html, speedscope)


def _show(found: Treated, as_json: bool, width: int | None) -> None:
    from gobrrr.report import treated

    if as_json:
        output.json(found)
    else:
        _print(treated.lines, found, width)
    if found.stopped == "interrupted":
        raise typer.Exit(INTERRUPTED)


def _print(lay_out: Callable[[Any, Page], list[Line]], found: object, width: int | None) -> None:
    from dataclasses import replace

    from gobrrr.report import terminal

    console = output.console()
    page = terminal.page_for(console)
    terminal.print_lines(lay_out(found, replace(page, width=terminal.clamp(width)) if width else page), console)
