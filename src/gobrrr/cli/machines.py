"""The machine at hand: its ceilings, and the article's experiments on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gobrrr.cli.options import AsJson, DeviceName, app, savable, stages
from gobrrr.report import output
from gobrrr.system import files


@app.command(short_help="Measure this machine's ceilings, or show a datasheet.")
def machine(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A device, such as h100: its datasheet.")] = None,
    list_names: Annotated[bool, typer.Option("--list", help="The names that are known.")] = False,
    device: DeviceName = None,
    last: Annotated[bool, typer.Option("--last", help="Show this machine's last measurement again.")] = False,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Also draw the roofline.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure this machine's ceilings (needs torch, takes up to a minute), or show those of a datasheet.

    Each figure stands beside the datasheet's. The result is kept for diagnosing traces of the same device.
    """
    from gobrrr import api
    from gobrrr.hardware import match
    from gobrrr.report import listing, terminal

    if list_names:
        output.names(match.known(), as_json)
    elif name is None:
        _measure_machine(device, last, svg, as_json)
    elif as_json:
        output.json(api.machine(name))
    else:
        terminal.print_lines(listing.machine(api.machine(name), terminal.page_for(output.console())), output.console())


def _measure_machine(device: str | None, last: bool, svg: Path | None, as_json: bool) -> None:
    from gobrrr import api
    from gobrrr.hardware import cache
    from gobrrr.report import machine, terminal

    (svg,) = savable(svg)
    found = [api.last_measured(device)] if last else []
    for name in [] if last else api.devices(device):
        with stages(f"measuring {name}") as progress:
            found.append(cache.with_older(api.measure(name, keep=False, progress=progress)))
    try:
        if as_json:
            output.json([machine.for_json(one) for one in found])
        else:
            terminal.print_lines(machine.pages(found, terminal.page_for(output.console())), output.console())
    finally:
        for measurement in [] if last else found:
            cache.save(measurement)
    if svg is not None:
        machine.save_roofline(found[0], svg)


@app.command(short_help="The article's experiments, on this machine.")
def lab(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]", help="Experiments [list them].")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them, in the article's order.")] = False,
    device: DeviceName = None,
    step: Annotated[
        str | None, typer.Option("--step", metavar="M:MAKE", help="operators: make() gives a step.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write one page of them.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run the article's experiments here (needs torch), and say which of its claims hold, with the numbers."""
    from gobrrr import api
    from gobrrr.report import lab as page
    from gobrrr.report import terminal

    if not names and not everything:
        listed = api.experiments()
        output.names(list(listed) if as_json else [f"{one:<13}{listed[one]}" for one in listed], as_json)
        return
    (html,) = savable(html)
    with stages("lab") as progress:
        found = api.lab(names or None, device=device, step=step, progress=progress)
    try:
        if as_json:
            output.json(found)
        else:
            terminal.print_lines(page.lines(found, terminal.page_for(output.console())), output.console())
    finally:
        if html is not None:
            files.write(html, page.page_of(found).encode())
