"""The commands that say what bounds a step: of a trace, of a step or a script that is run, of a saved diagnosis."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from gobrrr.cli.options import (
    AsHtml,
    AsJson,
    AsSave,
    AsSpeedscope,
    AsWhole,
    Debug,
    Quiet,
    Width,
    answer,
    app,
    check_printable,
    listed,
    savable,
    stages,
)
from gobrrr.errors import GobrrrError, UsageError
from gobrrr.guarded import LOG
from gobrrr.report import failures, output

if TYPE_CHECKING:
    from rich.console import Console

    from gobrrr.doors.changes import Prediction
    from gobrrr.model.diagnosis import Diagnosis

DEMO = (
    "mlp_tiny.faulty",
    "pointwise_chain.faulty",
    "gpt_eager_attn.faulty",
    "gpt_fp32_notf32.faulty",
    "resnet_slow_loader.faulty",
)
"""The shipped traces that `gobrrr demo` shows, one for each kind of fault."""


class StepKind(str, Enum):
    """What counts as one step of a script."""

    optimizer = "optimizer"
    module = "module"
    line = "line"


OnMachine = Annotated[
    str | None, typer.Option("--on", metavar="NAME", help="Predict the step on this machine (gobrrr machine --list).")
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--what-if", metavar="A,B", help='Also predict the step with these treatments, or with "none".'),
]
Replayed = Annotated[
    Path | None,
    typer.Option("--replayed", metavar="FILE", help="Also write the predicted timeline to FILE, for Perfetto."),
]

ANSWER_OPTIONS = frozenset(("--json", "--save", "--html", "--speedscope", "--all"))
"""Options of `run` about its answer; given after the script they go to the script."""


@app.command(short_help="What bounds a step, why, what would help.")
def diagnose(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help='A trace, a folder of ranks, a URL, "-", or FILE.py:STEP.')
    ],
    on: OnMachine = None,
    what_if: Changes = None,
    replayed: Replayed = None,
    as_json: AsJson = False,
    save: AsSave = None,
    html: AsHtml = None,
    speedscope: AsSpeedscope = None,
    stacks: Annotated[bool, typer.Option("--stacks", help="Also read a trace's Python frames (slower).")] = False,
    scale: Annotated[bool, typer.Option("--scale", help="Also time a step with 2 and 4 times its batch.")] = False,
    quiet: Quiet = False,
    whole: AsWhole = False,
    width: Width = None,
    debug: Debug = False,
) -> None:
    """Say what bounds a step, why, and what would help.

    TARGET is a file that torch.profiler wrote (.json or .json.gz), a folder or an archive (.tar, .zip) with one such
    file a rank, a URL, or "-" for standard input. Or it is FILE.py:NAME or package.module:NAME, a callable that runs
    one step, or one that returns a gobrrr.Workload: the step is run here, timed without the profiler and then recorded
    with it (needs torch).

    \b
      gobrrr diagnose trace.json.gz --what-if compile,cuda-graph
      gobrrr diagnose trace.json.gz --on b200
    """
    from gobrrr import api
    from gobrrr.doors import targets

    save, html, speedscope, replayed = savable(save, html, speedscope, replayed, target=target)
    if what_if is not None or replayed is not None:
        if scale:
            raise UsageError(
                "--scale can't be combined with --what-if or --replayed: it runs other batches, they replay this one"
            )
        prediction = _predicted(target, what_if or [], on, stacks, quiet, as_json, panel=html is not None)
        timeline = partial(prediction.save_trace, replayed) if replayed is not None else None
        answer(
            prediction.diagnosis, save=save, page=html, speedscope=speedscope, also=timeline,
            as_json=as_json, quiet=quiet, width=width, whole=whole, what_if=prediction.what_if,
        )  # fmt: skip
        return
    panel = html is not None
    if targets.names_a_step(target):
        if stacks:
            raise UsageError("--stacks is for traces; a step that is run here is always recorded with its stacks")
        check_printable()
        with output.to_stderr(as_json), _users_errors(target), stages(target) as progress:
            result = api.diagnose(target, on=on, scale=scale, panel=panel, stages=progress)
        check_printable()
    else:
        result = _of_trace(targets.check_target(target), on, stacks, quiet, scale=scale, panel=panel)
    answer(result, save=save, page=html, speedscope=speedscope, as_json=as_json, quiet=quiet, width=width, whole=whole)


def _of_trace(name: str, on: str | None, python: bool, quiet: bool, *, scale: bool, panel: bool) -> Diagnosis:
    from gobrrr import api

    _refuse_terminal_input(name)
    with output.progress(name, quiet) as read:
        if not panel:
            return api.diagnose(name, on=on, python=python, scale=scale, progress=read)
        profile = api.read_trace(name, python=python, progress=read)
    with nullcontext() if quiet else stages(name) as progress:
        return api.diagnose(profile, on=on, scale=scale, panel=True, stages=progress)


def _predicted(
    target: str, what_if: list[str], on: str | None, stacks: bool, quiet: bool, as_json: bool, *, panel: bool
) -> Prediction:
    """The step with the treatments that `what_if` lists, from a trace or from running it."""
    from gobrrr import api
    from gobrrr.doors import targets

    names = [name for name in listed(what_if) if name != "none"]
    if targets.names_a_step(target):
        check_printable()
        with output.to_stderr(as_json), _users_errors(target), stages(target) as progress:
            return api.what_if(target, names, on=on, panel=panel, stages=progress)
    path = targets.check_target(target)
    _refuse_terminal_input(path)
    with output.progress(path, quiet) as read:
        profile = api.read_trace(path, python=stacks, progress=read)
    with nullcontext() if quiet else stages(path) as progress:
        return api.what_if(profile, names, on=on, panel=panel, stages=progress)


@app.command(
    short_help="Run a script, unchanged, and say what bounds its step.",
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
)
def run(
    script: Annotated[list[str], typer.Argument(metavar="SCRIPT [ARGS]...", help="The script and its arguments.")],
    module: Annotated[bool, typer.Option("-m", help="SCRIPT is a module, as in python -m.")] = False,
    on: OnMachine = None,
    stop_after: Annotated[bool, typer.Option("--stop-after", help="End the script after enough steps.")] = False,
    steps: Annotated[
        StepKind | None, typer.Option("--steps", help="What one step is, if gobrrr finds the wrong loop.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the JSON; the script's own output goes to standard error.")
    ] = False,
    save: AsSave = None,
    html: AsHtml = None,
    speedscope: AsSpeedscope = None,
    quiet: Quiet = False,
    whole: AsWhole = False,
    width: Width = None,
    debug: Debug = False,
) -> None:
    """Run a script as python would, find its step loop, and say what bounds the step, why, and what would help.

    The script is not changed: its arguments, its output and its exit status are its own. The loop is found by the
    optimizer's steps, else by calls of the outermost module, else by repetition. After warm-up some steps are timed
    without the profiler and a few recorded with it; then the script goes on to its end, or --stop-after ends it. The
    answer goes to standard error, so that the script's own output stays as it is.

    \b
      gobrrr run train.py --lr 1e-3
      gobrrr run --stop-after --html page.html -m pkg.train config.yaml
    """
    from gobrrr import api

    save, html, speedscope = savable(save, html, speedscope, target=f"{script[0]}:" if module else script[0])
    if as_json:
        check_printable()
    screen = sys.stderr
    with output.to_stderr(as_json), stages(script[0]) as progress:
        ran = api.run(
            script[0], script[1:], module=module, on=on, stop_after=stop_after, steps=steps.value if steps else None,
            told=None if quiet else output.aside(screen), stages=None if quiet else progress,
        )  # fmt: skip
    _streams_back(screen)
    # an error in showing the answer does not change the exit status: that is the script's
    try:
        if ran.diagnosis is not None:
            answer(
                ran.diagnosis, save=save, page=html, speedscope=speedscope,
                as_json=as_json, quiet=quiet, width=width, whole=whole, stderr=True)  # fmt: skip
            _misplaced(script, quiet=quiet)
        elif ran.why_not:
            failures.complain(ran.why_not, ran.status)
    except GobrrrError as error:
        failures.complain(str(error), ran.status)
    except BrokenPipeError:
        failures.close_stdout()
    except OSError as error:
        failures.unwritable(error)
    except Exception as error:
        failures.internal(error)
    raise typer.Exit(ran.status)


def _misplaced(script: list[str], *, quiet: bool) -> None:
    """Warn where an option of gobrrr stands behind the script and was passed to it."""
    passed_on = [argument for argument in script[1:] if argument.partition("=")[0] in ANSWER_OPTIONS]
    if passed_on and not quiet:
        warning = f" {passed_on[0]} was passed to {script[0]}: put options for gobrrr before the script"
        output.console(stderr=True).print(warning, style="dim", highlight=False, markup=False)


def _streams_back(screen: TextIO | None) -> None:
    """Restore standard output and error where the script has closed or removed them."""
    for name, ours in (("stderr", screen), ("stdout", None)):
        stream = getattr(sys, name)
        if stream is None or stream.closed:
            other = ours if ours is not None and not ours.closed else open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, other)


@app.command(short_help="Show a saved diagnosis again.")
def report(
    saved: Annotated[str, typer.Argument(metavar="SAVED.json", help="A file that --save or --json wrote.")],
    as_json: AsJson = False,
    html: AsHtml = None,
    speedscope: AsSpeedscope = None,
    whole: AsWhole = False,
    width: Width = None,
    debug: Debug = False,
) -> None:
    """Show a saved diagnosis again."""
    from gobrrr import api

    html, speedscope = savable(html, speedscope, target=saved)
    result = api.load(saved)
    asked = next((what_if for what_if in result.what_ifs if what_if.asked), None)
    answer(result, page=html, speedscope=speedscope, as_json=as_json, width=width, whole=whole, what_if=asked)


@app.command(short_help="The answers for traces that gobrrr ships.")
def demo(
    everything: Annotated[bool, typer.Option("--all", help="Diagnose all shipped traces, not the short list.")] = False,
    debug: Debug = False,
) -> None:
    """Diagnose traces that are shipped with gobrrr and compare the answers with what was measured beside them. Where
    torch is installed, also run and diagnose a small step here.
    """
    from gobrrr import api
    from gobrrr.report import demo as demo_report
    from gobrrr.report import terminal

    console = output.console()
    rows = []
    shipped = demo_report.shipped(None if everything else DEMO)
    page = terminal.page_for(console)
    terminal.print_lines(demo_report.heading(shipped[0][0].parent, page), console)
    for path, truth in shipped:
        result = api.diagnose(path)
        terminal.print_to(result, console)
        terminal.print_lines([[]], console)
        rows.append(demo_report.DemoRow(path.name.removesuffix(demo_report.TRACE_SUFFIX), result, truth))
    terminal.print_lines(demo_report.table(rows, page), console)
    _demo_step(console)


def _demo_step(console: Console) -> None:
    """Run and diagnose a small step on this machine, where torch is installed."""
    from gobrrr.doors import live
    from gobrrr.report import demo as demo_report
    from gobrrr.report import terminal

    has_torch = live.has_torch()
    terminal.print_lines(demo_report.live_heading(terminal.page_for(console), has_torch=has_torch), console)
    if not has_torch:
        return
    with stages("a small step, live") as progress:
        result = live.diagnose_demo(progress)
    terminal.print_to(result, console)


@contextmanager
def _users_errors(target: str) -> Iterator[None]:
    """Turn an error of the user's step into one line with its place; --debug also prints the traceback."""
    from gobrrr.doors import live
    from gobrrr.report.text import sanitise

    try:
        yield
    except GobrrrError:
        raise
    except (Exception, SystemExit) as error:
        message = live.users_error(sanitise(target), error)
        if message is None:
            raise
        LOG.debug("the step failed", exc_info=error)
        raise UsageError(message) from error


def _refuse_terminal_input(name: str) -> None:
    if name == "-" and sys.stdin.isatty():
        raise UsageError("standard input is a terminal; pipe a trace into it: gobrrr diagnose - < trace.json")
