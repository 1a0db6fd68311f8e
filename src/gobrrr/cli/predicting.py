"""A step on fake tensors: what it would take elsewhere, and what it must do."""

from __future__ import annotations

from typing import Annotated

import typer

from gobrrr.cli.options import AsHtml, AsJson, AsSave, AsWhole, Debug, Quiet, Width, answer, app, savable, show_record
from gobrrr.errors import UsageError
from gobrrr.report import output


@app.command(short_help="What a step would take on machines that are not here.")
def predict(
    target: Annotated[
        str | None, typer.Argument(metavar="FILE.py:NAME", help="A step, or a function that returns a Workload.")
    ] = None,
    on: Annotated[
        str, typer.Option("--on", metavar="NAME[,NAME]", help="Machines; the first is shown in full.")
    ] = "h100",
    calibrate: Annotated[bool, typer.Option("--calibrate", help="Use ceilings that gobrrr machine measured.")] = False,
    host: Annotated[
        float | None,
        typer.Option("--host", metavar="X", help="Assume a host X times as slow as the reference (0.35: fast)."),
    ] = None,
    example: Annotated[bool, typer.Option("--example", help="Print an example file to start from.")] = False,
    as_json: AsJson = False,
    save: AsSave = None,
    html: AsHtml = None,
    quiet: Quiet = False,
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
        output.text(prediction.PREDICT_EXAMPLE.rstrip())
        return
    if target is None:
        raise UsageError("name a step, FILE.py:NAME; gobrrr predict --example prints an example file")
    save, html = savable(save, html, target=target)
    with output.working(f"running {target} on fake tensors", quiet):
        result = api.predict(target, on=on, calibrate=calibrate, host=host)
    answer(result, save=save, page=html, as_json=as_json, quiet=quiet, width=width, whole=whole)


@app.command(short_help="FLOPs and bytes of a step, three ways each.")
def count(
    target: Annotated[
        str, typer.Argument(metavar="FILE.py:NAME", help="A step, or a function that returns a Workload.")
    ],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Count the work of a step (needs torch, no GPU). FLOPs: those of the model, those executed, and those with
    recomputation. Bytes: as run, fused and compulsory. Operations that could not be counted are listed, never zero.
    """
    from gobrrr import api
    from gobrrr.report import counted

    with output.working(f"running {target} on fake tensors", False):
        counts = api.count(target)
    show_record(counts, counted.lines, as_json)
