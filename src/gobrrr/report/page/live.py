"""What a live run measured beside the profiler's events: each step's time, and the program's settings and memory."""

from __future__ import annotations

from gobrrr import units
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.model.live import Live
from gobrrr.report.page.markup import Markup, el, section

BARS_HEIGHT_PX, BAR_WIDTH_PX, BAR_GAP_PX = 60, 18, 4
"""Height of the bars, width of a bar and space between bars, in pixels."""

Fact = tuple[str, str]


def run(diagnosis: Diagnosis) -> Markup | None:
    """The section of a live run; None for other diagnoses."""
    found = diagnosis.live
    if found is None:
        return None
    count = len(found.times.ns)
    lead = (
        f"{units.things(count, 'step')} ran without the profiler after {found.warmup_steps} of warm-up, then "
        f"{found.profiled_steps} with it. "
        + ("The budget is that of the median step without it." if count else "The time without it is estimated.")
    )
    facts = [el("div", el("dt", name), el("dd", value)) for name, value in _facts(found)]
    waits = [el("li", el("code", where.source), f" {units.a_step(where.count)}") for where in found.syncs or ()]
    return section(
        "live",
        "The run",
        el("figure", _bars(found), el("figcaption", _times(found))) if count else None,
        el("dl", facts, class_="sums"),
        el("h3", "Lines that wait for the device") if waits else None,
        el("ul", waits, class_="plain") if waits else None,
        lead=lead,
    )


def _bars(found: Live) -> Markup:
    """Each step as a bar on a scale from 0, and the median as a line."""
    ns, median = found.times.ns, found.times.median_ns
    most = max(*ns, median)
    width = len(ns) * (BAR_WIDTH_PX + BAR_GAP_PX)
    bars = [
        el(
            "rect",
            el("title", f"step {at + 1}: {units.duration(step_ns)}"),
            x=at * (BAR_WIDTH_PX + BAR_GAP_PX),
            y=round(BARS_HEIGHT_PX * (1 - step_ns / most), 1),
            width=BAR_WIDTH_PX,
            height=round(BARS_HEIGHT_PX * step_ns / most, 1),
            fill="var(--memory)",
        )
        for at, step_ns in enumerate(ns)
    ]
    level = round(BARS_HEIGHT_PX * (1 - median / most), 1)
    line = el("line", x1=0, x2=width, y1=level, y2=level, stroke="currentColor", stroke_dasharray="3 3")
    label = f"{units.things(len(ns), 'step')}, median {units.duration(median)}"
    return el(
        "svg",
        bars,
        line,
        viewBox=f"0 0 {width} {BARS_HEIGHT_PX}",
        width=width,
        height=BARS_HEIGHT_PX,
        role="img",
        aria_label=label,
    )


def _times(found: Live) -> str:
    times = found.times
    drift = "" if times.drift is None else f"; the last third is {units.percent(abs(times.drift))} "
    drift += "" if times.drift is None else ("slower" if times.drift > 0 else "faster") + " than the first"
    clock = "the device's events" if times.clock == "device" else "the host's clock"
    spread = units.duration_range(times.low_ns, times.high_ns)
    return f"median {units.duration(times.median_ns)}, quartiles {spread}, by {clock}{drift}"


def _facts(found: Live) -> list[Fact]:
    rows: list[Fact] = [("where a step begins", found.steps_from)] if found.steps_from else []
    memory, threads, collector, compiled = found.memory, found.threads, found.collector, found.compiled
    if memory is not None and memory.peak_bytes is not None:
        of = f" of {units.bytes_(memory.capacity_bytes)}" if memory.capacity_bytes else ""
        rows.append(("memory peak", f"{units.bytes_(memory.peak_bytes)}{of}"))
    if memory is not None and memory.mallocs is not None:
        calls = f"{units.things(memory.mallocs, 'allocation')} and {units.a_step(memory.frees, 'free')}"
        rows.append(("the allocator asks the driver for", calls))
    if threads is not None:
        rows.append(("threads", f"{threads.intra} in an operation, {units.things(threads.available, 'processor')}"))
    if collector is not None:
        state = f"{units.things(len(collector.runs), 'run')} in {units.things(collector.steps, 'step')}"
        state += f", {units.duration(collector.ns_per_step)} a step"
        rows.append(("garbage collection", state if collector.enabled else "off"))
    if compiled is not None and compiled.graphs:
        breaks = sum(graph_break.count for graph_break in compiled.breaks)
        made = f"{units.things(compiled.graphs, 'graph')}, {units.things(breaks, 'break')}"
        rows.append(("torch.compile", f"{made}, {compiled.steady_compiles} recompiled after warm-up"))
    if found.counted is not None and found.counted.flop is not None:
        rows.append(("FLOPs as dispatched", units.flop(found.counted.flop)))
    if found.scaling is not None:
        first = found.scaling.points[0][1]
        rows += [
            (f"batch x{units.count(factor)}", f"{units.duration(ns)}, {ns / first:.2f} times as long")
            for factor, ns, _ in found.scaling.points[1:]
        ]
    return rows
