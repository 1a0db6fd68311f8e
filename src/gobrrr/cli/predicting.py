"""A step on fake tensors: what it would take elsewhere, and what it must do."""

from __future__ import annotations

from typing import Annotated

import typer

from gobrrr.cli.options import AsHtml, AsJson, AsSave, AsWhole, Debug, Width, answer, app, savable
from gobrrr.errors import UsageError
from gobrrr.report import output


@app.command(short_help="What a step would take on machines that are not here.")
def predict(
    target: Annotated[str | None, typer.Argument(metavar="FILE.py:NAME", help="A step, or what makes one.")] = None,
    on: Annotated[str, typer.Option("--on", metavar="NAME[,NAME]", help="The machines; the first is shown.")] = "h100",
    calibrate: Annotated[bool, typer.Option("--calibrate", help="Ceilings that gobrrr machine measured.")] = False,
    host: Annotated[
        float | None, typer.Option("--host", metavar="X", help="A host X times as slow as the reference; 0.35: fast.")
    ] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a file to begin with.")] = False,
    as_json: AsJson = False,
    save: AsSave = None,
    html: AsHtml = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="One line, the verdict; no progress.")] = False,
    whole: AsWhole = False,
    width: Width = None,
    debug: Debug = False,
) -> None:
    """Predict a step's time, regime and memory on machines that need not be here (needs torch, no GPU).

    The step runs on fake tensors: nothing is computed. FILE.py:NAME or package.module:NAME is a callable that runs one
    step, or one that returns a gobrrr.Workload.

    \b
      gobrrr predict --example > workload.py
      gobrrr predict workload.py:workload --on h100,a100-80gb,h200,b200,mi300x
    """
    from gobrrr import api
    from gobrrr.report import prediction

    if example:
        output.text(prediction.EXAMPLE.rstrip())
        return
    if target is None:
        raise UsageError("name a step, FILE.py:NAME; gobrrr predict --example prints a file to begin with")
    save, html = savable(save, html, target=target)
    with output.working(f"running {target} on fake tensors", quiet):
        result = api.predict(target, on=on, calibrate=calibrate, host=host)
    answer(result, save=save, page=html, as_json=as_json, quiet=quiet, width=width, whole=whole)


@app.command(short_help="FLOPs and bytes of a step, three ways each.")
def count(
    target: Annotated[str, typer.Argument(metavar="FILE.py:NAME", help="A step, or what makes one.")],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Count what a step must do (needs torch, no GPU): FLOPs as the maths needs them, as executed, and with what is
    computed again; bytes as run, fused and compulsory. What could not be counted is listed, never zero.
    """
    from gobrrr import api
    from gobrrr.report import counted, terminal

    with output.working(f"running {target} on fake tensors", False):
        found = api.count(target)
    if as_json:
        output.json(found)
    else:
        screen = output.console()
        terminal.print_lines(counted.lines(found, terminal.page_for(screen)), screen)
