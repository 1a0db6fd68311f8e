"""Treatments applied together, on this machine or another: their changes composed, and the step replayed once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec
import numpy as np

from gobrrr.analysis.answer.outcome import (
    Outcome,
    brought_to,
    changed_work,
    hosts,
    in_window,
    moved_ops,
    outcome,
    scaled,
    waiting_for_input,
)
from gobrrr.analysis.events.observer import REPEATABLE
from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of
from gobrrr.analysis.pricing.price import Priced
from gobrrr.analysis.replay.fitted import Spread
from gobrrr.analysis.replay.graph import StepGraph
from gobrrr.analysis.replay.predictive import Replayed, mechanism_of, predicted, spread_of
from gobrrr.analysis.replay.what_if import Change, in_turn, unchanged
from gobrrr.analysis.savings.elsewhere import ELSEWHERE, on_machine, repriced, without_floor
from gobrrr.analysis.savings.gains import EXPECTED, LEAST, MOST, Effect, Plan, Stopwatch
from gobrrr.analysis.savings.regions import EMPTY_NS
from gobrrr.model.diagnosis import Wall, WhatIf
from gobrrr.model.events import I8
from gobrrr.model.machine import Machine
from gobrrr.treatments.framework.asking import word_of
from gobrrr.treatments.framework.base import Planned
from gobrrr.units import duration, percent

LESS = 0.001
"""A smaller share of the step is not told."""

TELLING = 0.05
"""A smaller share of the device's time without a roof changes no figure that is shown."""

NARROWER = ("bf16-autocast", "bf16-cast")
"""Applied before what merges calls: each of those is narrowed as the call that it was."""

