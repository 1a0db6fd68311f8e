"""The pages of `gobrrr calc`: one envelope, several machines, the article, the generations of GPUs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gobrrr import units
from gobrrr.model.envelope import (
    Article,
    ArticleFigure,
    Balance,
    ComputeCeiling,
    Envelope,
    EnvelopeKernel,
    Generation,
    KernelPlan,
    Peak,
)
from gobrrr.report.calc_sketch import sketch
from gobrrr.report.layout import ASCII, UNICODE, Line, Page, plain, row
from gobrrr.report.terminal import knows_unicode
from gobrrr.report.text import sanitise

MOST_KERNELS = 9
"""Kernels of a plan that are listed; chosen."""
KERNEL_NAME_CELLS = 20
MACHINE_CELLS = 16
SHORTEST_BAR = 8
"""Widths of the columns of names, and the narrowest column of bars, in terminal cells."""
SHORTEST_NS = 10.0
"""Shorter times are shown as "<0.01 us": they have no meaning for a kernel."""
NARROW_WIDTH = 72
"""In fewer columns, a table leaves out what follows from its other columns."""
SHAPES_SHOWN = 4
"""Tensors whose shapes are shown; chosen."""


def envelope(result: Envelope, page: Page) -> list[Line]:
    """One problem on result machine."""
    lines = [*_head(result, page), [], *_verdict(result, page), [], *_plans(result, page)]
    lines += [[], *_saving(result, page), *_balance(result.balance, page)]
    drawn = sketch(result, page)
    if drawn:
        lines += [[], *drawn]
    if result.notes:
        lines.append([])
    for note in result.notes:
        lines += page.wrapped(sanitise(note), first=f" {page.glyphs.dot} ", style="dim")
    return lines


def for_print(result: Envelope) -> str:
    """The text of `print(envelope)`: plain, 80 columns, in characters that standard output can encode."""
    unicode = knows_unicode(getattr(sys.stdout, "encoding", None))
    return plain(envelope(result, Page(glyphs=UNICODE if unicode else ASCII)))


def _head(result: Envelope, page: Page) -> list[Line]:
    memory = page.joint.join([sanitise(result.machine), f"memory {units.rate(result.memory_bytes_per_s)}"])
    roofs: list[Line] = [[(f"   {_roof(roof, page)}", "")] for roof in result.roofs]
    return [*_title(result, page), *page.wrapped(memory, first="   "), *roofs]


def _title(result: Envelope, page: Page) -> list[Line]:
    shapes = [f"{sanitise(name)} {'x'.join(map(str, shape)) or 'scalar'}" for name, shape in result.shapes.items()]
    more = [f"{len(shapes) - SHAPES_SHOWN} more"] if len(shapes) > SHAPES_SHOWN else []
    title = page.wrapped(sanitise(result.what), first=" ", style="bold")
    about = page.joint.join([result.dtype, *shapes[:SHAPES_SHOWN], *more])
    return [*title, *page.wrapped(about, first="   ")]


def _roof(roof: ComputeCeiling, page: Page) -> str:
    ridge = f"{page.joint}ridge {units.count(roof.ridge)} FLOP/byte" if roof.ridge is not None else ""
    return f"{roof.name} {units.rate(roof.flop_per_s, 'FLOP')}{ridge}"


def _verdict(result: Envelope, page: Page) -> list[Line]:
    bound = result.fused.bound
    if bound is None:
        return [[(" UNKNOWN", "bold"), ("   a ceiling that this needs is not in the table", "")]]
    before = result.unfused.bound
    moved = f" ({before.upper()}-BOUND op by op)" if before and before != bound else ""
    why = _why(result)
    first = f" {bound.upper()}-BOUND{moved}"
    if not why:
        return [[(first, "bold")]]
    return [[(first, "bold")], *page.wrapped(why, first="   ")]


def _why(result: Envelope) -> str:
    """For a single kernel, its intensity against the ridge; for several, the share of the floor."""
    plan = result.fused
    if len(plan.kernels) > 1:
        return f"{units.percent(plan.bound_share)} of the floor of its {units.things(plan.launches, 'kernel')}"
    kernel = plan.kernels[0]
    ridge = _ridge(kernel, result.roofs)
    if ridge is None or not plan.flop_per_byte:
        return "it only moves bytes" if not kernel.flop else ""
    where = "under" if plan.flop_per_byte < ridge else "over"
    factor = max(ridge / plan.flop_per_byte, plan.flop_per_byte / ridge)
    text = f"{units.count(plan.flop_per_byte)} FLOP/byte, {units.count(_round(factor))} times {where} the ridge"
    if plan.bound == "memory":
        text += f": at most {units.percent(plan.flop_per_byte / ridge)} of the peak can be used"
    return text


def _ridge(kernel: EnvelopeKernel, roofs: Sequence[ComputeCeiling]) -> float | None:
    """The ridge of the kernel's roof, that of the matrix unit if it uses both units."""
    named = [roof for roof in roofs if (kernel.matrix_dtype or "") in roof.name] if kernel.matrix_flop else list(roofs)
    return named[0].ridge if named else None


