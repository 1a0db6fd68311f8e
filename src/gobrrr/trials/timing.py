"""Two arms timed in turns: is one faster than the other?

A round has two blocks of steps of each arm, in an order that a die picks anew. What is said of the difference is its
median over the rounds; how sure that is comes from the order of the times within each round alone (`sequential`). After
each round the trial ends if that says enough: that the other arm is faster, that it is slower, or that it can't be
faster by so much that it were worth keeping. A difference under `LEAST_SHARE` of the step counts as none: where memory
happens to lie makes as much. The uncertainty of a difference is the distance of the median from the end of the interval
that is nearer to "no difference"; where none is shown, from the farther one.

The times of both arms are the medians of their own blocks, and nothing is said to help or to hurt unless they show it
as well: on a machine that is now fast and now slow, the rounds' differences alone can say anything, even a gain of more
than the step.
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
from gobrrr.trials.pace import UNDECIDED
from gobrrr.trials.sequential import LEAST_ROUNDS, ORDERS, Round, interval

Side = Callable[[], AbstractContextManager[Callable[[], Any]]]
"""Entering it gives the callable that runs one step."""
Progress = Callable[[str, int, int], None]
Settled = Literal["helped", "no_change", "hurt", "inconclusive"]

ROUNDS, MOST_ROUNDS = 16, 30
"""So many rounds the steps of a block leave time for, and more are not run."""
SURE_S, SURE_ROUNDS = 1.0, 8
"""Rounds that take no longer than this together are run in any case: the time of a short step is then known better."""
BLOCK_NS = 20e6
BLOCK_STEPS, MOST_BLOCK_STEPS = 5, 20_000
LEAST_SHARE = 0.01
WORTH_SHARE = 0.02
"""A way that can't save more of the step than this is not worth more rounds."""
WIDE_SHARE = 0.1
"""An uncertainty over this share of the step hides too much for "no change"."""
AGREEING = 0.5
"""The medians of the blocks and that of the rounds may be apart by so much of the gain, where it is certain."""
SEED = 20_261
"""Of the die that says in which order a round runs."""


@dataclass(frozen=True)
class Compared:
    """The times of both arms and what follows from them. `verdict` is of time alone."""

    timing: Timing
    verdict: Settled
    why: str


@dataclass(frozen=True)
class Warmth:
    """The first steps of an arm. `extra_s` is what they took more than as many settled ones."""

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

    `seconds` is of the steps after the first in which nothing was compiled, `most_s` of all of them.
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
    """Steps of a block: enough for a span in which the clock's own grain is nothing, and five where time allows."""
    enough = min(MOST_BLOCK_STEPS, math.ceil(BLOCK_NS / max(step_ns, 1.0)))
    affordable = int(seconds * 1e9 / (4 * ROUNDS) / max(step_ns, 1.0)) - 1
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
    progress: Progress | None = None,
) -> Compared:
    """Time both arms in turns. `step_ns` is about what the slower one's step takes, `work` what a step of `after` does.

    `prepare` is called before every block, while no arm is entered, and `idle` steps of each block are not timed: the
    first after entering an arm stands for nothing. `seconds` bounds it, but never under the fewest rounds that can say
    anything, unless these take more than `most_s`; of the `patient`, `most_s` alone bounds it.
    """
    steps = block_steps(step_ns, seconds)
    begin, dice = clock(), random.Random(SEED)

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
    """Whether no further round is run: enough is known, or there is no time for it."""
    done = len(rounds)
    if not done:
        return False
    each = spent_s / done
    if done >= MOST_ROUNDS or spent_s + each > (seconds if done >= LEAST_ROUNDS else most_s):
        return True
    if done < min(SURE_ROUNDS, SURE_S / each):
        return False
    return _read(rounds).settled


