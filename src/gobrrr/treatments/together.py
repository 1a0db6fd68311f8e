"""Treatments applied together, on this machine or another: their changes composed, and the step replayed once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from gobrrr.analysis.budget import budget_lines
from gobrrr.analysis.elsewhere import ELSEWHERE, on_machine, repriced, without_floor
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import EXPECTED, LEAST, MOST, Effect, Plan, Stopwatch
from gobrrr.analysis.graph import StepGraph
from gobrrr.analysis.idle import INPUT
from gobrrr.analysis.observer import REPEATABLE
from gobrrr.analysis.outcome import Outcome, in_window, largest, moved_ops, outcome
from gobrrr.analysis.path import path_of
from gobrrr.analysis.predictive import BUSY, DEVICE, HOST, Replayed, mechanism_of, predicted, spread_of
from gobrrr.analysis.price import Priced
from gobrrr.analysis.regions import EMPTY_NS
from gobrrr.analysis.verdict import regime_of
from gobrrr.analysis.what_if import Change, in_turn, unchanged
from gobrrr.fitted import Spread
from gobrrr.model.diagnosis import Wall, WhatIf
from gobrrr.model.events import I8
from gobrrr.model.machine import Machine
from gobrrr.treatments.asking import word_of
from gobrrr.treatments.base import Planned
from gobrrr.units import percent

TELLING = 0.05
"""A smaller share of the device's time without a roof changes no figure that is shown."""

NARROWER = ("bf16-autocast", "bf16-cast")
"""Applied before what merges calls: each of those is narrowed as the call that it was."""

FIRST, LAST = ("remove-sync", "grouped-matmul"), ("cuda-graph", "larger-batch")
"""A graph can be captured once no wait is left in the step; the host's time is scaled once nothing else changes it."""

AT_ROOF = ("compute", "memory")
"""The budget's lines that no better kernel and no better host makes shorter."""

MATRIX = (("bf16-autocast", "bfloat16"), ("bf16-cast", "bfloat16"), ("tf32", "tf32"))
"""What treatments make of float32 contractions: on another machine it is the ceiling of this type that they follow."""


ALTERNATIVES = (
    ("bf16-autocast", "tf32"), ("bf16-cast", "tf32"), ("bf16-cast", "bf16-autocast"),
    ("grouped-matmul", "batched-loop"),
)  # fmt: skip
"""(better, worse) treatments of the same work: of the two the first counts."""


COVERED = (("compile", "channels-last"), ("compile", "pad-dimensions"))
"""(treatment, what it does by itself): for a finding that both are for, the first counts."""


Interval = tuple[tuple[float, float, float], tuple[float, float]]
"""A changed step with its ends, and the ends of what is saved of the step as it is, in ns."""

Saving = tuple[float, float, float]
"""What is expected to be saved of a step, at the least and at the most, in ns."""


@dataclass(frozen=True)
class Together:
    """A combination's record, and its step's replayed timeline."""

    what_if: WhatIf
    outcome: Outcome
    graph: StepGraph


@dataclass(frozen=True)
class Seat:
    """One rank: its evidence, the plans that were made for it, and the row of `Diagnosis.ops` of each kind of call."""

    evidence: Evidence
    plans: tuple[Planned, ...]
    row_of_group: I8

    def of(self, names: Sequence[str]) -> list[Plan]:
        """The plans of some treatments, in the order in which they are applied; of alternatives the better one's."""
        left_out = {worse for better, worse in ALTERNATIVES if better in names and self.has(better)}
        mine = [one for one in self.plans if one[0] in names and one[0] not in left_out]
        mine = [one for one in mine if not self._covered(one, names)]
        kept, done = [], set()
        for name, _, plan in sorted(mine, key=_turn):
            if name not in done:
                kept.append(plan)
            if plan.once:
                done.add(name)
        return kept

    def _covered(self, one: Planned, names: Sequence[str]) -> bool:
        """Whether another treatment of `names` does for a finding what this one is for."""
        name, found, _ = one
        if found is None:
            return False
        by = {better for better, worse in COVERED if worse == name and better in names}
        return any(name in by and other is not None and other.finding.code == found.finding.code
                   for name, other, _ in self.plans)  # fmt: skip

    def for_finding(self, code: str) -> Seat:
        """The rank with the plans for one finding alone."""
        mine = (one for one in self.plans if one[1] is not None and one[1].finding.code == code)
        return replace(self, plans=tuple(mine))

    def has(self, name: str) -> bool:
        """Whether a treatment has a plan here."""
        return any(name == own for own, _, _ in self.plans)

    def matrix(self, names: Sequence[str]) -> str | None:
        """The type that float32 contractions run in with some treatments; None: their own."""
        applied = {name for name, _, _ in self.plans if name in names}
        return next((dtype for name, dtype in MATRIX if name in applied), None)


