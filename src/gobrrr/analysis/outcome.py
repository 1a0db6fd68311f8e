"""The budget of a step after a change: its changed graph is run, and the timeline read like any other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gobrrr import units
from gobrrr.analysis.budget import budget_lines, device_budget
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.graph import F8, Mask, StepGraph, host_needs
from gobrrr.analysis.idle import INPUT, host_time
from gobrrr.analysis.lead import running
from gobrrr.analysis.price import Priced
from gobrrr.analysis.replay import Run, moved, replayed
from gobrrr.analysis.steps import Steps
from gobrrr.analysis.verdict import regime_of
from gobrrr.model.diagnosis import BudgetLine, MovedOp, Regime
from gobrrr.model.events import I8, EventTable

MOVED = 0.005
"""A kind of call whose time changes by less than this share is not listed as moved."""

WORDS = {
    "compute": "computing at its roof",
    "memory": "memory traffic at its roof",
    "below_roof": "kernels below their roof",
    "unpriced": "kernels whose least time is unknown",
    "communication": "exposed communication",
    "transfer": "copies that nothing hides",
    "overhead": "the device waiting for the host",
    "input": "waiting for input",
}
ON_CPU = {"overhead": "dispatch and Python"}
"""The same where the host's processor is the device."""


@dataclass(frozen=True)
class Outcome:
    """A changed step's timeline and budget. The budget's lines sum to `wall_ns`."""

    events: EventTable
    steps: Steps
    lines: list[BudgetLine]
    regime: Regime
    then: str


def outcome(evidence: Evidence, graph: StepGraph, priced: Priced, wall_ns: float, ran: Run | None = None) -> Outcome:
    """Run a graph of `evidence`'s trace and budget it: `priced` has the floors' sides, `wall_ns` is the step's time.

    `ran`: how it ran, where other ranks had a part in it.
    """
    events = replayed(graph) if ran is None else moved(graph, ran)
    links = priced.links
    steps = evidence.steps_of(events)
    events, steps = (
        (events, steps)
        if graph.serial
        else running(events, links, steps, host_needs(graph, evidence.recorded_steps, steps.count))
    )
    changed = replace(priced, floor_ns=np.where(graph.gone, np.nan, graph.floor))
    budget = device_budget(events, changed, steps, evidence.budget.device, host_time(events, links))
    total = sum(budget.lines.values())
    scale = wall_ns / total if total > 0 else 0.0
    lines = budget_lines({key: ns * scale for key, ns in budget.lines.items()}, wall_ns)
    return Outcome(events, steps, lines, regime_of(lines), largest(lines, cpu=graph.serial))


def largest(lines: list[BudgetLine], *, cpu: bool) -> str:
    """What the largest part of the step is, in words. `cpu`: host and device are one processor."""
    sums: dict[str, float] = {}
    for one in lines:
        what = "input" if one.line == "overhead" and one.cause == INPUT else one.line
        sums[what] = sums.get(what, 0.0) + one.share
    if not sums:
        return ""
    most = max(sums, key=lambda line: sums[line])
    part = "most" if sums[most] > 0.5 else "the largest part"
    return f"{part} of the step is {({**WORDS, **ON_CPU} if cpu else WORDS)[most]} ({units.percent(sums[most])})"


def moved_ops(evidence: Evidence, graph: StepGraph, row_of_group: I8, priced: Priced) -> list[MovedOp]:
    """The rows of `Diagnosis.ops` whose time a change of the graph alters, with what they then take in a step.

    `row_of_group`: the row of each of `evidence.priced.groups`, -1 for none; `priced`: with the floors of the machine
    that the graph is on, before any treatment.
    """
    before, after = evidence.graph, graph
    row = row_of_group[evidence.priced.group]
    inside = (row >= 0) & in_window(evidence)
    count = evidence.steps.count
    size = int(row.max(initial=-1)) + 1

    def sums(values: F8) -> F8:
        result: F8 = np.bincount(row[inside], weights=values[inside], minlength=size) / count
        return result

    old, new = sums(before.duration), sums(np.where(after.gone, 0.0, after.duration))
    floors = sums(np.nan_to_num(np.where(after.gone, 0.0, after.floor)))
    floors_before = sums(np.nan_to_num(priced.floor_ns))
    bytes_ = np.zeros(size)
    for at, group in enumerate(evidence.priced.groups):
        if row_of_group[at] >= 0 and group.work.bytes is not None:
            bytes_[int(row_of_group[at])] = group.work.bytes * _calls(evidence, at) / count
    moved = np.flatnonzero(np.abs(new - old) > MOVED * np.maximum(old, 1.0))
    return [
        MovedOp(
            op=int(one),
            ns=float(new[one]),
            floor_ns=float(floors[one]) if floors_before[one] > 0 else None,
            bytes=_bytes(float(bytes_[one]), float(floors_before[one]), float(floors[one])),
        )
        for one in moved
    ]


def in_window(evidence: Evidence) -> Mask:
    """One flag a piece of device work: whether it runs in the analysed steps."""
    start = evidence.replayed.start_ns[evidence.priced.links.device]
    result: Mask = (start >= evidence.steps.start) & (start < evidence.steps.stop)
    return result


def _calls(evidence: Evidence, group: int) -> float:
    return float((evidence.calls.group == group).sum())


def _bytes(bytes_: float, before: float, after: float) -> float | None:
    """Bytes of calls whose floor has changed by traffic that is no more; None where they are not known."""
    if not bytes_ or not before:
        return None
    return bytes_ * min(after / before, 1.0)
