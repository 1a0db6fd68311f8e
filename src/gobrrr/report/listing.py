"""Lists for reading: the codes that can be explained, and a machine's ceilings with their sources."""

from __future__ import annotations

from collections.abc import Mapping

from gobrrr import units
from gobrrr.model.machine import Ceiling, Machine, ObserverCosts, RecordingCost
from gobrrr.report import values
from gobrrr.report.layout import Line, Page
from gobrrr.report.text import sanitise

LETTERS = {
    "O": "Overhead: the device waits for the host",
    "M": "Memory: bytes that need not move",
    "C": "Compute: arithmetic that could run faster",
    "N": "Communication between devices",
    "D": "Input data and transfers",
    "R": "Capacity and recomputation",
    "Q": "Quality of the measurement itself",
}
CODE_CELLS = 6


def codes(conditions: Mapping[str, str], treatments: Mapping[str, str], page: Page) -> list[Line]:
    """All codes with their titles: the conditions by letter, then the treatments."""
    lines: list[Line] = []
    for letter in dict.fromkeys([*LETTERS, *(code[:1] for code in conditions)]):
        group = {code: title for code, title in conditions.items() if code.startswith(letter)}
        lines += _group(LETTERS.get(letter, letter), group, CODE_CELLS, page)
    widest = max((len(name) for name in treatments), default=0) + 2
    lines += _group("Treatments", treatments, widest, page)
    return [*lines, [(" gobrrr explain CODE shows one of them in full", "dim")]]


def _group(title: str, group: Mapping[str, str], cells: int, page: Page) -> list[Line]:
    if not group:
        return []
    lines: list[Line] = [[(f" {title}", "bold")]]
    for code in sorted(group):
        lines += page.wrapped(sanitise(group[code]), first=f"   {code:<{cells}}")
    return [*lines, []]


def machine(one: Machine, page: Page) -> list[Line]:
    """A machine's ceilings, each with where it is from; a ceiling that is not known says so."""
    about = page.joint.join(part for part in (one.vendor, one.architecture) if part)
    lines: list[Line] = [[(f" {one.name}", "bold"), (f"{page.joint}{about}" if about else "", "")]]
    for dtype, ceiling in one.matrix_flop_per_s.items():
        lines.append(_ceiling(f"matrix units, {dtype}", units.rate(ceiling.value, "FLOP"), ceiling, page))
    for dtype, ceiling in one.vector_flop_per_s.items():
        lines.append(_ceiling(f"vector units, {dtype}", units.rate(ceiling.value, "FLOP"), ceiling, page))
    rates = (
        ("memory bandwidth", one.memory_bytes_per_s),
        ("cache bandwidth", one.cache_bytes_per_s),
        ("links, both directions", one.link_bytes_per_s),
        ("host, one direction", one.host_bytes_per_s),
    )
    sizes = (("memory", one.memory_bytes), ("last cache", one.cache_bytes))
    lines += [_ceiling(name, units.rate(_value(ceiling)), ceiling, page) for name, ceiling in rates]
    lines += [_ceiling(name, units.bytes_(_value(ceiling)), ceiling, page) for name, ceiling in sizes]
    lines.append([(f"   {'processors':<28}{units.count(one.processors):>14}", "")])
    if one.observer is not None:
        lines += observer(one.observer, page)
    return [*lines, *_sources(one, page)]


def observer(costs: ObserverCosts, page: Page) -> list[Line]:
    """What the profiler adds to the host's time by kind of event, one row for each set of its switches."""
    lines: list[Line] = [[("   the profiler adds, an event", "")]]
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


def _sources(one: Machine, page: Page) -> list[Line]:
    """Each source once, and the notes."""
    rates = (one.memory_bytes_per_s, one.cache_bytes_per_s, one.link_bytes_per_s, one.host_bytes_per_s)
    flops = (*one.matrix_flop_per_s.values(), *one.vector_flop_per_s.values())
    ceilings = [ceiling for ceiling in (*flops, *rates, one.memory_bytes, one.cache_bytes, one.observer) if ceiling]
    lines: list[Line] = []
    for source in dict.fromkeys(ceiling.source for ceiling in ceilings if ceiling.source):
        lines += page.wrapped(f"source: {sanitise(source)}", first=" ", rest="   ", style="dim")
    for note in one.notes:
        lines += page.wrapped(sanitise(note), first=f" {page.glyphs.dot} ", style="dim")
    return lines
