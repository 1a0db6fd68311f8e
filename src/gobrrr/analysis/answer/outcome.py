"""The budget of a step after a change: run the changed graph, then analyse its timeline like any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gobrrr import units
from gobrrr.analysis.answer.verdict import regime_of
from gobrrr.analysis.budget.device import Key, budget_lines, device_budget, lines_of
from gobrrr.analysis.budget.idle import INPUT_CAUSE, host_time
from gobrrr.analysis.budget.lead import running
from gobrrr.analysis.events.steps import StepWindow
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import Priced
from gobrrr.analysis.replay.graph import F8, Mask, StepGraph, host_needs
from gobrrr.analysis.replay.simulator import GraphRun, moved, replayed
from gobrrr.model.diagnosis import BudgetLine, MovedOp, Regime
from gobrrr.model.events import I8, EventTable

LEAST_MOVED_SHARE = 0.005
"""A kind of call whose time changes by less than this share is not listed as moved. Chosen, not measured."""

LINE_WORDS = {
    "compute": "computing at its roof",
    "memory": "memory traffic at its roof",
    "below_roof": "kernels below their roof",
    "unpriced": "kernels whose least time is unknown",
    "communication": "exposed communication",
    "transfer": "copies that nothing hides",
    "overhead": "the device waiting for the host",
    "input": "waiting for input",
}
"""The budget's lines in words."""

LINE_WORDS_ON_CPU = {"overhead": "dispatch and Python"}
"""Those that differ where the host's processor is the device."""

AT_ROOF_LINES = ("compute", "memory")
"""The budget's lines that neither a better kernel nor a faster host makes shorter."""


@dataclass(frozen=True)
class Outcome:
    """A changed step's timeline and budget.

    `then`: the largest part of the step, in words. `touched`: the part of each line that the change affects: work whose
    time changes, and all idle time where the host's work changes.
    """

    events: EventTable
    steps: StepWindow
    lines: list[BudgetLine]
    regime: Regime
    then: str
    touched: Mapping[Key, float] = field(default_factory=dict)

    @property
    def ns(self) -> float:
        """What the step takes."""
        return sum(line.ns for line in self.lines)


def outcome(
    evidence: Evidence, graph: StepGraph, priced: Priced, wall_ns: float | None, ran: GraphRun | None = None
) -> Outcome:
    """Run a graph of `evidence`'s trace and make its budget.

    `priced`: says whether compute or memory bounds each floor. `wall_ns`: the step's time, which the lines sum to;
    None: the time that the run takes. `ran`: the run, where it was made together with other ranks.
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
    touched, lines = ({key: ns * scale for key, ns in sums.items()} for sums in (touched, budget.lines))
    return _with_lines(Outcome(events, steps, [], "unknown", "", touched), lines, cpu=graph.serial)


def scaled(before: Outcome, factor: float, *, cpu: bool) -> Outcome:
    """The outcome with all times multiplied by `factor`."""
    touched, lines = ({key: ns * factor for key, ns in sums.items()} for sums in (before.touched, _sums(before.lines)))
    return _with_lines(replace(before, touched=touched), lines, cpu=cpu)


def changed_work(before: StepGraph, after: StepGraph) -> Mask:
    """One flag a piece of device work: whether its time or its stream changes, or it no longer runs."""
    result: Mask = (after.duration != before.duration) | (after.gone != before.gone) | (after.stream != before.stream)
    return result


def hosts(before: StepGraph, after: StepGraph) -> bool:
    """Whether the host's work or its waits change."""
    return not (np.array_equal(after.left, before.left) and np.array_equal(after.cut, before.cut))


