"""The diagnosis on one screen: verdict, budget, what to do, certainty."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gobrrr import units
from gobrrr.guarded import GuardedParts
from gobrrr.model.diagnosis import Diagnosis, Wall, WhatIf
from gobrrr.report import advice, budget, held, prediction, unpriced, words
from gobrrr.report import what_if as change
from gobrrr.report.layout import (
    ASCII,
    DEFAULT_WIDTH,
    MAX_WIDTH,
    MIN_WIDTH,
    UNICODE,
    Line,
    Page,
    fits,
    fold,
    length,
    plain,
    spread,
)
from gobrrr.report.text import name_of, sanitise, to_ascii

if TYPE_CHECKING:
    from rich.console import Console

SCREEN_LINES = 40
"""Lines of a page without --all; chosen."""


@dataclass(frozen=True)
class Detail:
    """How many entries of each list are shown. An entry that is shown is shown whole."""

    prescriptions: int = 4
    facts: Sequence[int] = (4, 1)  # lines of evidence under the first, second, ... prescription
    findings: int = 4
    evidence: int = 3
    held: int = held.MOST_HELD
    devices: int = 4
    unchecked: int = 9
    notes: int = 3
    trials: int = 30
    code: int | None = None  # lines of code under a prescription; longer code is told by where it stands


DETAIL_LEVELS = (
    Detail(facts=(14, 4, 2, 1)),
    Detail(facts=(9, 3, 1)),
    Detail(facts=(6, 2, 1)),
    Detail(facts=(4, 2, 1)),
    Detail(),
    Detail(facts=(3,)),
    Detail(facts=(2,)),
    Detail(facts=(2,), findings=2, evidence=2, notes=2),
    Detail(prescriptions=3, facts=(3,), findings=2, evidence=2, notes=1),
    Detail(prescriptions=3, held=2, facts=(2,), findings=1, evidence=2, devices=2, notes=1),
    Detail(prescriptions=2, held=2, facts=(3,), findings=1, evidence=2, devices=2, notes=1),
    Detail(prescriptions=2, held=2, facts=(2,), findings=1, evidence=1, devices=2, notes=1),
    Detail(prescriptions=2, held=2, facts=(), findings=0, evidence=1, devices=0, unchecked=4, notes=0),
    Detail(prescriptions=2, held=1, facts=(), findings=0, evidence=1, devices=0, unchecked=4, notes=0),
    Detail(prescriptions=1, held=1, facts=(), findings=0, evidence=0, devices=0, unchecked=1, notes=0, trials=6),
    Detail(
        prescriptions=1, held=1, facts=(), findings=0, evidence=0, devices=0, unchecked=0, notes=0, trials=3, code=9
    ),
)
"""Levels of detail, most first; the first level that fits the screen is used."""


def _all_of(diagnosis: Diagnosis) -> Detail:
    """Every list whole."""
    lists = (diagnosis.prescriptions, diagnosis.findings, diagnosis.trials, diagnosis.evidence, diagnosis.devices,
             diagnosis.not_checked, diagnosis.notes)  # fmt: skip
    most = max(len(entries) for entries in lists)
    return Detail(
        prescriptions=most, facts=[sys.maxsize] * len(diagnosis.findings), findings=most, evidence=most, devices=most,
        unchecked=most, notes=most, trials=most,
    )  # fmt: skip


def render(
    diagnosis: Diagnosis,
    *,
    width: int = DEFAULT_WIDTH,
    color: bool = False,
    unicode: bool = True,
    whole: bool = False,
) -> str:
    """The diagnosis as text of at most `width` columns (clamped to 60..120) and about 40 lines.

    `color` adds a terminal's escape codes; `unicode=False` keeps to ASCII; `whole` shows every list whole.
    """
    if not color:
        return plain(compose(diagnosis, width=width, unicode=unicode, whole=whole))
    from rich.console import Console

    console = Console(force_terminal=True, color_system="standard", width=clamp(width), no_color=False)
    with console.capture() as capture:
        print_lines(compose(diagnosis, width=width, unicode=unicode, whole=whole), console)
    return capture.get().rstrip("\n")


def print_to(
    diagnosis: Diagnosis,
    console: Console,
    *,
    width: int | None = None,
    what_if: WhatIf | None = None,
    whole: bool = False,
) -> None:
    """Print the diagnosis: in the console's width and colours on a terminal, as plain text of 80 columns into a pipe.

    `what_if`: one of the diagnosis' what-ifs, printed below it. `whole`: every list whole.
    """
    unicode = knows_unicode(console.encoding)
    own = console.width if console.is_terminal else DEFAULT_WIDTH
    lines = compose(diagnosis, width=width or own, unicode=unicode, whole=whole)
    if what_if is not None:
        lines = [*lines, [], *_change(diagnosis, what_if, width=width or own, unicode=unicode)]
    print_lines(lines, console)


def _change(diagnosis: Diagnosis, what_if: WhatIf, *, width: int, unicode: bool) -> list[Line]:
    """A what-if, below the diagnosis."""
    page, parts = Page(width=clamp(width), glyphs=UNICODE if unicode else ASCII), GuardedParts()
    lines = parts.make("what-if", lambda: change.lines(diagnosis, page, what_if), list[Line]())
    return [*lines, *advice.told(parts.failed, page)]


def print_lines(lines: Sequence[Line], console: Console) -> None:
    """Print lines, with styles on a terminal and without them into a pipe."""
    if not console.is_terminal:
        console.file.write(plain(lines) + "\n")
        return
    from rich.text import Text

    for line in lines:
        console.print(Text.assemble(*line), soft_wrap=True, highlight=False)


def for_print(diagnosis: Diagnosis, what_if: WhatIf | None = None) -> str:
    """The text of `print(diagnosis)`: plain, 80 columns, in characters that standard output can encode.

    `what_if`: one of the diagnosis' what-ifs, printed below it.
    """
    unicode = knows_unicode(getattr(sys.stdout, "encoding", None))
    text = render(diagnosis, unicode=unicode)
    if what_if is None:
        return text
    return f"{text}\n\n{plain(_change(diagnosis, what_if, width=DEFAULT_WIDTH, unicode=unicode))}"


def knows_unicode(encoding: str | None) -> bool:
    """Whether an encoding can represent more than ASCII."""
    return (encoding or "").lower().startswith("utf")


def page_for(console: Console, width: int | None = None) -> Page:
    """The page that fits a console, or of `width` columns."""
    own = console.width if console.is_terminal else DEFAULT_WIDTH
    return Page(width=clamp(width or own), glyphs=UNICODE if knows_unicode(console.encoding) else ASCII)


def clamp(width: int) -> int:
    """`width`, limited to the widths that a page can have."""
    return max(MIN_WIDTH, min(MAX_WIDTH, width))


def compose(
    diagnosis: Diagnosis, *, width: int = DEFAULT_WIDTH, unicode: bool = True, whole: bool = False
) -> list[Line]:
    """The page's lines at the first level of detail that fits the screen; `whole`: all."""
    page, parts = Page(width=clamp(width), glyphs=UNICODE if unicode else ASCII), GuardedParts()
    lines: list[Line] = []
    for detail in (_all_of(diagnosis),) if whole else DETAIL_LEVELS:
        blocks = {
            name: parts.make(name, partial(section, diagnosis, page, detail), list[Line]())
            for name, section in _SECTIONS.items()
            if name not in parts.failed
        }
        blocks["failed"] = advice.told(parts.failed, page)
        lines = fold(_spaced({name: block for name, block in blocks.items() if block}, detail), page.width)
        if len(lines) <= SCREEN_LINES:
            break
    return lines if unicode else [[(to_ascii(text), style) for text, style in line] for line in lines]


