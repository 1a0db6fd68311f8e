"""The command line: each function parses, makes one library call and prints with one renderer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gobrrr.errors import GobrrrError, UsageError
from gobrrr.report import failures, output

# Everything else is imported inside the commands: `gobrrr --help` answers in a tenth of a second.
if TYPE_CHECKING:
    from gobrrr.model.diagnosis import Diagnosis
    from gobrrr.report.layout import Line
    from gobrrr.report.stages import StageProgress

INTERRUPTED = 130

DEMO = (
    "mlp_tiny.faulty",
    "pointwise_chain.faulty",
    "gpt_eager_attn.faulty",
    "gpt_fp32_notf32.faulty",
    "resnet_slow_loader.faulty",
)

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

AsJson = Annotated[bool, typer.Option("--json", help="Print the JSON (format 1) instead of the page.")]
AsHtml = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Also write the answer as one HTML page to FILE.")
]
DeviceName = Annotated[
    str | None, typer.Option("--device", metavar="DEVICE", help="cpu, cuda or cuda:1 [a GPU, else the CPU].")
]
Width = Annotated[
    int | None, typer.Option("--width", metavar="N", help="Columns, 60 to 120 [the terminal's, else 80].")
]


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Say what a PyTorch step is bound by (compute, memory bandwidth or overhead), from a profiler trace,
    find the causes, and predict what each remedy would save.

    Four commands to try first:

    \b
      gobrrr demo                     the answers for traces that gobrrr ships
      gobrrr diagnose trace.json.gz   the answer for a trace of yours
      gobrrr explain O01              what a code in an answer means
      gobrrr predict --example        a step to predict on GPUs that are not here
    """
    if version:
        import gobrrr

        output.text(f"gobrrr {gobrrr.__version__}")
    elif context.invoked_subcommand is None:
        output.text(context.get_help())


@app.command(short_help="What bounds the step of a trace, why, what would help.")
def diagnose(
    target: Annotated[str, typer.Argument(metavar="TARGET", help='A trace, a folder of ranks, a URL, or "-".')],
    on: Annotated[str | None, typer.Option("--on", metavar="NAME", help="The machine whose ceilings count.")] = None,
    as_json: AsJson = False,
    save: Annotated[Path | None, typer.Option("--save", metavar="FILE", help="Also write the JSON to FILE.")] = None,
    html: AsHtml = None,
    stacks: Annotated[bool, typer.Option("--stacks", help="Read the Python frames too (slower).")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="One line, the verdict; no progress bar.")] = False,
    width: Width = None,
) -> None:
    """Say what bounds the step of a profiler trace, why, and what would help.

    TARGET is a file that torch.profiler wrote (.json or .json.gz), a folder with one such file a rank, a URL, or "-"
    for standard input.
    """
    from gobrrr import api
    from gobrrr.report import json

    name = api.check_target(target)
    _refuse_terminal_input(name)
    for path in (save, html):
        if path is not None:
            json.check_savable(path)
    with output.progress(name, quiet) as progress:
        result = api.diagnose(name, on=on, python=stacks, progress=progress)
    if save is not None:
        json.save(result, save)
    _write_page(result, html)
    _show(result, as_json=as_json, quiet=quiet, width=width)


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
    save: Annotated[Path | None, typer.Option("--save", metavar="FILE", help="Also write the JSON to FILE.")] = None,
    html: AsHtml = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="One line, the verdict; no progress.")] = False,
    width: Width = None,
) -> None:
    """Predict a step's time, regime and memory on machines that need not be here (needs torch, no GPU).

    The step runs on fake tensors: nothing is computed. FILE.py:NAME or package.module:NAME is a callable that runs one
    step, or one that returns a gobrrr.Workload.

    \b
      gobrrr predict --example > workload.py
      gobrrr predict workload.py:workload --on h100,a100-80gb,h200,b200,mi300x
    """
    from gobrrr import api
    from gobrrr.report import json, prediction

    if example:
        output.text(prediction.EXAMPLE.rstrip())
        return
    if target is None:
        raise UsageError("name a step, FILE.py:NAME; gobrrr predict --example prints a file to begin with")
    for path in (save, html):
        if path is not None:
            json.check_savable(path)
    with output.working(f"running {target} on fake tensors", quiet):
        result = api.predict(target, on=on, calibrate=calibrate, host=host)
    if save is not None:
        json.save(result, save)
    _write_page(result, html)
    _show(result, as_json=as_json, quiet=quiet, width=width)


