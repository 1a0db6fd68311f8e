"""What the commands share: the application, its options, and how an answer is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gobrrr.errors import UsageError
from gobrrr.report import failures, output
from gobrrr.system import files

# Everything else is imported inside the commands: `gobrrr --help` answers in a tenth of a second.
if TYPE_CHECKING:
    from gobrrr.model.diagnosis import Diagnosis, WhatIf
    from gobrrr.report.layout import Line, Page
    from gobrrr.report.stages import StageProgress

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

AsJson = Annotated[bool, typer.Option("--json", help="Print the JSON (format 1) instead of the page.")]
AsHtml = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Also write the answer as one HTML page to FILE.")
]
DeviceName = Annotated[
    str | None, typer.Option("--device", metavar="DEVICE", help="cpu, cuda or cuda:1 [a GPU, else the CPU].")
]


def _debugging(wanted: bool) -> bool:
    if wanted:
        failures.show_tracebacks()
    return wanted


Debug = Annotated[
    bool,
    typer.Option("--debug", callback=_debugging, help="Print the traceback of an error in gobrrr itself."),
]
Width = Annotated[
    int | None, typer.Option("--width", metavar="N", help="Width in columns, 60 to 120 [the terminal's, else 80].")
]
AsWhole = Annotated[bool, typer.Option("--all", help="Print all of every list, not only what fits 40 lines.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the verdict in one line; show no progress.")]
AsSave = Annotated[Path | None, typer.Option("--save", metavar="FILE", help="Also write the JSON to FILE.")]

AsSpeedscope = Annotated[
    Path | None,
    typer.Option("--speedscope", metavar="FILE", help="Also write a flame graph to FILE, for speedscope.app."),
]


def listed(values: Sequence[str] | None) -> list[str]:
    """The names of an option that takes a list, "A,B", and may be given more than once."""
    return list(dict.fromkeys(name.strip() for value in values or () for name in value.split(",") if name.strip()))


def show(
    result: Diagnosis,
    *,
    as_json: bool,
    quiet: bool = False,
    width: int | None = None,
    whole: bool = False,
    stderr: bool = False,
    what_if: WhatIf | None = None,
) -> None:
    """Print a diagnosis as JSON, as one line, or as the page, on standard error where `stderr`.

    `what_if`: the change that the user asked for; it is shown below the page.
    """
    from gobrrr.report import json, terminal, words

    if as_json:
        output.raw(json.to_json(result))
    elif quiet:
        output.text(f"{words.headline(result)} (certainty: {result.certainty})", stderr=stderr)
        if what_if is not None:
            from gobrrr.report import what_if as change

            output.text(change.headline(result, what_if), stderr=stderr)
    else:
        terminal.print_to(result, output.console(stderr=stderr), width=width, what_if=what_if, whole=whole)


def show_record(
    record: object, lay_out: Callable[[Any, Page], list[Line]], as_json: bool, width: int | None = None
) -> None:
    """Print a record as JSON, or as the lines that `lay_out` makes of it."""
    from gobrrr.report import terminal

    if as_json:
        output.json(record)
    else:
        console = output.console()
        terminal.print_lines(lay_out(record, terminal.page_for(console, width)), console)


def answer(
    result: Diagnosis,
    *,
    save: Path | None = None,
    page: Path | None = None,
    speedscope: Path | None = None,
    also: Callable[[], None] | None = None,
    **shown: Any,
) -> None:
    """Print a diagnosis as `show` does, then write the files: a file that can't be written costs nobody the answer.

    `also` writes one more file. Raises UsageError when a file could not be written.
    """
    try:
        show(result, **shown)
    finally:
        keep(result, save, page, speedscope, also)


def keep(
    result: Diagnosis,
    save: Path | None,
    page: Path | None,
    speedscope: Path | None = None,
    also: Callable[[], None] | None = None,
) -> None:
    """Write the JSON, the HTML page and the flame graph, where they were asked for; `also` writes one more file.

    Raises UsageError when a file could not be written.
    """
    failed = []
    for write in (
        partial(_save, result, save),
        partial(_page, result, page),
        partial(_places, result, speedscope),
        also,
    ):
        try:
            if write is not None:
                write()
        except UsageError as error:
            failed.append(str(error))
    if failed:
        raise UsageError("; ".join(failed))


def _save(result: Diagnosis, path: Path | None) -> None:
    from gobrrr.report import json

    if path is not None:
        json.save(result, path)


def _page(result: Diagnosis, path: Path | None) -> None:
    if path is not None:
        from gobrrr.report import html

        html.save(result, path)


def _places(result: Diagnosis, path: Path | None) -> None:
    if path is not None:
        from gobrrr.report import speedscope

        speedscope.save(result, path)


def savable(*paths: Path | None, target: str | None = None) -> list[Path | None]:
    """The paths made absolute: the user's step may change the working directory.

    Raises UsageError, before the work is done, for a path that can't be written, for two outputs in one file, and for
    an output over the `target`: a file, a folder of files, or a step, "file.py:step" or "package.module:step".
    """
    outputs = [path for path in paths if path is not None]
    for path in outputs:
        files.check_writable(path)
    resolved = [path.resolve() for path in outputs]
    for at, path in enumerate(resolved):
        if path in resolved[:at]:
            raise UsageError(f"{outputs[at]}: named for two outputs; give each its own file")
        if target is not None and any(_is_read(read, path) for read in _files_of(target)):
            raise UsageError(f"{outputs[at]}: is the input and would be overwritten; name another file")
    return [path.absolute() if path is not None else None for path in paths]


def check_printable() -> None:
    """Raise UsageError where the answer can't be printed."""
    import sys

    if sys.stdout is None or sys.stdout.closed:
        raise UsageError("standard output is closed: there is nowhere to print the answer")


def _files_of(target: str) -> list[Path]:
    """The files that a target may be in."""
    home = target.rpartition(":")[0]
    inside = Path(*home.split(".")) if home else None
    modules = []
    if inside is not None and inside.name:
        modules = [inside.with_name(f"{inside.name}.py"), inside / "__init__.py", inside / "__main__.py"]
    return [Path(target), *([Path(home)] if home.endswith(".py") else modules)]


def _is_read(read: Path, path: Path) -> bool:
    """Whether `path` is an existing file that is `read`, under any name, or lies in the folder `read`."""
    if not path.is_file():
        return False
    try:
        return read.samefile(path) or (read.is_dir() and read.resolve() == path.parent)
    except (OSError, ValueError):  # there is no such file
        return False


def stages(label: str) -> StageProgress:
    """Progress through named stages, on standard error."""
    from gobrrr.report.stages import StageProgress

    return StageProgress(label, output.console(stderr=True))
