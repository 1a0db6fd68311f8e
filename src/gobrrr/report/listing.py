"""Lists on the terminal: the codes that can be explained, and a machine's ceilings with their sources."""

from __future__ import annotations

from collections.abc import Mapping

from gobrrr import units
from gobrrr.model.machine import Ceiling, Machine, ObserverCosts, RecordingCost
from gobrrr.report import values
from gobrrr.report.layout import Line, Page
from gobrrr.report.text import sanitise

GROUP_TITLES = {
    "O": "Overhead: the device waits for the host",
    "M": "Memory: bytes that need not move",
    "C": "Compute: arithmetic that could run faster",
    "N": "Communication between devices",
    "D": "Input data and transfers",
    "R": "Capacity and recomputation",
    "Q": "Quality of the measurement itself",
}
"""First letter of a condition's code -> its group."""

CONDITION_CODE_CELLS = 6
"""Width of the column of codes."""


def codes(conditions: Mapping[str, str], treatments: Mapping[str, str], page: Page) -> list[Line]:
    """All codes with their titles: the conditions by letter, then the treatments."""
    lines: list[Line] = []
    for letter in dict.fromkeys([*GROUP_TITLES, *(code[:1] for code in conditions)]):
        group = {code: title for code, title in conditions.items() if code.startswith(letter)}
        lines += _group(GROUP_TITLES.get(letter, letter), group, CONDITION_CODE_CELLS, page)
    widest = max((len(name) for name in treatments), default=0) + 2
    lines += _group("Treatments", treatments, widest, page)
    return [*lines, [(" gobrrr explain CODE explains one of them", "dim")]]


def _group(title: str, group: Mapping[str, str], cells: int, page: Page) -> list[Line]:
    if not group:
        return []
    lines: list[Line] = [[(f" {title}", "bold")]]
    for code in sorted(group):
        lines += page.wrapped(sanitise(group[code]), first=f"   {code:<{cells}}")
    return [*lines, []]


def machine(sheet: Machine, page: Page) -> list[Line]:
    """A machine's ceilings, each with its provenance, or "unknown"."""
    about = page.joint.join(part for part in (sheet.vendor, sheet.architecture) if part)
    lines: list[Line] = [[(f" {sheet.name}", "bold"), (f"{page.joint}{about}" if about else "", "")]]
    for dtype, ceiling in sheet.matrix_flop_per_s.items():
        lines.append(_ceiling(f"matrix units, {dtype}", units.rate(ceiling.value, "FLOP"), ceiling, page))
    for dtype, ceiling in sheet.vector_flop_per_s.items():
        lines.append(_ceiling(f"vector units, {dtype}", units.rate(ceiling.value, "FLOP"), ceiling, page))
    rates = (
        ("memory bandwidth", sheet.memory_bytes_per_s),
        ("cache bandwidth", sheet.cache_bytes_per_s),
        ("links, both directions", sheet.link_bytes_per_s),
        ("host, one direction", sheet.host_bytes_per_s),
    )
    sizes = (("memory", sheet.memory_bytes), ("last cache", sheet.cache_bytes))
    lines += [_ceiling(name, units.rate(_value(ceiling)), ceiling, page) for name, ceiling in rates]
    lines += [_ceiling(name, units.bytes_(_value(ceiling)), ceiling, page) for name, ceiling in sizes]
    lines.append([(f"   {'processors':<28}{units.count(sheet.processors):>14}", "")])
    if sheet.observer is not None:
        lines += observer(sheet.observer, page)
    return [*lines, *_sources(sheet, page)]


def observer(costs: ObserverCosts, page: Page) -> list[Line]:
    """What the profiler adds to the host's time for each kind of event, one row per set of profiler options."""
    lines: list[Line] = [[("   the profiler adds per event", "")]]
    for mode, cost in costs.modes.items():
        events = page.joint.join(
            f"{kind} {values.text(ns * 1e-9, 's')}" for kind, ns in _events(cost) if ns is not None
        )
        lines.append([(f"     {mode.replace('+', ', '):<26}", ""), (events, "")])
    return lines


def _events(cost: RecordingCost) -> tuple[tuple[str, float | None], ...]:
    return (
        ("op", cost.op_ns),
        ("launch", cost.runtime_ns),
        ("annotation", cost.annotation_ns),
        ("frame", cost.python_ns),
    )


def _value(ceiling: Ceiling | None) -> float | None:
    return None if ceiling is None else ceiling.value


def _ceiling(name: str, value: str, ceiling: Ceiling | None, page: Page) -> Line:
    text = f"   {name:<28}{value if ceiling else 'unknown':>14}   "
    return [(text, ""), (ceiling.provenance if ceiling else "", "dim")]


def _sources(sheet: Machine, page: Page) -> list[Line]:
    """The sources, each once, and the notes."""
    rates = (sheet.memory_bytes_per_s, sheet.cache_bytes_per_s, sheet.link_bytes_per_s, sheet.host_bytes_per_s)
    flops = (*sheet.matrix_flop_per_s.values(), *sheet.vector_flop_per_s.values())
    ceilings = [
        ceiling for ceiling in (*flops, *rates, sheet.memory_bytes, sheet.cache_bytes, sheet.observer) if ceiling
    ]
    lines: list[Line] = []
    for source in dict.fromkeys(ceiling.source for ceiling in ceilings if ceiling.source):
        lines += page.wrapped(f"source: {sanitise(source)}", first=" ", rest="   ", style="dim")
    for note in sheet.notes:
        lines += page.wrapped(sanitise(note), first=f" {page.glyphs.dot} ", style="dim")
    return lines