def _round(value: float) -> float:
    return float(f"{value:.2g}")


def _plans(result: Envelope, page: Page) -> list[Line]:
    lines: list[Line] = _columns("", "FLOP", "bytes", "FLOP/byte", "floor", "bound", page, style="dim")
    same = result.unfused == result.fused
    if same and len(result.fused.kernels) == 1:
        return [*lines, *_kernels(result.fused, page)]
    sections = [("fused", result.fused)] if same else [("op by op", result.unfused), ("fused", result.fused)]
    for name, plan in sections:
        many = f"{name}, {units.things(plan.launches, 'kernel')}"
        lines += _figures(many, units.flop(plan.flop), plan.bytes, plan.flop_per_byte, plan, page, style="bold")
        if len(plan.kernels) > 1:
            lines += _kernels(plan, page)
    return [*lines, *_units(result, page)]


def _figures(
    name: str,
    flop: str,
    moved: float | None,
    intensity: float | None,
    timed: KernelPlan | EnvelopeKernel,
    page: Page,
    *,
    style: str = "",
) -> list[Line]:
    floor, bound = _floor(timed.floor_ns), timed.bound or "?"
    return _columns(name, flop, units.bytes_(moved), units.count(intensity), floor, bound, page, style=style)


def _floor(ns: float | None) -> str:
    return "<0.01 us" if ns is not None and 0 < ns < SHORTEST_NS else units.duration(ns)


def _columns(
    name: str, flop: str, moved: str, intensity: str, floor: str, bound: str, page: Page, *, style: str = ""
) -> list[Line]:
    """A row of the table; a narrow page has no column for the intensity."""
    cells = max(10, min(KERNEL_NAME_CELLS, page.width - 60))
    middle = f"{intensity:>10}" if page.width >= NARROW_WIDTH else ""
    figures = f" {flop:>11}{moved:>10}{middle}{floor:>12}  {bound}"
    return row(name, cells - 1, figures, styles=(style, style))


def _units(result: Envelope, page: Page) -> list[Line]:
    """FLOPs by unit, if both units have some."""
    plans = [("op by op", result.unfused), ("fused", result.fused)]
    if not any(plan.matrix_flop and plan.vector_flop for _, plan in plans):
        return []
    parts = [f"{name} {units.flop(plan.matrix_flop)} and {units.flop(plan.vector_flop)}" for name, plan in plans]
    return page.wrapped(f"On the matrix and the vector units: {'; '.join(parts)}.", first=" ", style="dim")


def _kernels(plan: KernelPlan, page: Page) -> list[Line]:
    lines = [line for kernel in plan.kernels[:MOST_KERNELS] for line in _kernel(kernel, page)]
    left = len(plan.kernels) - MOST_KERNELS
    return [*lines, [(f"   and {left} more", "dim")]] if left > 0 else lines


def _kernel(kernel: EnvelopeKernel, page: Page) -> list[Line]:
    calls = f" x{kernel.calls}" if kernel.calls > 1 else ""
    intensity = kernel.flop / kernel.bytes if kernel.bytes else None
    return _figures(f"  {sanitise(kernel.name)}{calls}", _flop(kernel), kernel.bytes, intensity, kernel, page)


def _flop(kernel: EnvelopeKernel) -> str:
    """FLOPs of one call."""
    if kernel.matrix_flop is None and kernel.vector_flop is None:
        return units.UNKNOWN_TEXT if kernel.link == "memory" else "0 FLOP"
    return units.flop(kernel.flop)


