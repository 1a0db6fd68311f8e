"""Two arms timed in turns: is one faster than the other?

A round has two blocks of steps of each arm, in an order drawn at random. The reported difference is the median over the
rounds; its certainty comes only from the order of the times within each round (`sequential`). After each round the
trial ends if the result is clear: the other arm is faster, slower, or can't be faster by enough to keep it. A
difference under `LEAST_DIFFERENCE_SHARE` of the step counts as none, because the placement of memory alone causes as
much. The uncertainty of a difference is the distance from the median to the end of the interval that is nearer to "no
difference"; where no difference is shown, to the farther end.

The times of both arms are the medians of their own blocks. A way helps or hurts only if these show it as well: on a
machine whose speed changes, the rounds' differences alone can show anything, even a gain larger than the step.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from gobrrr import units
from gobrrr.model.treated import Timing
from gobrrr.observe.live.clock import wait as wait_for_device
from gobrrr.trials.pace import UNDECIDED, Stages
from gobrrr.trials.sequential import LEAST_DECIDING_ROUNDS, ORDERS, Round, interval

Side = Callable[[], AbstractContextManager[Callable[[], Any]]]
"""Entering it gives the callable that runs one step."""
Settled = Literal["helped", "no_change", "hurt", "inconclusive"]

PLANNED_ROUNDS, MOST_ROUNDS = 16, 30
"""The steps of a block leave time for so many rounds; and the most rounds that are run. Chosen, not measured."""
SURE_S, SURE_ROUNDS = 1.0, 8
"""So many rounds are run in any case if they take no longer than this, for a better estimate of a short step's time."""
BLOCK_NS = 20e6
"""The shortest time of a block, beside which the resolution of the clock does not count. Chosen, not measured."""
BLOCK_STEPS, MOST_BLOCK_STEPS = 5, 20_000
"""Steps of a block where time allows, and at most. Chosen, not measured."""
LEAST_DIFFERENCE_SHARE = 0.01
"""A smaller difference, as a share of the step, counts as none. Chosen, not measured."""
WORTH_SHARE = 0.02
"""A way that can't save a larger share of the step gets no more rounds. Chosen, not measured."""
WIDE_SHARE = 0.1
"""With a larger uncertainty, as a share of the step, the verdict is not "no change". Chosen, not measured."""
AGREEING_SHARE = 0.5
"""The share of a certain gain by which the blocks' medians may differ from the rounds' median. Chosen, not measured."""
ROUND_ORDER_SEED = 20_261
"""The seed of the random order of rounds."""


@dataclass(frozen=True)
class Compared:
    """The times of both arms and their verdict, which is about time alone."""

    timing: Timing
    verdict: Settled
    why: str


@dataclass(frozen=True)
class Warmth:
    """The first steps of an arm. `extra_s`: how much longer they took than as many settled steps."""

    times_ns: tuple[float, ...]
    step_ns: float
    extra_s: float
    settled: bool


def warm_up(
    call: Callable[[], Any],
    *,
    seconds: float,
    most_s: float = math.inf,
    least: int = 4,
    most: int = 40,
    alike: int = 3,
    compiling: Callable[[], int] = lambda: 0,
    clock: Callable[[], int] = time.perf_counter_ns,
    wait: Callable[[], None] = wait_for_device,
) -> Warmth:
    """Run steps until the last `alike` agree and nothing was compiled in them (`compiling` counts), within the bounds.

    `seconds` bounds the steps after the first that compile nothing, `most_s` all steps.
    """
    times: list[float] = []
    counts: list[int] = [compiling()]
    spent = 0.0
    while len(times) < most:
        start = clock()
        call()
        wait()
        times.append(float(clock() - start))
        counts.append(compiling())
        quiet = len(times) >= alike and counts[-1] == counts[-1 - alike]
        if len(times) >= least and quiet and _agree(times[-alike:]):
            break
        spent += times[-1] if len(times) > 1 and counts[-1] == counts[-2] else 0.0
        if spent / 1e9 > seconds or sum(times) / 1e9 > most_s:
            break
    step = median(times[-3:]) if len(times) > 3 else times[-1]
    settled = counts[-1] == counts[max(0, len(counts) - alike)]
    return Warmth(tuple(times), step, max(0.0, (sum(times) - step * len(times)) / 1e9), settled)


def _agree(times: Sequence[float]) -> bool:
    return max(times) <= 1.25 * min(times)


def block_steps(step_ns: float, seconds: float) -> int:
    """The steps of a block: enough for BLOCK_NS, and BLOCK_STEPS where time allows."""
    enough = min(MOST_BLOCK_STEPS, math.ceil(BLOCK_NS / max(step_ns, 1.0)))
    affordable = int(seconds * 1e9 / (4 * PLANNED_ROUNDS) / max(step_ns, 1.0)) - 1
    return max(enough, min(BLOCK_STEPS, affordable), 1)