@app.command(short_help="FLOPs and bytes of a step, three ways each.")
def count(
    target: Annotated[str, typer.Argument(metavar="FILE.py:NAME", help="A step, or what makes one.")],
    as_json: AsJson = False,
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


@app.command(short_help="Show a saved diagnosis again.")
def report(
    saved: Annotated[str, typer.Argument(metavar="SAVED.json", help="A file that --save or --json wrote.")],
    as_json: AsJson = False,
    html: AsHtml = None,
    width: Width = None,
) -> None:
    """Show a saved diagnosis again."""
    from gobrrr import api

    result = api.load(saved)
    _write_page(result, html)
    _show(result, as_json=as_json, width=width)


@app.command(short_help="What a code means; without a code, list them.")
def explain(
    code: Annotated[str | None, typer.Argument(metavar="CODE", help="A code such as O01, or a treatment.")] = None,
) -> None:
    """Say what a condition or a treatment is; without CODE, list them all."""
    from gobrrr import api
    from gobrrr.report import listing, terminal

    console = output.console()
    if code is None:
        terminal.print_lines(listing.codes(**api.codes(), page=terminal.page_for(console)), console)
        return
    text = api.explain(code)
    if not console.is_terminal:
        output.text(text)
        return
    from rich.markdown import Markdown

    console.print(Markdown(text), width=terminal.page_for(console).width)


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
    from gobrrr.report import json, machine, terminal

    if svg is not None:
        json.check_savable(svg)
    found = [api.last_measured(device)] if last else []
    for name in [] if last else api.devices(device):
        with _stages(f"measuring {name}") as progress:
            found.append(api.measure(name, progress=progress))
    if as_json:
        output.json([machine.for_json(one) for one in found])
    else:
        terminal.print_lines(machine.pages(found, terminal.page_for(output.console())), output.console())
    if svg is not None:
        machine.save_roofline(found[0], svg)


def _stages(label: str) -> StageProgress:
    from gobrrr.report.stages import StageProgress

    return StageProgress(label, output.console(stderr=True))


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
    from gobrrr.report import json, terminal
    from gobrrr.report import lab as page

    if not names and not everything:
        listed = api.experiments()
        output.names(list(listed) if as_json else [f"{one:<13}{listed[one]}" for one in listed], as_json)
        return
    if html is not None:
        json.check_savable(html)
    with _stages("lab") as progress:
        found = api.lab(names or None, device=device, step=step, progress=progress)
    if html is not None:
        html.write_text(page.page_of(found), encoding="utf-8")
    if as_json:
        output.json(found)
    else:
        terminal.print_lines(page.lines(found, terminal.page_for(output.console())), output.console())


@app.command(short_help="The back of the envelope: an op or an expression.")
def calc(
    what: Annotated[str, typer.Argument(metavar="WHAT", help='"x.cos().cos()", mm, attention, ... or article.')],
    sizes: Annotated[list[str] | None, typer.Argument(metavar="[SIZES]", help="The sizes of an op.")] = None,
    on: Annotated[
        str | None, typer.Option("--on", metavar="NAME[,NAME]", help="The machine; several: a table.")
    ] = None,
    shape: Annotated[
        list[str] | None, typer.Option("--shape", metavar="[NAME=]N,N", help="Of all tensors, or of one.")
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", metavar="TYPE", help="fp32, tf32, bf16, ...")] = "float32",
    ops: Annotated[int | None, typer.Option("--ops", metavar="N", help="pointwise: operations in a row.")] = None,
    causal: Annotated[bool, typer.Option("--causal", help="attention: with a causal mask.")] = False,
    kv_heads: Annotated[int | None, typer.Option("--kv-heads", metavar="N", help="attention: key heads.")] = None,
    keys: Annotated[int | None, typer.Option("--keys", metavar="N", help="attention: keys, if not S.")] = None,
    stride: Annotated[int | None, typer.Option("--stride", metavar="N", help="conv2d.")] = None,
    padding: Annotated[int | None, typer.Option("--padding", metavar="N", help="conv2d.")] = None,
    ranks: Annotated[int | None, typer.Option("--ranks", metavar="N", help="allreduce: how many devices.")] = None,
    host: Annotated[bool, typer.Option("--host", help="copy: from the host's memory.")] = False,
    as_json: AsJson = False,
    width: Width = None,
) -> None:
    """Say what an expression or an op costs on a machine: FLOP, bytes, intensity, floor, bound, and what fusion saves.

    \b
      gobrrr calc "x.cos().cos()" --shape 67108864 --on a100-40gb
      gobrrr calc "(x @ w).gelu()" --shape x=8,1024 --shape w=1024,4096 --on h100
      gobrrr calc mm 4096 4096 4096 --dtype bf16 --on a100-40gb,h100,mi300x
      gobrrr calc attention 8 16 4096 64 --dtype bf16 --causal --on h100
      gobrrr calc pointwise --ops 64 --shape 67108864 --on article

    Ops: mm M N K, bmm B M N K, linear ROWS IN OUT, attention B H S D, conv2d N C H W OUT KERNEL, pointwise,
    layernorm ROWS WIDTH, softmax ROWS WIDTH, embedding TOKENS ROWS WIDTH, allreduce BYTES, copy BYTES, adam PARAMETERS.

    `gobrrr calc article` computes the article's own figures; `gobrrr calc generations` shows compute over bandwidth,
    GPU by GPU.
    """
    from gobrrr import api, envelope
    from gobrrr.report import calc as page

    if what in envelope.TABLES:
        found = envelope.TABLES[what]()
        _show_calc(found, page.article if what == "article" else page.generations, as_json, width)
        return
    options: dict[str, int | None] = {
        "ops": ops, "kv_heads": kv_heads, "keys": keys, "stride": stride, "padding": padding, "ranks": ranks,
        "causal": causal or None, "host": host or None,
    }  # fmt: skip
    shapes, numbers = envelope.read_shapes(shape), envelope.read_sizes(sizes)
    machines = [one.strip() for one in (on or "").split(",")]
    many = [api.calc(what, *numbers, on=one, shape=shapes, dtype=dtype, **options) for one in machines]
    _show_calc(many if len(many) > 1 else many[0], page.across if len(many) > 1 else page.envelope, as_json, width)


def _show_calc(found: object, lay_out: Callable[..., list[Line]], as_json: bool, width: int | None) -> None:
    from dataclasses import replace

    from gobrrr.report import terminal

    if as_json:
        output.json(found)
        return
    console = output.console()
    page = terminal.page_for(console)
    terminal.print_lines(lay_out(found, replace(page, width=terminal.clamp(width)) if width else page), console)


@app.command(short_help="The answers for traces that gobrrr ships.")
def demo(
    everything: Annotated[bool, typer.Option("--all", help="All shipped traces, not the short list.")] = False,
) -> None:
    """Diagnose traces that are shipped with gobrrr, and compare with what is known about them."""
    from gobrrr import api
    from gobrrr.report import demo as demo_report
    from gobrrr.report import terminal

    console = output.console()
    rows = []
    for path, truth in demo_report.shipped(None if everything else DEMO):
        result = api.diagnose(path)
        terminal.print_to(result, console)
        terminal.print_lines([[]], console)
        rows.append(demo_report.DemoRow(path.name.removesuffix(demo_report.SUFFIX), result, truth))
    terminal.print_lines(demo_report.table(rows, terminal.page_for(console)), console)


def _show(result: Diagnosis, *, as_json: bool, quiet: bool = False, width: int | None = None) -> None:
    from gobrrr.report import json, terminal, words

    if as_json:
        output.raw(json.to_json(result))
    elif quiet:
        output.text(f"{words.headline(result)} (certainty: {result.certainty})")
    else:
        terminal.print_to(result, output.console(), width=width)


def _write_page(result: Diagnosis, path: Path | None) -> None:
    if path is not None:
        from gobrrr.report import html

        html.save(result, path)


def _refuse_terminal_input(name: str) -> None:
    if name == "-" and sys.stdin.isatty():
        raise UsageError("standard input is a terminal; pipe a trace into it: gobrrr diagnose - < trace.json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; no exception leaves it.

    0: done. 2: the input, the call or the output is unusable, said in one line on standard error. 70: a bug in
    gobrrr, in one line too, with the traceback when GOBRRR_TRACEBACK is set. 130: interrupted.
    """
    try:
        status = _run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except GobrrrError as error:
        return failures.complain(str(error), error.exit_code)
    except BrokenPipeError:
        return failures.close_stdout()
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except OSError as error:
        return failures.unwritable(error)
    except Exception as error:
        return failures.internal(error)
    return status


def _run(arguments: Sequence[str]) -> int:
    # The parser's own main() would print usage errors in several lines and swallow interrupts and broken pipes.
    command = typer.main.get_command(app)
    try:
        with command.make_context("gobrrr", list(arguments)) as context:
            command.invoke(context)
    except typer.Exit as done:
        return int(done.exit_code)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        if arguments and arguments[0] not in getattr(command, "commands", ()) and Path(arguments[0]).is_file():
            raise UsageError(f"no such command; to diagnose a trace: gobrrr diagnose {arguments[0]}") from None
        where = getattr(getattr(error, "ctx", None), "command_path", "gobrrr")
        raise UsageError(f"{error.format_message().rstrip('.')}; see: {where} --help") from None
    return 0


if __name__ == "__main__":
    sys.exit(main())