def brought_to(changed: Outcome, now: Sequence[BudgetLine], step_ns: float, *, cpu: bool) -> Outcome:
    """The budget scaled to a step of `step_ns`, where the graph runs for another time; `now`: before the change.

    Only lines that the change affects take up the difference. If the step saves less than the graph says, the lines
    that were shortened get the time back, as time below the roof. If it saves more, the lines that the change affects
    get shorter: those at their roof last.
    """
    lines = _sums(changed.lines)
    more = step_ns - changed.ns
    if more > 0:
        before = _sums(now)
        shortened = {key: before.get(key, 0.0) - lines.get(key, 0.0) for key in {**lines, **before}}
        saved = sum(shortened.values())
        part = min(more / saved, 1.0) if saved > 0 else 0.0
        for key, ns in shortened.items():
            # the time at the roof is known: a kernel that takes longer is further below it
            longer: Key = ("below_roof", key[0]) if key[0] in AT_ROOF_LINES and ns > 0 else key
            lines[longer] = lines.get(longer, 0.0) + part * ns
        more -= part * max(saved, 0.0)
    off_roof = {key: ns for key, ns in changed.touched.items() if key[0] not in AT_ROOF_LINES}
    for touched in (off_roof, changed.touched, lines):
        more = _shared_out(lines, more, touched)
    return _with_lines(changed, lines, cpu=cpu)


def _shared_out(lines: dict[Key, float], more: float, among: Mapping[Key, float]) -> float:
    """Lengthen `lines` by `more` (shorten them, where it is negative) in proportion to `among`; return the rest."""
    room = {key: min(ns, lines.get(key, 0.0)) for key, ns in among.items()}
    whole = sum(room.values())
    part = max(more / whole, -1.0) if whole > 0 else 0.0
    for key, ns in room.items():
        lines[key] = lines.get(key, 0.0) + part * ns
    return more - part * whole


def waiting_for_input(before: Outcome, ns: float, *, cpu: bool) -> Outcome:
    """The outcome with `ns` more in which the device waits for its input."""
    lines = _sums(before.lines)
    lines["overhead", INPUT_CAUSE] = lines.get(("overhead", INPUT_CAUSE), 0.0) + ns
    return _with_lines(before, lines, cpu=cpu)


def _sums(lines: Sequence[BudgetLine]) -> dict[Key, float]:
    return {(line.line, line.cause): line.ns for line in lines}


def _with_lines(before: Outcome, lines: Mapping[Key, float], *, cpu: bool) -> Outcome:
    """The outcome with these lines, and the regime that follows. `cpu`: host and device are one processor."""
    budget = budget_lines(dict(lines), sum(lines.values()))
    return replace(before, lines=budget, regime=regime_of(budget), then=largest(budget, cpu=cpu))


def largest(lines: list[BudgetLine], *, cpu: bool) -> str:
    """The largest part of the step, in words. `cpu`: host and device are one processor."""
    sums: dict[str, float] = {}
    for line in lines:
        side = "input" if line.line == "overhead" and line.cause == INPUT_CAUSE else line.line
        sums[side] = sums.get(side, 0.0) + line.share
    if not sums:
        return ""
    most = max(sums, key=lambda line: sums[line])
    part = "most" if sums[most] > 0.5 else "the largest part"
    line_words = {**LINE_WORDS, **LINE_WORDS_ON_CPU} if cpu else LINE_WORDS
    return f"{part} of the step is {line_words[most]} ({units.percent(sums[most])})"


def moved_ops(evidence: Evidence, graph: StepGraph, row_of_group: I8, priced: Priced) -> list[MovedOp]:
    """The rows of `Diagnosis.ops` whose time changes with the graph, with their new time in a step.

    `row_of_group`: the row of each of `evidence.priced.groups`, -1 for none; `priced`: with the floors of the machine
    that the graph runs on, before any treatment.
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
            calls = float((evidence.calls.group == at).sum())
            bytes_[int(row_of_group[at])] = group.work.bytes * calls / count
    moved = np.flatnonzero(np.abs(new - old) > LEAST_MOVED_SHARE * np.maximum(old, 1.0))
    return [
        MovedOp(
            op=int(op),
            ns=float(new[op]),
            floor_ns=float(floors[op]) if floors_before[op] > 0 else None,
            bytes=_bytes(float(bytes_[op]), float(floors_before[op]), float(floors[op])),
        )
        for op in moved
    ]


def in_window(evidence: Evidence) -> Mask:
    """One flag a piece of device work: whether it runs in the analysed steps."""
    start = evidence.replayed.start_ns[evidence.priced.links.device]
    result: Mask = (start >= evidence.steps.start) & (start < evidence.steps.stop)
    return result


def _bytes(bytes_: float, before: float, after: float) -> float | None:
    """Bytes of calls whose floor went from `before` to `after` by less traffic; None where they are not known."""
    if not bytes_ or not before:
        return None
    return bytes_ * min(after / before, 1.0)