def compare(
    before: Side,
    after: Side,
    *,
    step_ns: float,
    seconds: float,
    most_s: float = math.inf,
    work: float = 1.0,
    idle: int = 1,
    patient: bool = False,
    prepare: Callable[[], None] | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
    wait: Callable[[], None] = wait_for_device,
    progress: Stages | None = None,
) -> Compared:
    """Time both arms in turns. `step_ns`: about the slower arm's step time; `work`: the work of a step of `after`.

    `prepare` is called before every block, while no arm is entered. The first `idle` steps of each block are not timed,
    because entering an arm disturbs them. `seconds` bounds the timing, but the fewest rounds that can decide are run
    unless they take more than `most_s`; if `patient`, only `most_s` bounds it.
    """
    steps = block_steps(step_ns, seconds)
    begin, dice = clock(), random.Random(ROUND_ORDER_SEED)

    def block(side: Side) -> float:
        if prepare is not None:
            prepare()
        with side() as call:
            for _ in range(idle):
                call()
            wait()
            start = clock()
            for _ in range(steps):
                call()
            wait()
            return float(clock() - start) / steps

    rounds: list[Round] = []
    while not _over(rounds, (clock() - begin) / 1e9, most_s if patient else seconds, most_s):
        if progress is not None:
            progress("timing in turns", len(rounds), MOST_ROUNDS)
        rounds.append(_round(block, before, after, dice.choice(ORDERS), work))
    if progress is not None:
        progress("timing in turns", len(rounds), len(rounds))
    return decide(rounds, steps=steps, work=work)


def _over(rounds: Sequence[Round], spent_s: float, seconds: float, most_s: float) -> bool:
    """Whether no further round is run: the result is clear, or there is no time left."""
    done = len(rounds)
    if not done:
        return False
    each = spent_s / done
    if done >= MOST_ROUNDS or spent_s + each > (seconds if done >= LEAST_DECIDING_ROUNDS else most_s):
        return True
    if done < min(SURE_ROUNDS, SURE_S / each):
        return False
    return _read(rounds).settled


def _round(
    block: Callable[[Side], float], before: Side, after: Side, order: Sequence[bool], work: float = 1.0
) -> Round:
    """Run one round, with the arms in this order."""
    times: dict[bool, list[float]] = {False: [], True: []}
    for second in order:
        times[second].append(block(after if second else before) / (work if second else 1.0))
    (a, b), (c, d) = times[False], times[True]
    return Round((a, b), (c, d))


@dataclass(frozen=True)
class _Read:
    """The result of some rounds, in ns per unit of work. `saved` lies between `least` and `most`."""

    base: float
    other: float
    saved: float
    least: float
    most: float

    @property
    def shown(self) -> bool:
        """Whether one arm is certainly faster, by more than LEAST_SHARE."""
        certain = self.least > 0 if self.saved > 0 else self.most < 0
        return certain and abs(self.saved) > LEAST_DIFFERENCE_SHARE * self.base

    @property
    def settled(self) -> bool:
        """Whether more rounds would not change the decision to keep the way."""
        useless = self.most < WORTH_SHARE * self.base and self.least > -WIDE_SHARE * self.base
        return (self.shown and not self.contradicts) or useless

    @property
    def uncertain(self) -> float:
        """How far the true saving may be from the reported one: towards none where a saving is shown."""
        toward, away = self.saved - self.least, self.most - self.saved
        if self.saved < 0:
            toward, away = away, toward
        return max(toward if self.shown else max(toward, away), LEAST_DIFFERENCE_SHARE * self.base)

    @property
    def contradicts(self) -> bool:
        """Whether the medians of the blocks contradict the rounds."""
        saving = self.base - self.other
        if self.shown and (saving * self.saved <= 0 or abs(saving) <= LEAST_DIFFERENCE_SHARE * self.base):
            return True  # the medians have to show it as well
        apart = abs(self.saved - saving)
        return apart > max(min(self.uncertain, WIDE_SHARE * self.base), AGREEING_SHARE * abs(self.saved))


def _read(rounds: Sequence[Round]) -> _Read:
    least, most = interval(rounds)
    return _Read(
        base=median(first for round_ in rounds for first in round_.firsts),
        other=median(other for round_ in rounds for other in round_.others),
        saved=median(round_.saved for round_ in rounds),
        least=least,
        most=most,
    )


def decide(rounds: Sequence[Round], *, steps: int, work: float = 1.0) -> Compared:
    """The verdict on rounds with `steps` steps per block."""
    read = _read(rounds)
    differences = [round_.saved for round_ in rounds]
    bounded = math.isfinite(read.uncertain)
    timing = Timing(
        before_ns=read.base,
        after_ns=read.other * work,
        spread_ns=read.uncertain if bounded else max(differences) - min(differences),
        rounds=len(rounds),
        steps=steps * 4 * len(rounds),
    )
    verdict, why = _verdict(read, timing.spread_ns, len(rounds))
    return Compared(timing, verdict, why)


def _verdict(read: _Read, spread: float, rounds: int) -> tuple[Settled, str]:
    base, saving = read.base, read.base - read.other
    if rounds < LEAST_DECIDING_ROUNDS:
        return (
            "inconclusive",
            f"{UNDECIDED}: timed in {units.things(rounds, 'round')}, "
            f"and a verdict takes at least {LEAST_DECIDING_ROUNDS}",
        )
    times = f"{units.duration(base)} before, {_signed(saving, base)} with it"
    sure = f"give or take {units.duration(spread)} ({units.things(rounds, 'round')})"
    if read.saved >= base or (not read.shown and not spread <= WIDE_SHARE * base):
        return "inconclusive", f"times scatter too much to tell: {times}, {sure}"
    if read.contradicts:
        times = f"{_signed(saving, base)} by the medians of all blocks, {_signed(read.saved, base)} by the rounds'"
        return "inconclusive", f"times scatter too much to tell: {times}, {sure}"
    if read.shown:
        return "helped" if read.saved > 0 else "hurt", f"{times}, {sure}"
    return "no_change", f"{times}, {sure}: no more than chance"


def _signed(saving: float, base: float) -> str:
    """A difference with its sign in words, and its share of the step."""
    return f"{units.faster(saving)} ({100 * abs(saving) / base if base else 0:.1f} %)"