def _round(
    block: Callable[[Side], float], before: Side, after: Side, order: Sequence[bool], work: float = 1.0
) -> Round:
    """One round, in an order of the arms."""
    times: dict[bool, list[float]] = {False: [], True: []}
    for second in order:
        times[second].append(block(after if second else before) / (work if second else 1.0))
    (a, b), (c, d) = times[False], times[True]
    return Round((a, b), (c, d))


@dataclass(frozen=True)
class _Read:
    """What rounds say: ns of a unit of work. `saved` lies between `least` and `most`."""

    base: float
    other: float
    saved: float
    least: float
    most: float

    @property
    def shown(self) -> bool:
        """Whether one arm is certainly faster, and by more than counts as none."""
        certain = self.least > 0 if self.saved > 0 else self.most < 0
        return certain and abs(self.saved) > LEAST_SHARE * self.base

    @property
    def settled(self) -> bool:
        """Whether more rounds would say the same of whether to keep it."""
        useless = self.most < WORTH_SHARE * self.base and self.least > -WIDE_SHARE * self.base
        return (self.shown and not self.contradicts) or useless

    @property
    def uncertain(self) -> float:
        """How far the saving may be from what it is said to be: towards none where one is shown."""
        toward, away = self.saved - self.least, self.most - self.saved
        if self.saved < 0:
            toward, away = away, toward
        return max(toward if self.shown else max(toward, away), LEAST_SHARE * self.base)

    @property
    def contradicts(self) -> bool:
        """Whether the medians of the blocks show something else than the rounds do."""
        saving = self.base - self.other
        if self.shown and (saving * self.saved <= 0 or abs(saving) <= LEAST_SHARE * self.base):
            return True  # what helps must help by the medians as well
        apart = abs(self.saved - saving)
        return apart > max(min(self.uncertain, WIDE_SHARE * self.base), AGREEING * abs(self.saved))


def _read(rounds: Sequence[Round]) -> _Read:
    least, most = interval(rounds)
    return _Read(
        base=median(first for it in rounds for first in it.firsts),
        other=median(other for it in rounds for other in it.others),
        saved=median(it.saved for it in rounds),
        least=least,
        most=most,
    )


def decide(rounds: Sequence[Round], *, steps: int, work: float = 1.0) -> Compared:
    """The verdict on rounds, whose blocks had so many steps each."""
    read = _read(rounds)
    differences = [it.saved for it in rounds]
    known = math.isfinite(read.uncertain)
    timing = Timing(
        before_ns=read.base,
        after_ns=read.other * work,
        spread_ns=read.uncertain if known else max(differences) - min(differences),
        rounds=len(rounds),
        steps=steps * 4 * len(rounds),
    )
    verdict, why = _verdict(read, timing.spread_ns, len(rounds))
    return Compared(timing, verdict, why)


def _verdict(read: _Read, spread: float, rounds: int) -> tuple[Settled, str]:
    base, saving = read.base, read.base - read.other
    if rounds < LEAST_ROUNDS:
        return (
            "inconclusive",
            f"{UNDECIDED}: timed in {units.things(rounds, 'round')}, and a verdict takes at least {LEAST_ROUNDS}",
        )
    told = f"{units.duration(base)} before, {_signed(saving, base)} with it"
    sure = f"give or take {units.duration(spread)} ({units.things(rounds, 'round')})"
    if read.saved >= base or (not read.shown and not spread <= WIDE_SHARE * base):
        return "inconclusive", f"times scatter too much to tell: {told}, {sure}"
    if read.contradicts:
        told = f"{_signed(saving, base)} by the medians of all blocks, {_signed(read.saved, base)} by the rounds'"
        return "inconclusive", f"times scatter too much to tell: {told}, {sure}"
    if read.shown:
        return "helped" if read.saved > 0 else "hurt", f"{told}, {sure}"
    return "no_change", f"{told}, {sure}: no more than chance"


def _signed(saving: float, base: float) -> str:
    """A difference with its sign in words, and what share of the step it is."""
    return f"{units.faster(saving)} ({100 * abs(saving) / base if base else 0:.1f} %)"
