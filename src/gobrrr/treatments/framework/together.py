"""Treatments applied together, on this machine or another: their changes are composed and the step replayed once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
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
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.path import path_of
from gobrrr.analysis.pricing.price import Priced
from gobrrr.analysis.replay.fitted import ResidualSpread
from gobrrr.analysis.replay.graph import StepGraph
from gobrrr.analysis.replay.predictive import ReplayedSaving, mechanism_of, predicted, spread_of
from gobrrr.analysis.replay.what_if import Change, in_turn, unchanged
from gobrrr.analysis.savings.elsewhere import OTHER_MACHINE_ERROR, on_machine, repriced, without_floor
from gobrrr.analysis.savings.gains import (
    EXPECTED_SHARE_OF_EFFECT,
    LEAST_SHARE_OF_EFFECT,
    MOST_SHARE_OF_EFFECT,
    Effect,
    Stopwatch,
    TreatmentPlan,
)
from gobrrr.analysis.savings.regions import EMPTY_NS
from gobrrr.model.diagnosis import Wall, WhatIf
from gobrrr.model.machine import Machine
from gobrrr.treatments.framework.asking import word_of
from gobrrr.treatments.framework.rank_plans import ALTERNATIVES, RankPlans
from gobrrr.units import duration, percent

LEAST_REPORTED_SHARE = 0.001
"""A smaller share of the step is not reported. Chosen, not measured."""

LEAST_UNPRICED_SHARE = 0.05
"""A note is added where a larger share of the device's time has no known roof. Chosen, not measured."""

Interval = tuple[tuple[float, float, float], tuple[float, float]]
"""(expected, low, high) of the changed step, and (low, high) of the saving, in ns."""

Saving = tuple[float, float, float]
"""(expected, low, high) of a saving, in ns of a step."""


@dataclass(frozen=True)
class CombinedTreatments:
    """The record of a combination, its budget, and its step's graph."""

    what_if: WhatIf
    outcome: Outcome
    graph: StepGraph


def as_uncertain(expected: float, gains: tuple[float, float], step_ns: float, wall: Wall) -> tuple[float, float]:
    """(low, high) of a saving, widened by the uncertainty of the step's own time, at most the whole step.

    Where the step takes less or more than measured, what the treatment leaves of it may take up the difference, but no
    more than all of it; the rest belongs to the saving, which grows no more than the step does.
    """
    low, high = gains
    if wall.value is None or not wall.low or wall.high is None:
        return gains
    left = step_ns - expected
    less, more = (max(apart - left, 0.0) for apart in (wall.value - wall.low, wall.high - wall.value))
    most = min(expected + more, expected * wall.high / wall.value)
    return min(low, expected - less), min(max(high, most), step_ns)