def _turn(one: Planned) -> tuple[bool, bool, bool, bool]:
    name, _, plan = one
    return word_of(name) in LAST, name not in FIRST, name not in NARROWER, plan.last


def as_uncertain(expected: float, gains: tuple[float, float], step_ns: float, wall: Wall) -> tuple[float, float]:
    """The ends of a saving that is expected of a step, no surer than the step itself is, and no more than all of it.

    Where the step takes less or more than expected, what the treatment leaves of it may be shorter or longer by no more
    than all of it: the rest of the difference is the saving's. It grows no more than the step does.
    """
    low, high = gains
    if wall.value is None or not wall.low or wall.high is None:
        return gains
    left = step_ns - expected
    less, more = (max(one - left, 0.0) for one in (wall.value - wall.low, wall.high - wall.value))
    most = min(expected + more, expected * wall.high / wall.value)
    return min(low, expected - less), min(max(high, most), step_ns)


class Combiner:
    """Replays a step under combinations of the plans that were made for it; several ranks run together.

    `spreads`: what was fitted beside the replay; None: what the package has, none: the replay alone.
    """

    def __init__(
        self,
        seats: Sequence[Seat],
        wall: Wall,
        watch: Stopwatch | None = None,
        spreads: Sequence[Spread] | None = None,
    ) -> None:
        self.seats = seats
        self.spreads = spreads
        self.wall = wall
        self.watch = watch or Stopwatch(*(one.evidence for one in seats), wall_ns=wall.value)
        self.before = self.watch.before(self.watch.middle)
        """The step as it is, in ns."""

    def of_step(self, step_ns: float) -> Combiner:
        """The same plans, for shares of the step at a time when it took `step_ns` (`Stopwatch.of_step`)."""
        watch, wall = self.watch.of_step(step_ns), self.wall
        if watch is self.watch:
            return self
        if wall.value:
            low, high = (None if one is None else one * step_ns / wall.value for one in (wall.low, wall.high))
            wall = msgspec.structs.replace(wall, value=step_ns, low=low, high=high)
        return Combiner(self.seats, wall, watch, self.spreads)

    def saving(self, names: Sequence[str]) -> Saving:
        """What all plans of the treatments `names` save of a step, by the replay and what was fitted beside it."""
        expected, low, high = (self.before * one for one in predicted(self.replayed(names), self.spreads))
        return expected, low, high

    def replayed(self, names: Sequence[str], interval: Interval | None = None) -> Replayed:
        """What the replay itself says of all plans of the treatments `names`, in shares of the step. `interval`: where
        that is known already."""
        (step, _, _), (low, high) = interval or self._interval(names, None)
        expected, whole = self.before - step, self.before or 1.0
        evidence = self.seats[0].evidence
        mine = [name for name in names if self.seats[0].has(name)]
        work = work_of(self.seats[0].of(names))
        return Replayed(
            expected=expected / whole,
            low=min(low, expected) / whole,
            high=max(high, expected) / whole,
            touched=self._most(names, work),
            mechanism=mechanism_of(mine, work),
            bound=DEVICE if path_of(evidence).busy > BUSY * whole else HOST,
            device="cpu" if evidence.on_cpu else "cuda",
        )

    def _most(self, names: Sequence[str], work: float) -> float:
        """The largest share of the step that `names` can save: of a step that does more work as much as if that took no
        time."""
        if work == 1.0:
            return self.touched(names) / (self.before or 1.0)
        return 1.0 - 1.0 / work if len(names) == 1 and work > 1.0 else 1.0

    def touched(self, names: Sequence[str]) -> float:
        """What of a step the plans of `names` touch, in ns: work that they change, and the idle time where they change
        what the host does, or what lies outside the analysed steps; of what is captured the kernels' launches on the
        device. No more can be saved."""
        evidence, mine = self.seats[0].evidence, self.seats[0].of(names)
        before = evidence.graph
        after = self._changes(names, MOST, None)[0](before)
        moved = (after.duration != before.duration) | (after.gone != before.gone) | (after.stream != before.stream)
        busy = min(path_of(evidence).busy, self.before)
        work = float(before.duration[moved & in_window(evidence)].sum()) / evidence.steps.count
        captured = after.gap != before.gap
        work += (
            float(np.minimum(before.duration, EMPTY_NS)[captured & in_window(evidence)].sum()) / evidence.steps.count
        )
        hosted = not (np.array_equal(after.left, before.left) and np.array_equal(after.cut, before.cut))
        idle = self.before - busy if hosted or len(self.seats) > 1 or any(one.least_ns[1] for one in mine) else 0.0
        return min(min(work, busy) + idle + sum(one.beyond for one in mine), self.before)

    def saving_for(self, name: str, code: str) -> float:
        """What a treatment saves of a step by its plan for one finding alone, as the replay has it, in ns."""
        alone = Combiner([one.for_finding(code) for one in self.seats], self.wall, self.watch)
        after = alone._after([name], None, EXPECTED, 0.0, self.watch.middle)
        return self.before - after + sum(one.beyond + one.beyond_low for one in alone.seats[0].of([name])) / 2

    def combined(self, names: Sequence[str], machine: Machine | None = None) -> Together:
        """The step with all plans of the treatments `names`; `machine` None: where it ran.

        A treatment without a plan changes nothing. The budget is that of the first rank. Raises ValueError where
        `machine` can't be compared.
        """
        mine = self.seats[0].of(names)
        interval = self._interval(names, machine)
        (step, low, high), saved = interval
        lead = self.seats[0].evidence
        priced = lead.priced if machine is None else repriced(lead.priced, machine)
        found, graph = self._outcome(names, machine, priced, step)
        told = self.replayed(names, interval) if mine and machine is None else None
        if told is not None and spread_of(told, self.spreads) is not None:
            expected, least, most = (self.before * one for one in predicted(told, self.spreads))
            step, low, high = (max(self.before - one, 0.0) for one in (expected, most, least))
            saved = least, most
            found = _scaled(found, step)
        record = WhatIf(
            treatments=list(names),
            machine=machine.name if machine is not None else None,
            step_ns=step,
            low_ns=low,
            high_ns=high,
            expected_ns=self.before - step,
            saving_ns=saved,
            regime=found.regime,
            lines=found.lines,
            then=found.then,
            assumes=[*dict.fromkeys(one.assumes for one in mine if one.assumes), *self._told(names, machine)],
            ops=moved_ops(lead, graph, self.seats[0].row_of_group, priced) if mine or machine is not None else [],
            work=work_of(mine),
        )
        return Together(record, found, graph)

    def bounded(self, names: Sequence[str], step_ns: float) -> Outcome:
        """What bounds a step that all plans of `names` bring to `step_ns`, in the proportions of the replay."""
        outside = sum(one.beyond + one.beyond_low for one in self.seats[0].of(names)) / 2
        step = max(self._after(names, None, EXPECTED, 0.0, self.watch.middle) - outside, 0.0)
        return _scaled(self._outcome(names, None, self.seats[0].evidence.priced, step)[0], step_ns)

    def _outcome(
        self, names: Sequence[str], machine: Machine | None, priced: Priced, step_ns: float
    ) -> tuple[Outcome, StepGraph]:
        changes = self._changes(names, EXPECTED, machine)
        graphs = [change(one.evidence.graph) for change, one in zip(changes, self.seats, strict=True)]
        ran = self.watch.runs(graphs)[0] if len(graphs) > 1 else None
        lead = self.seats[0].evidence
        found = outcome(lead, graphs[0], priced, min(step_ns, self._run(names, machine)), ran)
        return _bounded(found, step_ns, cpu=graphs[0].serial), graphs[0]

    def _run(self, names: Sequence[str], machine: Machine | None) -> float:
        """The step as its graphs run, whatever else bounds it."""
        return self.watch.after(self._changes(names, EXPECTED, machine)) / work_of(self.seats[0].of(names))

    def _told(self, names: Sequence[str], machine: Machine | None) -> list[str]:
        """What is assumed of alternatives and of the machine."""
        seat = self.seats[0]
        told = [
            f"{worse}: {better} is for the same work and stands for both"
            for better, worse in ALTERNATIVES
            if {better, worse} <= set(names) and seat.has(better)
        ]
        if machine is None:
            return told
        told.append(f"every kernel reaches the same share of its roof on {machine.name}; the host is the same one")
        unknown = without_floor(seat.evidence, machine)
        if unknown >= TELLING:
            told.append(
                f"{percent(unknown)} of the device's time has no roof there and follows the memories' bandwidth"
            )
        return told

    def _interval(self, names: Sequence[str], machine: Machine | None) -> Interval:
        """((the step as expected, its low and its high end), what is saved at least and at most): no step below 0.

        A saving at an end of what is known of the host is the share of that end's step, of the step that is expected;
        at the least, on the same machine, it is no more than the milliseconds that it is there.
        """
        after = self._after(names, machine, EXPECTED, 0.0, self.watch.middle)
        before = [self.watch.before(end) for end in range(self.watch.ends)]
        now, corners, saved = before[self.watch.middle], [], [before[self.watch.middle] - after]
        for end in sorted({0, len(before) - 1}):
            for share, off in ((LEAST, ELSEWHERE), (MOST, -ELSEWHERE)):
                corners.append(self._after(names, machine, share, off, end))
                saved.append(now * (1 - corners[-1] / before[end]) if before[end] > 0 else 0.0)
        mine = self.seats[0].of(names)
        bound, touched = now - min(after, *corners), now
        if machine is None and work_of(mine) == 1.0:
            touched = self.watch.touched(self._changes(names, MOST, machine))
        saved = [min(one, bound, touched) for one in saved]
        there = [] if machine is not None else [before[0] - one for one in corners[:2]]
        most, least = sum(one.beyond for one in mine), sum(one.beyond_low for one in mine)
        ends = after - (most + least) / 2, min(*corners, after) - most, max(*corners, after) - least
        step, low, high = (max(one, 0.0) for one in ends)
        wall = self.wall
        gains = min(min(*saved, *there) + least, now), min(max(saved) + most, now)
        if mine or machine is not None:
            widened = as_uncertain(now - step, gains, now, wall)
            gains = widened[0], max(min(widened[1], touched + most), gains[1])
        if not mine and machine is None and wall.low is not None and wall.high is not None:
            return (step, min(wall.low, step), max(wall.high, step)), gains
        if machine is not None and wall.value:
            # what is not known of the step here is not known there
            low, high = (min(low, step * (wall.low or 0.0) / wall.value),
                         max(high, step * (wall.high or wall.value) / wall.value))  # fmt: skip
        # what is not known of the change and what a step varies by are independent of each other
        alone = REPEATABLE * step
        return (step, max(step - math.hypot(step - low, alone), 0.0), step + math.hypot(high - step, alone)), gains

    def _after(self, names: Sequence[str], machine: Machine | None, share: float, off: float, end: int) -> float:
        mine = self.seats[0].of(names)
        least = max((one.bound(share) for one in mine), default=0.0)
        return max(self.watch.after(self._changes(names, share, machine, off), end), least) / work_of(mine)

    def _changes(self, names: Sequence[str], share: float, machine: Machine | None, off: float = 0.0) -> list[Change]:
        """The change for each rank."""
        made = []
        for seat in self.seats:
            effects: list[Effect] = [one.effect for one in seat.of(names) if one.effect is not None]
            own = in_turn([one(share) for one in effects]) if effects else unchanged
            if machine is not None:
                # first, so that what is merged has been scaled each by its own floor
                own = in_turn([on_machine(seat.evidence, machine, off, seat.matrix(names)), own])
            made.append(own)
        return made