FIRST, LAST = ("remove-sync", "grouped-matmul"), ("cuda-graph", "larger-batch")
"""A graph can be captured once no wait is left in the step; the host's time is scaled once nothing else changes it."""

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
        mine = (plan for plan in self.plans if plan[1] is not None and plan[1].finding.code == code)
        return replace(self, plans=tuple(mine))

    def at(self, times: float) -> Seat:
        """The rank at a time when its step took `times` as long."""
        return replace(self, plans=tuple((name, found, plan.at(times)) for name, found, plan in self.plans))

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
        self.watch = watch or Stopwatch(*(seat.evidence for seat in seats), wall_ns=wall.value)
        self.before = self.watch.before(self.watch.middle)
        """The step as it is, in ns."""
        self._replays: dict[tuple[str, ...], Replayed] = {}

    def of_step(self, step_ns: float) -> Combiner:
        """The same plans, for shares of the step at a time when it took `step_ns` (`Stopwatch.of_step`)."""
        watch, wall = self.watch.of_step(step_ns), self.wall
        if watch is self.watch:
            return self
        if wall.value:
            low, high = (None if one is None else one * step_ns / wall.value for one in (wall.low, wall.high))
            wall = msgspec.structs.replace(wall, value=step_ns, low=low, high=high)
        return Combiner([seat.at(step_ns / self.before) for seat in self.seats], wall, watch, self.spreads)

    def saving(self, names: Sequence[str]) -> Saving:
        """What all plans of the treatments `names` save of a step: nothing at the least, as one is left out that makes
        it slower, and no more than the findings that they are for have at stake together.

        The one answer to what remedies save: prescriptions and what-ifs show it.
        """
        return self._at_stake(names, self._best(names))

    def foretold(self, names: Sequence[str]) -> Saving:
        """What a trial of the treatments `names` is expected to measure, below 0 where they may make the step slower:
        the replay, and what was fitted beside it; the step takes no less than its loaders need."""
        mine = self.seats[0].of(names)
        most = self.before - max((plan.bound(MOST) for plan in mine), default=0.0) / work_of(mine)
        expected, low, high = (min(self.before * one, most) for one in predicted(self.replayed(names), self.spreads))
        return expected, low, high

    def _best(self, names: Sequence[str]) -> Saving:
        """The same; of remedies of what was found no less than what one of them saves alone: the others can be left
        out."""
        alone = self._members(names) if self._named(names) else []
        each = [self.foretold(one) for one in (names, *alone)]
        expected, low, high = (max(one) for one in zip(*each, strict=True))
        return expected, low, high

    def _members(self, names: Sequence[str]) -> list[list[str]]:
        planned = [[name] for name in dict.fromkeys(names) if self.seats[0].of([name])]
        return planned if len(planned) > 1 else []

    def _fitted(self, names: Sequence[str]) -> bool:
        """Whether anything was fitted beside the replay for such a change."""
        return spread_of(self.replayed(names), self.spreads) is not None

    def _at_stake(self, names: Sequence[str], foretold: Saving) -> Saving:
        most = self.stake(names)
        if most is None:
            return foretold
        expected, low, high = (min(max(one, 0.0), most) for one in foretold)
        return expected, low, high

    def stake(self, names: Sequence[str]) -> float | None:
        """What the findings that name the treatments `names` have at stake together, in ns; None where none names one
        of them, or a step then does more work than now. What is hidden counts beside another treatment."""
        founds = self._named(names)
        if not founds or work_of([plan for name, _, plan in self.seats[0].plans if name in names]) != 1.0:
            return None
        told = sum(found.finding.at_stake_ns[1] for found in founds if found.told)
        hidden = sum(found.claim.total for found in founds if found.hidden) / self.seats[0].evidence.steps.count
        return min(told + (hidden if self._members(names) else 0.0), self.before)

    def _named(self, names: Sequence[str]) -> list[Found]:
        """The findings that name the treatments `names`; none, where one of those is named by none that is told."""
        every: dict[str, Found] = {}
        for mine in {name for name, _, _ in self.seats[0].plans if name in names}:
            founds = [found for name, found, _ in self.seats[0].plans if found is not None and name == mine]
            founds = [found for found in founds if word_of(mine) in found.finding.treatments]
            if not any(found.told for found in founds):
                return []
            every |= {found.finding.code: found for found in founds}
        return list(every.values())

    def replayed(self, names: Sequence[str]) -> Replayed:
        """What the replay itself says of all plans of the treatments `names`, in shares of the step."""
        key = tuple(names)
        if key not in self._replays:
            self._replays[key] = self._replayed(names)
        return self._replays[key]

    def _replayed(self, names: Sequence[str]) -> Replayed:
        (step, _, _), (low, high) = self._interval(names, None)
        expected, whole = self.before - step, self.before or 1.0
        mine = [name for name in names if self.seats[0].has(name)]
        work = work_of(self.seats[0].of(names))
        return Replayed(
            expected=expected / whole,
            low=min(low, expected) / whole,
            high=max(high, expected) / whole,
            touched=self._most(names, work),
            mechanism=mechanism_of(mine, work),
            device=self.seats[0].evidence.device.torch_name,
        )

    def _most(self, names: Sequence[str], work: float) -> float:
        """The largest share of the step that `names` can save: more work takes no time at the least, but for noise."""
        if work == 1.0:
            return self.touched(names) / (self.before or 1.0)
        return 1.0 - (1.0 - REPEATABLE) / work if len(names) == 1 and work > 1.0 else 1.0

    def touched(self, names: Sequence[str]) -> float:
        """What of a step the plans of `names` touch, in ns: work that they change, and the idle time where they change
        what the host does, or what lies outside the analysed steps; of what is captured the kernels' launches on the
        device. No more can be saved."""
        evidence, mine = self.seats[0].evidence, self.seats[0].of(names)
        before = evidence.graph
        after = self._changes(names, MOST, None)[0](before)
        moved = changed_work(before, after)
        busy = min(path_of(evidence).busy, self.before)
        work = float(before.duration[moved & in_window(evidence)].sum()) / evidence.steps.count
        captured = after.gap != before.gap
        work += (
            float(np.minimum(before.duration, EMPTY_NS)[captured & in_window(evidence)].sum()) / evidence.steps.count
        )
        fills = hosts(before, after) or len(self.seats) > 1 or any(plan.least_ns[1] for plan in mine)
        idle = self.before - busy if fills else 0.0
        return min(min(work, busy) + idle + sum(plan.beyond for plan in mine), self.before)

    def saving_for(self, name: str, found: Found) -> float:
        """What a treatment saves of a step by its plan for one finding alone, as the replay has it, in ns; no more than
        that has at stake."""
        alone = Combiner([seat.for_finding(found.finding.code) for seat in self.seats], self.wall, self.watch)
        after = alone._after([name], None, EXPECTED, 0.0, self.watch.middle)
        saved = self.before - after + sum(plan.beyond + plan.beyond_low for plan in alone.seats[0].of([name])) / 2
        return min(max(saved, 0.0), found.finding.at_stake_ns[1])

    def combined(self, names: Sequence[str], machine: Machine | None = None) -> Together:
        """The step with all plans of the treatments `names`; `machine` None: where it ran.

        A treatment without a plan changes nothing. The budget is that of the first rank. Raises ValueError where
        `machine` can't be compared.
        """
        mine, lead = self.seats[0].of(names), self.seats[0].evidence
        if mine and machine is None:
            foretold = self._best(names)
            expected, *ends = self._at_stake(names, foretold)
            saved = ends[0], ends[1]
            step = max(self.before - expected, 0.0)
            alone = 0.0 if self._fitted(names) else REPEATABLE * step
            low, high = max(self.before - saved[1] - alone, 0.0), self.before - min(foretold[1], saved[0]) + alone
        else:
            (step, low, high), saved = self._interval(names, machine)
        priced = lead.priced if machine is None else repriced(lead.priced, machine)
        found, graph = self._outcome(names, machine, priced, step)
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
            assumes=[*dict.fromkeys(plan.assumes for plan in mine if plan.assumes), *self._told(names, machine)],
            ops=moved_ops(lead, graph, self.seats[0].row_of_group, priced) if mine or machine is not None else [],
            work=work_of(mine),
        )
        return Together(record, found, graph)

    def _outcome(
        self, names: Sequence[str], machine: Machine | None, priced: Priced, step_ns: float
    ) -> tuple[Outcome, StepGraph]:
        changes = self._changes(names, EXPECTED, machine)
        graphs = [change(seat.evidence.graph) for change, seat in zip(changes, self.seats, strict=True)]
        ran = self.watch.runs(graphs)[0] if len(graphs) > 1 else None
        lead, work, serial = self.seats[0].evidence, work_of(self.seats[0].of(names)), graphs[0].serial
        run = self.watch.after(changes) / work  # whatever else bounds it
        if machine is not None or not names:
            found = outcome(lead, graphs[0], priced, min(step_ns, run), ran)
            return waiting_for_input(found, max(step_ns - found.ns, 0.0), cpu=serial), graphs[0]
        found = scaled(outcome(lead, graphs[0], priced, None, ran), self._now[1] / work, cpu=serial)
        late = max(self._after(names, machine, EXPECTED, 0.0, self.watch.middle) - run, 0.0)
        found = waiting_for_input(found, late, cpu=serial)
        return brought_to(found, self._now[0].lines, step_ns, cpu=serial), graphs[0]

    @cached_property
    def _now(self) -> tuple[Outcome, float]:
        """(the budget of the step as it is, how many times as long as its graph runs that takes)."""
        found = self._outcome((), None, self.seats[0].evidence.priced, self.before)[0]
        graphs = [seat.evidence.graph for seat in self.seats]
        ran = self.watch.runs(graphs)[0] if len(graphs) > 1 else None
        lead = self.seats[0].evidence
        runs = outcome(lead, graphs[0], lead.priced, None, ran).ns
        return found, found.ns / runs if runs > 0 else 0.0

    def _told(self, names: Sequence[str], machine: Machine | None) -> list[str]:
        """What is assumed of alternatives and of the machine."""
        seat = self.seats[0]
        told = [
            f"{worse}: {better} is for the same work and stands for both"
            for better, worse in ALTERNATIVES
            if {better, worse} <= set(names) and seat.has(better)
        ]
        if machine is None:
            return told + self._less(names)
        told.append(f"every kernel reaches the same share of its roof on {machine.name}; the host is the same one")
        unknown = without_floor(seat.evidence, machine)
        if unknown >= TELLING:
            told.append(
                f"{percent(unknown)} of the device's time has no roof there and follows the memories' bandwidth"
            )
        return told

    def _less(self, names: Sequence[str]) -> list[str]:
        """That one treatment alone would save more than all together, where that is so."""
        if not self._named(names):
            return []
        together = self.foretold(names)[0]
        best, most = max(((name, self.foretold([name])[0]) for (name,) in self._members(names)),
                         key=lambda member: member[1], default=("", together))  # fmt: skip
        if most - together < LESS * self.before:
            return []
        more = duration(most - together)
        return [f"{best} alone is predicted to save {more} more than all together: its saving stands for all"]

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
        there = [] if machine is not None else [before[0] - corner for corner in corners[:2]]
        most, least = sum(plan.beyond for plan in mine), sum(plan.beyond_low for plan in mine)
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
        least = max((plan.bound(share) for plan in mine), default=0.0)
        return max(self.watch.after(self._changes(names, share, machine, off), end), least) / work_of(mine)

    def _changes(self, names: Sequence[str], share: float, machine: Machine | None, off: float = 0.0) -> list[Change]:
        """The change for each rank."""
        made = []
        for seat in self.seats:
            effects: list[Effect] = [plan.effect for plan in seat.of(names) if plan.effect is not None]
            own = in_turn([effect(share) for effect in effects]) if effects else unchanged
            if machine is not None:
                # first, so that what is merged has been scaled each by its own floor
                own = in_turn([on_machine(seat.evidence, machine, off, seat.matrix(names)), own])
            made.append(own)
        return made


def work_of(mine: Sequence[Plan]) -> float:
    """How many times today's work a step does with some plans."""
    result = 1.0
    for plan in mine:
        result *= plan.work
    return result