def _spaced(blocks: dict[str, list[Line]], detail: Detail) -> list[Line]:
    """The blocks one below the other, separated by blank lines except where they belong together."""
    lines: list[Line] = []
    # at the lowest level, the last block only counts what is not shown
    joined = _GOES_ON if detail.unchecked else (*_GOES_ON, "notes")
    for name, block in blocks.items():
        lines += [*([[]] if lines and name not in joined else []), *block]
    return lines


def _head(diagnosis: Diagnosis, page: Page, detail: Detail) -> list[Line]:
    device = name_of(diagnosis.device) if diagnosis.device else "device unknown"
    steps = units.things(diagnosis.steps, "step")
    ranks = f"{page.joint}{diagnosis.ranks:,} ranks" if diagnosis.ranks > 1 else ""
    tail = f"{page.joint}{device}{page.joint}{steps}{ranks}"
    top: Line = [(f" {basename(diagnosis.target)}", "bold"), (tail, "")]
    how = "" if diagnosis.origin == "static" else sanitise(diagnosis.steps_from).removeprefix(f"{diagnosis.steps} ")
    if diagnosis.run_by is not None:
        how = sanitise(diagnosis.run_by)
    inline: Line = [(f" ({how})", "dim")] if how else []
    time = [*page.wrapped(wall(diagnosis), first=" "), *_caveats(diagnosis, page)]
    if length(top) + length(inline) <= page.width:
        return [[*top, *inline], *time, *_devices(diagnosis, detail)]
    own = page.wrapped(f"steps: {how}", first="   ", style="dim")
    return [top, *time, *own, *_devices(diagnosis, detail)]