def _saving(result: Envelope, page: Page) -> list[Line]:
    if result.unfused == result.fused:
        many = result.fused.launches > 1
        text = "Nothing here can be fused." if many else "One kernel: there is nothing to fuse."
        return [[(f" {text}", "")]]
    spared = (
        f"{units.bytes_(result.saved_bytes)} of traffic and "
        f"{units.things(result.unfused.launches - result.fused.launches, 'launch')}"
    )
    if result.saved_ns is None or result.speedup is None or result.saved_ns < SHORTEST_NS:
        return page.wrapped(f"Fusion saves {spared}.", first=" ")
    text = (
        f"Fusion saves {units.duration(result.saved_ns)} of {units.duration(result.unfused.floor_ns)} "
        f"({units.count(_three_digits(result.speedup))} times as fast at best): {spared}."
    )
    return page.wrapped(text, first=" ")


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}")


def _balance(balance: Balance | None, page: Page) -> list[Line]:
    if balance is None:
        return []
    text = (
        f"{units.things(balance.operations, 'operation')} for each of {units.count(balance.elements)} elements "
        f"({units.count(balance.bytes_per_element)} bytes each); compute is the bound from "
        f"{units.count(balance.needed)} on, or from {units.count(balance.needed_without_fma)} where no multiplication "
        "pairs with an addition."
    )
    return page.wrapped(text, first=" ")


def across(many: Sequence[Envelope], page: Page) -> list[Line]:
    """The same problem on several machines, and whether its bound changes."""
    lines = _title(many[0], page)
    lines += [[], *_across("", "memory", "peak", "ridge", "op by op", "fused", "bound", page, style="dim")]
    lines += [line for result in many for line in _machine(result, page)]
    return [*lines, [], *_changes(many, page), *_marks(many, page)]


def _machine(result: Envelope, page: Page) -> list[Line]:
    roof = result.roofs[0] if result.roofs else None
    peak = units.rate(roof.flop_per_s, "FLOP") if roof else "-"
    ridge = units.count(roof.ridge) if roof else "-"
    memory, bound = units.rate(result.memory_bytes_per_s), result.fused.bound or "?"
    alone, fused = _floor(result.unfused.floor_ns), _floor(result.fused.floor_ns)
    return _across(sanitise(result.machine), memory, peak, ridge, alone, fused, bound, page)


def _across(
    name: str, memory: str, peak: str, ridge: str, alone: str, fused: str, bound: str, page: Page, *, style: str = ""
) -> list[Line]:
    """A row of the table; a narrow page has no columns for the peak and for the floor op by op."""
    wide = page.width >= NARROW_WIDTH
    peaks, floors = (f"{peak:>13}", f"{alone:>10}") if wide else ("", "")
    figures = f"{memory:>10}{peaks}{ridge:>6}{floors}{fused:>10} {bound}"
    return row(name, MACHINE_CELLS, figures, styles=(style, style))


def _changes(many: Sequence[Envelope], page: Page) -> list[Line]:
    bounds: dict[str, list[str]] = {}
    unknown = [sanitise(result.machine) for result in many if result.fused.bound is None]
    for result in many:
        if result.fused.bound is not None:
            bounds.setdefault(result.fused.bound, []).append(sanitise(result.machine))
    parts = [f"{bound}-bound on {', '.join(names)}" for bound, names in bounds.items()]
    text = f"The bound changes: {'; '.join(parts)}." if len(parts) > 1 else ""
    if len(parts) == 1:
        text = f"{next(iter(bounds)).capitalize()}-bound on all{' whose peak is known' if unknown else ' of them'}."
    if unknown:
        text = f"{text} No such peak is in the table for {', '.join(unknown)}.".strip()
    return page.wrapped(text, first=" ")


def _marks(many: Sequence[Envelope], page: Page) -> list[Line]:
    named = [f"{result.machine}: {result.roofs[0].name}" for result in many if result.roofs]
    if not named:
        return []
    kinds = {result.roofs[0].name for result in many if result.roofs}
    text = f"peak: {next(iter(kinds))}" if len(kinds) == 1 else f"peaks: {'; '.join(map(sanitise, named))}"
    return page.wrapped(text, first=" ", style="dim")


