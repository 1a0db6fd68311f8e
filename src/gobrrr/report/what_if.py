"""A what-if on the terminal, and the phrases that the terminal and the page share."""

from __future__ import annotations

from msgspec.structs import replace
from rich.cells import cell_len

from gobrrr import units
from gobrrr.model.diagnosis import Diagnosis, Interval, Regime, WhatIf
from gobrrr.report import budget
from gobrrr.report.layout import ASCII, Line, Page, fold
from gobrrr.report.text import clean_lines, sanitise, to_ascii

TELLS = 0.0005
"""A saving below this share of the step counts as none; chosen."""


def lines(diagnosis: Diagnosis, page: Page, entry: WhatIf) -> list[Line]:
    """One combination: its step, saving, budget, what bounds it, and what the prediction assumes."""
    now = as_it_is(diagnosis)
    out = page.wrapped(f"What if: {title(entry)}", first=" ", rest="   ", style="bold")
    both = [times(now, entry, page.glyphs.arrow), *([] if entry is now else [saving(now, entry)])]
    whole = ", ".join(both)
    for text in [whole] if cell_len(whole) + 3 <= page.width else [f"{both[0]},", *both[1:]]:
        out += page.wrapped(text, first="   ")
    if text := apart(now, entry):
        out += page.wrapped(text, first="   ")
    if text := work(entry):
        out += page.wrapped(text, first="   ", style="dim")
    if entry.lines:
        out += budget.table(replace(diagnosis, budget=entry.lines), page, tiny=0.01)
    out += page.wrapped(then(now, entry), first="   ")
    for assume in entry.assumes:
        out += page.wrapped(f"assumes: {sanitise(assume)}", first=f"   {page.glyphs.dot} ", style="dim")
    out = fold(out, page.width)
    return out if page.glyphs is not ASCII else [[(to_ascii(text), style) for text, style in line] for line in out]


def headline(diagnosis: Diagnosis, entry: WhatIf) -> str:
    """One combination in one line of ASCII: its name, its step and its saving."""
    now = as_it_is(diagnosis)
    parts = apart(now, entry)
    whole = f"{saving(now, entry)}{f' ({parts})' if parts else ''}"
    return to_ascii(f"what if {title(entry)}: {times(now, entry, '->')}, {whole}")


def as_it_is(diagnosis: Diagnosis) -> WhatIf | None:
    """The step without changes, which the others are compared with: the record's first; None if it has none."""
    return diagnosis.what_ifs[0] if diagnosis.what_ifs else None


def title(entry: WhatIf, own: str = "") -> str:
    """The name of a combination: "compile + cuda-graph, on B200". `own`: the name of the step's own machine."""
    names = " + ".join(sanitise(treatment) for treatment in entry.treatments)
    where = sanitise(entry.machine) if entry.machine else own
    return ", ".join(filter(None, [names, f"on {where}" if where else ""])) or "the step as it is"


def times(now: WhatIf | None, entry: WhatIf, arrow: str) -> str:
    """The step's time before and after, with the interval of the latter."""
    after = units.duration(entry.step_ns)
    interval = units.duration_range(entry.low_ns, entry.high_ns).removesuffix(f" {after.rpartition(' ')[2]}")
    before = f"{units.duration(now.step_ns)} {arrow} " if now is not None and now is not entry else ""
    return f"{before}about {after} ({interval})"


def saving(now: WhatIf | None, entry: WhatIf) -> str:
    """What a combination saves, or how much longer it takes, in time and as a share of the step as it is."""
    step = now.step_ns if now is not None else entry.step_ns + entry.expected_ns
    share = entry.expected_ns / step if step > 0 else 0.0
    if abs(share) < TELLS:
        return "saves nothing"
    if share < 0:
        return f"takes {units.duration(-entry.expected_ns)} longer ({units.percent(-share)})"
    return f"saves {units.duration(entry.expected_ns)} ({units.percent(share)})"


def apart(now: WhatIf | None, entry: WhatIf) -> str:
    """The saving of the machine alone and that of the treatments there; "" if only one applies."""
    if now is None or entry.there_ns is None:
        return ""
    there = replace(entry, step_ns=entry.there_ns, expected_ns=now.step_ns - entry.there_ns)
    here = replace(entry, expected_ns=entry.there_ns - entry.step_ns)
    names = " + ".join(sanitise(treatment) for treatment in entry.treatments)
    return f"{sanitise(entry.machine or '')} alone {saving(now, there)}; {names} there {saving(there, here)}"


def between(saved: Interval) -> str:
    """The interval of a saving in words."""
    low, high = saved
    if low >= 0:
        return f"{units.duration_range(low, high)} less"
    if high <= 0:
        return f"{units.duration_range(-high, -low)} longer"
    return f"from {units.duration(-low)} longer to {units.duration(high)} less"


def bound(regime: Regime) -> str:
    """A regime as an adjective: "memory-bound", "mixed"."""
    return regime if regime in ("mixed", "unknown") else f"{regime}-bound"


def then(now: WhatIf | None, entry: WhatIf) -> str:
    """What bounds the step afterwards, in one sentence."""
    still = "still" if now is not None and now.regime == entry.regime else "then"
    return ": ".join(filter(None, [f"{still} {bound(entry.regime)}", told(entry)]))


def told(entry: WhatIf) -> str:
    """The record's words on what bounds the step."""
    return sanitise(entry.then).removeprefix("then ")


def work(entry: WhatIf) -> str:
    """How much more work a step does than today; "" if it is the same."""
    if abs(entry.work - 1.0) < 1e-6:
        return ""
    more = f"does {entry.work:.3g} times the work: for the work of today's step "
    return more + f"{units.duration(entry.step_ns)}, per step {units.duration(entry.step_ns * entry.work)}"


def meaning(diagnosis: Diagnosis, treatment: str) -> str:
    """A treatment's first line of code, or of words, in the diagnosis; "" if it is not prescribed."""
    how = next(
        (prescription.how for prescription in diagnosis.prescriptions if prescription.treatment == treatment), ""
    )
    lines = [line.strip() for line in clean_lines(how) if line.strip()]
    code = [line for line in lines if not line.startswith(("#", "import ", "from "))]
    return next(iter(code or lines), "")