def _caveats(diagnosis: Diagnosis, page: Page) -> list[Line]:
    """The caveats, which a reader must know before the numbers."""
    return [
        line for caveat in diagnosis.caveats for line in page.wrapped(sanitise(caveat), first=" ! ", style="yellow")
    ]


def basename(target: str) -> str:
    """The last part of a path or a URL, safe to print."""
    if target == "-":
        return "standard input"
    path = target.split("?")[0] if "://" in target else target
    return name_of(os.path.basename(path.rstrip("/\\")) or target)


def wall(diagnosis: Diagnosis) -> str:
    """The step's time under the profiler and without it, and how the second was obtained."""
    without = diagnosis.unprofiled_wall_ns
    under = units.duration(diagnosis.wall_ns)
    if without.how == "unknown" or without.value is None:
        if diagnosis.wall_ns is None:
            return "the step's time is unknown"
        return f"{under} a step under the profiler; unknown without it"
    doubt = f"({without.how}, {interval(without)})"
    if diagnosis.times is not None and diagnosis.times.ns:
        doubt = f"(median of {units.things(len(diagnosis.times.ns), 'step')}, {interval(without)})"
    if diagnosis.origin == "static":
        return f"{units.duration(without.value)} a step, predicted ({interval(without)}); nothing was run"
    if diagnosis.wall_ns is None:
        return f"{units.duration(without.value)} a step without the profiler {doubt}"
    return f"{under} a step under the profiler, {units.duration(without.value)} without it {doubt}"


def interval(without: Wall) -> str:
    """The interval, without its unit if the value before it has the same."""
    interval = units.duration_range(without.low, without.high)
    unit = units.duration(without.value).rpartition(" ")[2]
    return interval.removesuffix(f" {unit}")


def _devices(diagnosis: Diagnosis, detail: Detail) -> list[Line]:
    devices = diagnosis.devices
    if len(devices) < 2:
        return []
    lines: list[Line] = []
    for device in devices[: detail.devices]:
        busy = units.percent(device.busy_total_ns / device.span_total_ns) if device.span_total_ns > 0 else "?"
        text = f"rank {device.rank}, device {device.device}: busy {busy} of the trace, "
        text += units.things(device.kernels, "kernel")
        lines.append([(f"   {text}", "dim")])
    return [*lines, *advice.more((len(devices) - detail.devices, "device"))]


_CERTAINTY_STYLES = {"high": "green", "medium": "yellow", "low": "red"}


def _verdict(diagnosis: Diagnosis, page: Page, detail: Detail) -> list[Line]:
    why = words.reason(diagnosis)
    sure: Line = [("certainty: ", "dim"), (diagnosis.certainty, _CERTAINTY_STYLES[diagnosis.certainty])]
    name: Line = [(f" {words.headline(diagnosis)}", "bold")]
    if fits([*name, ("   ", ""), (why, "")], sure, page.width):
        lines = [spread([*name, ("   ", ""), (why, "")], sure, page.width)]
    else:
        lines = [spread(name, sure, page.width), *page.wrapped(why, first="   ")]
    for fact in diagnosis.evidence[: detail.evidence]:
        lines += page.wrapped(sanitise(fact), first=f"   {page.glyphs.dot} ", style="dim")
    return lines