class Combiner:
    """Replays a step with combinations of its plans; several ranks run together.

    `spreads`: the fitted corrections of the replay; None: those of the package; empty: the replay alone.
    """

    def __init__(
        self,
        seats: Sequence[RankPlans],
        wall: Wall,
        watch: Stopwatch | None = None,
        spreads: Sequence[ResidualSpread] | None = None,
    ) -> None:
        self.seats = seats
        self.spreads = spreads
        self.wall = wall
        self.watch = watch or Stopwatch(*(seat.evidence for seat in seats), wall_ns=wall.value)
        self.before = self.watch.before(self.watch.middle)
        """The step as it is, in ns."""
        self._replays: dict[tuple[str, ...], ReplayedSaving] = {}

    def of_step(self, step_ns: float) -> Combiner:
        """The same plans for the step when it took `step_ns` (`Stopwatch.of_step`)."""
        watch, wall = self.watch.of_step(step_ns), self.wall
        if watch is self.watch:
            return self
        if wall.value:
            low, high = (None if end is None else end * step_ns / wall.value for end in (wall.low, wall.high))
            wall = msgspec.structs.replace(wall, value=step_ns, low=low, high=high)
        return Combiner([seat.at(step_ns / self.before) for seat in self.seats], wall, watch, self.spreads)

    def saving(self, names: Sequence[str]) -> Saving:
        """What all plans of the treatments `names` save of a step. At least nothing, because a user leaves out what
        makes it slower, and at most what their findings have at stake together.

        Prescriptions and what-ifs both show this answer.
        """
        return self._at_stake(names, self._best(names))

    def foretold(self, names: Sequence[str]) -> Saving:
        """The saving that a trial of the treatments `names` is expected to measure: the replay with its fitted
        corrections. Below 0 where they may make the step slower; the step takes no less than its loaders need."""
        plans = self.seats[0].of(names)
        most = self.before - max((plan.bound(MOST_SHARE_OF_EFFECT) for plan in plans), default=0.0) / work_of(plans)
        expected, low, high = (
            min(self.before * share, most) for share in predicted(self.replayed(names), self.spreads)
        )
        return expected, low, high

    def _best(self, names: Sequence[str]) -> Saving:
        """The same, but for treatments of findings at least what one of them saves alone: a user can leave the others
        out."""
        alone = self._members(names) if self._named(names) else []
        each = [self.foretold(combination) for combination in (names, *alone)]
        expected, low, high = (max(savings) for savings in zip(*each, strict=True))
        return expected, low, high

    def _members(self, names: Sequence[str]) -> list[list[str]]:
        planned = [[name] for name in dict.fromkeys(names) if self.seats[0].of([name])]
        return planned if len(planned) > 1 else []

    def _at_stake(self, names: Sequence[str], foretold: Saving) -> Saving:
        most = self.stake(names)
        if most is None:
            return foretold
        expected, low, high = (min(max(saving, 0.0), most) for saving in foretold)
        return expected, low, high

    def stake(self, names: Sequence[str]) -> float | None:
        """What the findings that name the treatments `names` have at stake together, in ns. Hidden findings count where
        another treatment is applied too. None where no finding names one of them, or where a step does more work
        then."""
        founds = self._named(names)
        if not founds or work_of([plan for name, _, plan in self.seats[0].plans if name in names]) != 1.0:
            return None
        reported = sum(found.finding.at_stake_ns[1] for found in founds if found.told)
        hidden = sum(found.claim.total for found in founds if found.hidden) / self.seats[0].evidence.steps.count
        return min(reported + (hidden if self._members(names) else 0.0), self.before)

    def _named(self, names: Sequence[str]) -> list[ClaimedFinding]:
        """The findings that name the treatments `names`; none where no reported finding names one of them."""
        every: dict[str, ClaimedFinding] = {}
        for treatment in {name for name, _, _ in self.seats[0].plans if name in names}:
            founds = [found for name, found, _ in self.seats[0].plans if found is not None and name == treatment]
            founds = [found for found in founds if word_of(treatment) in found.finding.treatments]
            if not any(found.told for found in founds):
                return []
            every |= {found.finding.code: found for found in founds}
        return list(every.values())

    def replayed(self, names: Sequence[str]) -> ReplayedSaving:
        """The replay's own prediction for all plans of the treatments `names`, in shares of the step."""
        key = tuple(names)
        if key not in self._replays:
            self._replays[key] = self._replayed(names)
        return self._replays[key]

    def _replayed(self, names: Sequence[str]) -> ReplayedSaving:
        (step, _, _), (low, high) = self._interval(names, None)
        expected, whole = self.before - step, self.before or 1.0
        planned = [name for name in names if self.seats[0].has(name)]
        work = work_of(self.seats[0].of(names))
        return ReplayedSaving(
            expected=expected / whole,
            low=min(low, expected) / whole,
            high=max(high, expected) / whole,
            touched=self._most(names, work),
            mechanism=mechanism_of(planned, work),
            device=self.seats[0].evidence.device.torch_name,
        )

    def _most(self, names: Sequence[str], work: float) -> float:
        """The largest share of the step that `names` can save; at best more work takes no more time, apart from
        noise."""
        if work == 1.0:
            return self.touched(names) / (self.before or 1.0)
        return 1.0 - (1.0 - REPEATABLE) / work if len(names) == 1 and work > 1.0 else 1.0

    def touched(self, names: Sequence[str]) -> float:
        """The part of a step that the plans of `names` change, in ns, which bounds their saving: device work that they
        change, idle time where they change the host, time outside the analysed steps, and in captured regions the
        launch time of kernels on the device."""
        evidence, plans = self.seats[0].evidence, self.seats[0].of(names)
        before = evidence.graph
        after = self._changes(names, MOST_SHARE_OF_EFFECT, None)[0](before)
        moved = changed_work(before, after)
        busy = min(path_of(evidence).busy, self.before)
        work = float(before.duration[moved & in_window(evidence)].sum()) / evidence.steps.count
        captured = after.gap != before.gap
        work += (
            float(np.minimum(before.duration, EMPTY_NS)[captured & in_window(evidence)].sum()) / evidence.steps.count
        )
        fills = hosts(before, after) or len(self.seats) > 1 or any(plan.least_ns[1] for plan in plans)
        idle = self.before - busy if fills else 0.0
        return min(min(work, busy) + idle + sum(plan.beyond for plan in plans), self.before)

    def saving_for(self, name: str, found: ClaimedFinding) -> float:
        """What the replay says that a treatment saves by its plan for one finding alone, in ns; at most the finding's
        stake."""
        alone = Combiner([seat.for_finding(found.finding.code) for seat in self.seats], self.wall, self.watch)
        after = alone._after([name], None, EXPECTED_SHARE_OF_EFFECT, 0.0, self.watch.middle)
        saved = self.before - after + sum(plan.beyond + plan.beyond_low for plan in alone.seats[0].of([name])) / 2
        return min(max(saved, 0.0), found.finding.at_stake_ns[1])

    def combined(self, names: Sequence[str], machine: Machine | None = None) -> CombinedTreatments:
        """The step with all plans of the treatments `names`; `machine` None: the machine that it ran on.

        A treatment without a plan changes nothing. The budget is the first rank's. Raises ValueError where `machine`
        can't be compared.
        """
        plans, lead = self.seats[0].of(names), self.seats[0].evidence
        if plans and machine is None:
            foretold = self._best(names)
            expected, *ends = self._at_stake(names, foretold)
            saved = ends[0], ends[1]
            step = max(self.before - expected, 0.0)
            corrected = spread_of(self.replayed(names), self.spreads) is not None
            alone = 0.0 if corrected else REPEATABLE * step
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
            assumes=[*dict.fromkeys(plan.assumes for plan in plans if plan.assumes), *self._told(names, machine)],
            ops=moved_ops(lead, graph, self.seats[0].row_of_group, priced) if plans or machine is not None else [],
            work=work_of(plans),
        )
        return CombinedTreatments(record, found, graph)

    def _outcome(
        self, names: Sequence[str], machine: Machine | None, priced: Priced, step_ns: float
    ) -> tuple[Outcome, StepGraph]:
        changes = self._changes(names, EXPECTED_SHARE_OF_EFFECT, machine)
        graphs = [change(seat.evidence.graph) for change, seat in zip(changes, self.seats, strict=True)]
        ran = self.watch.runs(graphs)[0] if len(graphs) > 1 else None
        lead, work, serial = self.seats[0].evidence, work_of(self.seats[0].of(names)), graphs[0].serial
        run = self.watch.after(changes) / work  # without other bounds
        if machine is not None or not names:
            found = outcome(lead, graphs[0], priced, min(step_ns, run), ran)
            return waiting_for_input(found, max(step_ns - found.ns, 0.0), cpu=serial), graphs[0]
        found = scaled(outcome(lead, graphs[0], priced, None, ran), self._now[1] / work, cpu=serial)
        late = max(self._after(names, machine, EXPECTED_SHARE_OF_EFFECT, 0.0, self.watch.middle) - run, 0.0)
        found = waiting_for_input(found, late, cpu=serial)
        return brought_to(found, self._now[0].lines, step_ns, cpu=serial), graphs[0]

    @cached_property
    def _now(self) -> tuple[Outcome, float]:
        """(the budget of the step as it is, the ratio of its time to its graph's running time)."""
        found = self._outcome((), None, self.seats[0].evidence.priced, self.before)[0]
        graphs = [seat.evidence.graph for seat in self.seats]
        ran = self.watch.runs(graphs)[0] if len(graphs) > 1 else None
        lead = self.seats[0].evidence
        runs = outcome(lead, graphs[0], lead.priced, None, ran).ns
        return found, found.ns / runs if runs > 0 else 0.0

    def _told(self, names: Sequence[str], machine: Machine | None) -> list[str]:
        """Assumptions about alternatives and about the machine."""
        seat = self.seats[0]
        notes = [
            f"{worse}: {better} does the same work and stands for both"
            for better, worse in ALTERNATIVES
            if {better, worse} <= set(names) and seat.has(better)
        ]
        if machine is None:
            return notes + self._less(names)
        notes.append(f"every kernel reaches the same share of its roof on {machine.name}; the host stays the same")
        unknown = without_floor(seat.evidence, machine)
        if unknown >= LEAST_UNPRICED_SHARE:
            notes.append(
                f"{percent(unknown)} of the device's time has no known roof there and scales with the memory bandwidth"
            )
        return notes

    def _less(self, names: Sequence[str]) -> list[str]:
        """A note where one treatment alone would save more than all together."""
        if not self._named(names):
            return []
        together = self.foretold(names)[0]
        best, most = max(((name, self.foretold([name])[0]) for (name,) in self._members(names)),
                         key=lambda member: member[1], default=("", together))  # fmt: skip
        if most - together < LEAST_REPORTED_SHARE * self.before:
            return []
        more = duration(most - together)
        return [f"{best} alone is predicted to save {more} more than all together: its saving stands for all"]

    def _interval(self, names: Sequence[str], machine: Machine | None) -> Interval:
        """The changed step and the saving, each with its ends; no step is below 0.

        At an end of the host's known range the saving is a share of that end's step, and is applied to the expected
        step; on the same machine the low end is no more than the saving in ns at that end.
        """
        after = self._after(names, machine, EXPECTED_SHARE_OF_EFFECT, 0.0, self.watch.middle)
        before = [self.watch.before(end) for end in range(self.watch.ends)]
        now, corners, saved = before[self.watch.middle], [], [before[self.watch.middle] - after]
        for end in sorted({0, len(before) - 1}):
            for share, off in (
                (LEAST_SHARE_OF_EFFECT, OTHER_MACHINE_ERROR),
                (MOST_SHARE_OF_EFFECT, -OTHER_MACHINE_ERROR),
            ):
                corners.append(self._after(names, machine, share, off, end))
                saved.append(now * (1 - corners[-1] / before[end]) if before[end] > 0 else 0.0)
        plans = self.seats[0].of(names)
        bound, touched = now - min(after, *corners), now
        if machine is None and work_of(plans) == 1.0:
            touched = self.watch.touched(self._changes(names, MOST_SHARE_OF_EFFECT, machine))
        saved = [min(gain, bound, touched) for gain in saved]
        in_ns = [] if machine is not None else [before[0] - corner for corner in corners[:2]]
        most, least = sum(plan.beyond for plan in plans), sum(plan.beyond_low for plan in plans)
        ends = after - (most + least) / 2, min(*corners, after) - most, max(*corners, after) - least
        step, low, high = (max(end_ns, 0.0) for end_ns in ends)
        wall = self.wall
        gains = min(min(*saved, *in_ns) + least, now), min(max(saved) + most, now)
        if plans or machine is not None:
            widened = as_uncertain(now - step, gains, now, wall)
            gains = widened[0], max(min(widened[1], touched + most), gains[1])
        if not plans and machine is None and wall.low is not None and wall.high is not None:
            return (step, min(wall.low, step), max(wall.high, step)), gains
        if machine is not None and wall.value:
            # the uncertainty of the step here holds there too
            low, high = (min(low, step * (wall.low or 0.0) / wall.value),
                         max(high, step * (wall.high or wall.value) / wall.value))  # fmt: skip
        # the uncertainty of the change and the variation of a step are independent
        alone = REPEATABLE * step
        return (step, max(step - math.hypot(step - low, alone), 0.0), step + math.hypot(high - step, alone)), gains

    def _after(self, names: Sequence[str], machine: Machine | None, share: float, off: float, end: int) -> float:
        plans = self.seats[0].of(names)
        least = max((plan.bound(share) for plan in plans), default=0.0)
        return max(self.watch.after(self._changes(names, share, machine, off), end), least) / work_of(plans)

    def _changes(self, names: Sequence[str], share: float, machine: Machine | None, off: float = 0.0) -> list[Change]:
        """The composed change for each rank."""
        changes = []
        for seat in self.seats:
            effects: list[Effect] = [plan.effect for plan in seat.of(names) if plan.effect is not None]
            own = in_turn([effect(share) for effect in effects]) if effects else unchanged
            if machine is not None:
                # first, so that each call is scaled by its own floor before calls are merged
                own = in_turn([on_machine(seat.evidence, machine, off, seat.matrix(names)), own])
            changes.append(own)
        return changes


def work_of(plans: Sequence[TreatmentPlan]) -> float:
    """How many times today's work a step does with these plans."""
    result = 1.0
    for plan in plans:
        result *= plan.work
    return result