def _bounded(found: Outcome, step_ns: float, *, cpu: bool) -> Outcome:
    """An outcome whose step takes longer than its graph runs: the rest of it the device waits for its input.

    `cpu`: host and device are one processor.
    """
    rest = step_ns - sum(one.ns for one in found.lines)
    if rest <= 1e-6 * step_ns:
        return found
    sums: dict[tuple[str, str | None], float] = {(one.line, one.cause): one.ns for one in found.lines}
    sums["overhead", INPUT] = sums.get(("overhead", INPUT), 0.0) + rest
    lines = budget_lines(sums, step_ns)
    return replace(found, lines=lines, regime=regime_of(lines), then=largest(lines, cpu=cpu))


def _scaled(found: Outcome, step_ns: float) -> Outcome:
    """The same budget of a step that takes so long: work at its roof stays as long as it is, the rest makes the
    difference; all of it only where the rest is not enough."""
    total, floors = (
        sum(one.ns for one in found.lines if among is None or one.line in among) for among in (None, AT_ROOF)
    )
    kept = floors if floors < min(step_ns, total) else 0.0
    factor = (step_ns - kept) / (total - kept) if total > kept else 0.0
    sums: dict[tuple[str, str | None], float] = {}
    if total > 0:
        sums = {
            (one.line, one.cause): one.ns if kept and one.line in AT_ROOF else one.ns * factor for one in found.lines
        }
    return replace(found, lines=budget_lines(sums, step_ns))


def work_of(mine: Sequence[Plan]) -> float:
    """How many times today's work a step does with some plans."""
    result = 1.0
    for one in mine:
        result *= one.work
    return result
