"""The machine at hand: its ceilings, and the article's experiments on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gobrrr.cli.options import AsJson, DeviceName, app, savable, show_record, stages
from gobrrr.report import output
from gobrrr.system import files


@app.command(short_help="Measure this machine's ceilings, or show a datasheet.")
def machine(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Show the datasheet of this device, such as h100.")
    ] = None,
    list_names: Annotated[bool, typer.Option("--list", help="List the devices with a datasheet.")] = False,
    device: DeviceName = None,
    last: Annotated[bool, typer.Option("--last", help="Show this machine's last measurement again.")] = False,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Also draw the roofline into FILE.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure this machine's ceilings (needs torch, takes up to a minute), or show those of a datasheet.

    Each figure stands beside the datasheet's. The result is kept for diagnosing traces of the same device.
    """
    from gobrrr import api
    from gobrrr.hardware import match
    from gobrrr.report import listing

    if list_names:
        output.names(match.known(), as_json)
    elif name is None:
        _measure_machine(device, last, svg, as_json)
    else:
        show_record(api.machine(name), listing.machine, as_json)


def _measure_machine(device: str | None, last: bool, svg: Path | None, as_json: bool) -> None:
    from gobrrr import api
    from gobrrr.hardware import cache
    from gobrrr.report import machine, terminal

    (svg,) = savable(svg)
    measurements = [api.last_measured(device)] if last else []
    for name in [] if last else api.devices(device):
        with stages(f"measuring {name}") as progress:
            measurements.append(cache.with_older(api.measure(name, keep=False, progress=progress)))
    try:
        if as_json:
            output.json([machine.for_json(measurement) for measurement in measurements])
        else:
            terminal.print_lines(machine.pages(measurements, terminal.page_for(output.console())), output.console())
    finally:
        for measurement in [] if last else measurements:
            cache.save(measurement)
    if svg is not None:
        machine.save_roofline(measurements[0], svg)


@app.command(short_help="The article's experiments, on this machine.")
def lab(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]", help="Experiments to run [none: list them].")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Run all, in the order of the article.")] = False,
    device: DeviceName = None,
    step: Annotated[
        str | None, typer.Option("--step", metavar="M:MAKE", help="For operators: the step that make() returns.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write them as one HTML page to FILE.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the article's experiments here (needs torch), and say which of its claims hold, with the numbers."""
    from gobrrr import api
    from gobrrr.report import lab as page

    if not names and not everything:
        listed = api.experiments()
        output.names(list(listed) if as_json else [f"{name:<13}{title}" for name, title in listed.items()], as_json)
        return
    (html,) = savable(html)
    with stages("lab") as progress:
        report = api.lab(names or None, device=device, step=step, progress=progress)
    try:
        show_record(report, page.lines, as_json)
    finally:
        if html is not None:
            files.write(html, page.page_of(report).encode())
