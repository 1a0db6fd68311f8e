"""The budget of a step after a change: its changed graph is run, and the timeline read like any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gobrrr import units
from gobrrr.analysis.answer.verdict import regime_of
from gobrrr.analysis.budget.device import Key, budget_lines, device_budget, lines_of
from gobrrr.analysis.budget.idle import INPUT, host_time
from gobrrr.analysis.budget.lead import running
from gobrrr.analysis.events.steps import Steps
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import Priced
from gobrrr.analysis.replay.graph import F8, Mask, StepGraph, host_needs
from gobrrr.analysis.replay.simulator import Run, moved, replayed
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
AT_ROOF = ("compute", "memory")
"""The budget's lines that no better kernel and no better host makes shorter."""
ON_CPU = {"overhead": "dispatch and Python"}
"""The same where the host's processor is the device."""


@dataclass(frozen=True)
class Outcome:
    """A changed step's timeline and budget.

    `touched`: of each line what the change touches: work that takes another time than before, and all idle time where
    the host does something else.
    """

    events: EventTable
    steps: Steps
    lines: list[BudgetLine]
    regime: Regime
    then: str
    touched: Mapping[Key, float] = field(default_factory=dict)

    @property
    def ns(self) -> float:
        """What the step takes."""
        return sum(line.ns for line in self.lines)


def outcome(
    evidence: Evidence, graph: StepGraph, priced: Priced, wall_ns: float | None, ran: Run | None = None
) -> Outcome:
    """Run a graph of `evidence`'s trace and budget it: `priced` has the floors' sides.

    `wall_ns`: the step's time, which the lines sum to; None: what it runs for. `ran`: how it ran, where other ranks had
    a part in it.
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
    scale = 1.0 / max(steps.count, 1) if wall_ns is None else wall_ns / total if total > 0 else 0.0
    touched = lines_of(budget, changed, events, changed_work(evidence.graph, graph))
    if hosts(evidence.graph, graph):
        touched |= {key: ns for key, ns in budget.lines.items() if key[0] == "overhead"}
    part, lines = ({key: ns * scale for key, ns in sums.items()} for sums in (touched, budget.lines))
    return _told(Outcome(events, steps, [], "unknown", "", part), lines, cpu=graph.serial)


def scaled(found: Outcome, factor: float, *, cpu: bool) -> Outcome:
    """The same where everything takes `factor` times as long."""
    touched, lines = ({key: ns * factor for key, ns in sums.items()} for sums in (found.touched, _sums(found.lines)))
    return _told(replace(found, touched=touched), lines, cpu=cpu)


def changed_work(before: StepGraph, after: StepGraph) -> Mask:
    """One flag a piece of device work: whether it takes another time than before, runs no more or on another stream."""
    result: Mask = (after.duration != before.duration) | (after.gone != before.gone) | (after.stream != before.stream)
    return result


def hosts(before: StepGraph, after: StepGraph) -> bool:
    """Whether the host does something else than before, or no longer waits."""
    return not (np.array_equal(after.left, before.left) and np.array_equal(after.cut, before.cut))


def brought_to(found: Outcome, now: Sequence[BudgetLine], step_ns: float, *, cpu: bool) -> Outcome:
    """The budget of a step of `step_ns`, where its graph runs for another time than that; `now`: before the change.

    Only what the change touches makes the difference: what is saved less than the graph says comes back where it was
    taken, below the roof; what is saved more is taken from the rest of what is touched, last from what is at its roof.
    """
    lines = _sums(found.lines)
    more = step_ns - found.ns
    if more > 0:
        taken = _sums(now)
        back = {key: taken.get(key, 0.0) - lines.get(key, 0.0) for key in {**lines, **taken}}
        saved = sum(back.values())
        part = min(more / saved, 1.0) if saved > 0 else 0.0
        for key, ns in back.items():
            # what is left to do at its roof is known: a kernel that takes longer is further below it
            kept: Key = ("below_roof", key[0]) if key[0] in AT_ROOF and ns > 0 else key
            lines[kept] = lines.get(kept, 0.0) + part * ns
        more -= part * max(saved, 0.0)
    off_roof = {key: ns for key, ns in found.touched.items() if key[0] not in AT_ROOF}
    for touched in (off_roof, found.touched, lines):
        more = _shared_out(lines, more, touched)
    return _told(found, lines, cpu=cpu)


def _shared_out(lines: dict[Key, float], more: float, among: Mapping[Key, float]) -> float:
    """Makes `lines` longer by `more` (shorter, where it is below 0) in proportion to `among`; what did not fit."""
    room = {key: min(ns, lines.get(key, 0.0)) for key, ns in among.items()}
    whole = sum(room.values())
    part = max(more / whole, -1.0) if whole > 0 else 0.0
    for key, ns in room.items():
        lines[key] = lines.get(key, 0.0) + part * ns
    return more - part * whole


def waiting_for_input(found: Outcome, ns: float, *, cpu: bool) -> Outcome:
    """A step that takes longer than its graph runs: for the rest the device waits for its input."""
    lines = _sums(found.lines)
    lines["overhead", INPUT] = lines.get(("overhead", INPUT), 0.0) + ns
    return _told(found, lines, cpu=cpu)


def _sums(lines: Sequence[BudgetLine]) -> dict[Key, float]:
    return {(line.line, line.cause): line.ns for line in lines}


def _told(found: Outcome, lines: Mapping[Key, float], *, cpu: bool) -> Outcome:
    """The outcome with these lines, and what they say. `cpu`: host and device are one processor."""
    made = budget_lines(dict(lines), sum(lines.values()))
    return replace(found, lines=made, regime=regime_of(made), then=largest(made, cpu=cpu))


def largest(lines: list[BudgetLine], *, cpu: bool) -> str:
    """What the largest part of the step is, in words. `cpu`: host and device are one processor."""
    sums: dict[str, float] = {}
    for line in lines:
        what = "input" if line.line == "overhead" and line.cause == INPUT else line.line
        sums[what] = sums.get(what, 0.0) + line.share
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