def _held(diagnosis: Diagnosis, page: Page, detail: Detail) -> list[Line]:
    return held.lines(diagnosis, page, most=detail.held)


def _budget(diagnosis: Diagnosis, page: Page, detail: Detail) -> list[Line]:
    return [*budget.table(diagnosis, page), *page.wrapped(light(diagnosis), first=" ")]


def light(diagnosis: Diagnosis) -> str:
    """The speed of light as a share of the step, or why it is not known; and for how much of the compute time the least
    time is known, if not for all."""
    priced = diagnosis.coverage.device_time
    whole = priced is None or priced > FULL_COVERAGE
    coverage = "" if whole else f" The least time is known for {units.percent(priced)} of the compute time."
    if diagnosis.speed_of_light_ns is None:
        return f"Speed of light: unknown, because {_no_light(diagnosis)}.{coverage}"
    most = "at most " if diagnosis.lower_bounds else ""
    light = units.duration(diagnosis.speed_of_light_ns)
    text = f"Speed of light (the least time for this work in its number types): {most}{light}"
    step_ns = diagnosis.unprofiled_wall_ns.value or diagnosis.wall_ns
    if not step_ns:
        return f"{text}.{coverage}"
    part = diagnosis.speed_of_light_ns / step_ns
    doubt = " (a count or a ceiling is wrong)" if part > 1 and not most else ""
    return f"{text}, {most}{units.percent(part)} of what the step takes{doubt}.{coverage}"


FULL_COVERAGE = 0.999
"""A larger share of the compute time counts as all of it."""


def _no_light(diagnosis: Diagnosis) -> str:
    if not diagnosis.devices and diagnosis.budget:
        return unpriced.NO_DEVICE
    little = (diagnosis.coverage.device_time or 0.0) < words.PRICED_ENOUGH
    return unpriced.no_machine(diagnosis) or (
        "too little has a known least time" if little else "not all work has a known least time"
    )


def _advice(diagnosis: Diagnosis, page: Page, detail: Detail) -> list[Line]:
    named = advice.named_here(diagnosis, detail.prescriptions, detail.findings)
    return advice.prescriptions(
        diagnosis, page, most=detail.prescriptions, named=named, facts=detail.facts, code=detail.code
    )


def _others(diagnosis: Diagnosis, page: Page, detail: Detail) -> list[Line]:
    named = advice.named_here(diagnosis, detail.prescriptions, detail.findings)
    return advice.other_findings(diagnosis, page, most=detail.findings, named=named)


def _trials(diagnosis: Diagnosis, page: Page, detail: Detail) -> list[Line]:
    return advice.trials(diagnosis, page, most=detail.trials)


def _tail(diagnosis: Diagnosis, page: Page, detail: Detail) -> list[Line]:
    unchecked, notes = diagnosis.not_checked, diagnosis.notes
    lines = advice.tail(unchecked, notes, page, needs=detail.unchecked, most=detail.notes)
    return [*lines, _footer(diagnosis, page)]


def _footer(diagnosis: Diagnosis, page: Page) -> Line:
    codes = [prescription.finding for prescription in diagnosis.prescriptions] + [
        finding.code for finding in diagnosis.findings
    ]
    explain = [f"gobrrr explain {sanitise(codes[0])}"] if codes else ["gobrrr explain"]
    return [(f" {page.joint.join([*explain, '--json', '--save FILE'])}", "dim")]


def _machines(diagnosis: Diagnosis, page: Page, detail: Detail) -> list[Line]:
    return prediction.section(diagnosis, page)


_SECTIONS: dict[str, Callable[[Diagnosis, Page, Detail], list[Line]]] = {
    "head": _head,
    "verdict": _verdict,
    "held by": _held,
    "budget": _budget,
    "machines": _machines,
    "what to do": _advice,
    "findings": _others,
    "trials": _trials,
    "notes": _tail,
}

_GOES_ON = ("held by", "budget")
"""Sections that are not separated by a blank line from the one above."""