def article(facts: Article, page: Page) -> list[Line]:
    """The article's claims beside computed figures, then its tables."""
    lines: list[Line] = [[(" The article's arithmetic, computed", "bold")], []]
    for claim in facts.claims:
        lines += _claim(claim, page)
    good = sum(claim.agrees for claim in facts.claims)
    lines += [[], [(f" {good} of {len(facts.claims)} computed figures agree with the article's.", "")]]
    return [*lines, [], *_a100(facts.a100, page), [], *_doubling(facts, page)]


def _claim(claim: ArticleFigure, page: Page) -> list[Line]:
    verdict = _agreement(claim)
    quote = claim.quote if claim.source == "article" else f"{claim.quote} ({claim.source})"
    figures = f"   {claim.claimed:<15}{claim.computed:<15}{verdict:<13}"
    style = "" if claim.agrees else "bold"
    rest = page.wrapped(claim.how, first=figures, style="dim")
    return [*page.wrapped(quote, first=" "), *[[(text, s or style) for text, s in line] for line in rest]]


def _agreement(claim: ArticleFigure) -> str:
    if not claim.agrees:
        return "differs"
    if claim.claimed == claim.computed:
        return "the same"
    return "lies within" if " to " in claim.claimed else "rounds to it"


def _a100(peaks: Sequence[Peak], page: Page) -> list[Line]:
    title = "The article's A100 table, TFLOP/s (* with structured sparsity: no ceiling here)"
    lines = page.wrapped(title, first=" ", style="bold")
    for peak in peaks:
        sparse = f"{peak.tflop_per_s_sparse:g}*" if peak.tflop_per_s_sparse is not None else ""
        lines.append([(f"   {peak.unit:<26}{peak.tflop_per_s:>8g}{sparse:>8}", "")])
    return lines


def _doubling(facts: Article, page: Page) -> list[Line]:
    cells = max(20, min(46, page.width - 34))
    head = f"   {'':<{cells}}{'CPU':>6}{'memory':>8}{'LAN':>6}{'disk':>6}"
    lines: list[Line] = [[(" The article's table of improvements", "bold")], [(head, "dim")]]
    for each in facts.doubling:
        digits = 2 if each.row.startswith("Annual") else 1
        values = (each.processor, each.memory_module, each.lan, each.disk)
        shown = [f"{value:.{digits}f}" if value is not None else "--" for value in values]
        name = each.row.replace(" (last 3 milestones)", "").replace(" in Time for Bandwidth to Double", " meanwhile")
        figures = f"{shown[0]:>6}{shown[1]:>8}{shown[2]:>6}{shown[3]:>6}"
        lines += row(name, cells, figures, lead="   ")
    return lines


def generations(many: Sequence[Generation], page: Page) -> list[Line]:
    """FLOP per byte of GPUs by year, with bars."""
    most = max(generation.matrix_ratio for generation in many)
    head = f" {'year':<6}{'':<17}{'dense 16-bit':>14}{'memory':>11}{'FLOP/byte':>11}"
    lines: list[Line] = [[(" Compute over bandwidth, GPU by GPU", "bold")], [], [(head, "dim")]]
    room = page.width - 62
    for generation in many:
        text = f"{units.rate(generation.matrix_flop_per_s, 'FLOP'):>14}"
        text += f"{units.rate(generation.memory_bytes_per_s):>11}{units.count(generation.matrix_ratio):>11}"
        text += f"  {page.bar(generation.matrix_ratio / most, room)}" if room >= SHORTEST_BAR else ""
        lines += row(sanitise(generation.name), 17, text, lead=f" {generation.year:<6}")
    return [*lines, [], *_course(many, page)]


def _course(many: Sequence[Generation], page: Page) -> list[Line]:
    first, top = many[0], max(many, key=lambda generation: generation.matrix_ratio)
    low, high = (
        min(generation.vector_ratio for generation in many) * 8,
        max(generation.vector_ratio for generation in many) * 8,
    )
    text = (
        f"From {first.name} ({first.year}) to {top.name} ({top.year}) the ratio grew "
        f"{units.count(_round(top.matrix_ratio / first.matrix_ratio))} times; it does not grow with every card. A "
        "float32 pointwise kernel (8 bytes an element) is compute-bound from "
        f"{units.count(low)} to {units.count(high)} operations an element on these."
    )
    years = "By the year of announcement; peaks without sparsity, from the datasheet table (gobrrr machine NAME)."
    return [*page.wrapped(text, first=" "), *page.wrapped(years, first=" ", style="dim")]
