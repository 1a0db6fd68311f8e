"""Two arms timed in turns: is the difference more than what they differ by themselves?

A round is four blocks of steps, A B B A or B A A B as a coin falls, and its difference is the mean of the A less the
mean of the B: a drift that goes on evenly drops out of every round, whichever arm is first, and of equal arms each
difference is as likely above nothing as below it, also on a machine that stalls in step with the rounds. What is said
of the difference is its median over the rounds. Its spread is taken from the order of the rounds' differences alone:
in n rounds the median of what an endless run would show lies outside the k-th smallest and the k-th largest with a
probability that is counted from coin throws, whatever the noise looks like (as long as the rounds don't follow from
each other). k is the largest for which that stays under `DOUBT`. The spread of a gain is the distance of the median
from the one of the two that is nearer to no gain, so that a gain over its spread is one that all but chance has,
however far a few slow blocks reach to the other side; what shows no gain is as uncertain as the farther of the two is
far. A spread under `LEAST_SHARE` of the step counts as that: where memory happens to lie makes as much.

The times of both arms are the medians of their own blocks, and nothing is said to help or to hurt unless they show it
as well: on a machine that is now fast and now slow, the rounds' differences alone can say anything, even a gain of more
than the step.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from gobrrr import units
from gobrrr.model.treated import Timing
from gobrrr.observe.live.clock import wait as wait_for_device

Side = Callable[[], AbstractContextManager[Callable[[], Any]]]
"""Entering it gives the callable that runs one step."""
Progress = Callable[[str, int, int], None]
Settled = Literal["helped", "no_change", "hurt", "inconclusive"]

LEAST_ROUNDS, ROUNDS, MOST_ROUNDS = 8, 16, 30
"""Fewer say nothing, so many the steps of a block leave time for, and more are not run."""
BLOCK_NS = 20e6
BLOCK_STEPS, MOST_BLOCK_STEPS = 5, 20_000
DOUBT = 0.01
LEAST_SHARE = 0.01
WIDE_SHARE = 0.1
"""A spread over this share of the step hides too much for "no change"."""
AGREEING = 0.5
"""The medians of the blocks and that of the rounds may be apart by so much of the gain, where it is over the spread."""
CLEAR = 3.0
"""A difference so many times the spread needs no further rounds. Nearer ones wait for the end: whoever looks again and
again until a difference is over the spread will see one."""
SEED = 20_261
"""Of the coin that says which arm begins a round."""
LOOKS = (LEAST_ROUNDS, 12, 20)


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
    least: int = 4,
    most: int = 40,
    compiling: Callable[[], int] = lambda: 0,
    clock: Callable[[], int] = time.perf_counter_ns,
    wait: Callable[[], None] = wait_for_device,
) -> Warmth:
    """Run steps until the last three agree and nothing was compiled in them (`compiling` counts), within the bounds.

    `seconds` is of the steps after the first in which nothing was compiled.
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
        if len(times) >= least and _agree(times) and counts[-1] == counts[-4]:
            break
        spent += times[-1] if len(times) > 1 and counts[-1] == counts[-2] else 0.0
        if spent / 1e9 > seconds:
            break
    step = median(times[-3:]) if len(times) > 3 else times[-1]
    settled = counts[-1] == counts[max(0, len(counts) - 3)]
    return Warmth(tuple(times), step, max(0.0, (sum(times) - step * len(times)) / 1e9), settled)


def _agree(times: list[float]) -> bool:
    last = times[-3:]
    return len(last) == 3 and max(last) <= 1.25 * min(last)


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
    work: float = 1.0,
    idle: int = 1,
    prepare: Callable[[], None] | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
    wait: Callable[[], None] = wait_for_device,
    progress: Progress | None = None,
) -> Compared:
    """Time both arms in turns. `step_ns` is about what the slower one's step takes, `work` what a step of `after` does.

    `prepare` is called before every block, while no arm is entered, and `idle` steps of each block are not timed: the
    first after entering an arm stands for nothing. `seconds` bounds it, but never under `LEAST_ROUNDS` rounds unless
    even they take three times as long.
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

    def spent() -> float:
        return (clock() - begin) / 1e9

    firsts: list[float] = []
    others: list[float] = []
    differences: list[float] = []
    while len(differences) < MOST_ROUNDS:
        if progress is not None:
            progress("timing in turns", len(differences), MOST_ROUNDS)
        mine, theirs = _round(block, before, after, swapped=dice.random() < 0.5)
        firsts += mine
        others += theirs
        differences.append(sum(mine) / 2 - sum(theirs) / 2 / work)
        done = len(differences)
        if spent() > seconds and (done >= LEAST_ROUNDS or spent() > 3 * seconds):
            break
        if done in LOOKS and _settled(differences, median(firsts)):
            break
    if progress is not None:
        progress("timing in turns", len(differences), len(differences))
    return decide(firsts, others, differences, steps=steps, work=work)


def _round(block: Callable[[Side], float], before: Side, after: Side, *, swapped: bool) -> tuple[list[float], ...]:
    """One round: the times of each arm's two blocks."""
    times: dict[bool, list[float]] = {False: [], True: []}
    for second in (True, False, False, True) if swapped else (False, True, True, False):
        times[second].append(block(after if second else before))
    return times[False], times[True]


def decide(
    firsts: list[float], others: list[float], differences: list[float], *, steps: int, work: float = 1.0
) -> Compared:
    """The verdict on rounds: ns of a step in the blocks of each arm, and by how much the second took less per unit of
    work in each round."""
    gain = median(differences)
    base, after = median(firsts), median(others)
    least = LEAST_SHARE * base
    toward, away = (max(one, least) for one in _spreads(differences))
    clear = abs(gain) > toward
    timing = Timing(
        before_ns=base,
        after_ns=after,
        spread_ns=toward if clear else max(toward, away),
        rounds=len(differences),
        steps=steps * 2 * len(differences),
    )
    verdict, why = _verdict(timing, gain, base - after / work)
    return Compared(timing, verdict, why)


def _spreads(differences: list[float]) -> tuple[float, float]:
    """How far the median of rounds may be from what it stands for, towards no difference and away from it.

    Too few rounds to say: all that they differ by.
    """
    ordered, count = sorted(differences), len(differences)
    middle, rank = median(ordered), _rank(count)
    if rank == 0:
        return (ordered[-1] - ordered[0],) * 2
    below, above = middle - ordered[rank - 1], ordered[count - rank] - middle
    return (below, above) if middle >= 0 else (above, below)


def _verdict(timing: Timing, gain: float, saving: float) -> tuple[Settled, str]:
    """`gain` is the median of the rounds' differences, `saving` the difference of the medians."""
    base, spread, rounds = timing.before_ns, timing.spread_ns, timing.rounds
    numbers = f"{units.duration(base)} before, {_part(abs(saving), base)}"
    noise = f"the spread of {rounds} rounds is {units.duration(spread)}"
    if rounds < LEAST_ROUNDS:
        return "inconclusive", f"only {rounds} rounds fitted into the time: too few to tell a gain from noise"
    if gain >= base or (abs(gain) <= spread and spread > WIDE_SHARE * base):
        return "inconclusive", f"times scatter too much to tell: {numbers} of difference, and {noise}"
    if _contradict(gain, saving, spread, base):
        told = f"the medians of all blocks are {_signed(saving, base)}, that of the rounds is {_signed(gain, base)}"
        return "inconclusive", f"times scatter too much to tell: {told}, and {noise}"
    if gain > spread:
        return "helped", f"{numbers} less after; {noise}"
    if gain < -spread:
        return "hurt", f"{numbers} more after; {noise}"
    return "no_change", f"{numbers} of difference, which is no more than chance: {noise}"


def _contradict(gain: float, saving: float, spread: float, base: float) -> bool:
    """Whether the medians of the blocks show something else than the rounds do."""
    if abs(gain) > spread and (saving * gain <= 0 or abs(saving) <= LEAST_SHARE * base):
        return True  # what helps must help by the medians as well
    return abs(gain - saving) > max(min(spread, WIDE_SHARE * base), AGREEING * abs(gain))


def _signed(ns: float, base: float) -> str:
    return f"{_part(abs(ns), base)} {'less' if ns >= 0 else 'more'} after"


def _part(ns: float, base: float) -> str:
    return f"{units.duration(ns)} ({100 * ns / base if base else 0:.1f} %)"


def spread_of(differences: list[float]) -> float:
    """How far the median of rounds may be from what it stands for; infinite for too few rounds to say."""
    return max(_spreads(differences)) if _rank(len(differences)) else math.inf


def _rank(count: int) -> int:
    """The largest k for which the median lies outside the k-th smallest and largest of `count` with at most `DOUBT`."""
    outside, rank = 0.0, 0
    for k in range(count // 2):
        outside += 2 * math.comb(count, k) / 2**count
        if outside > DOUBT:
            break
        rank = k + 1
    return rank


def _settled(differences: list[float], base: float) -> bool:
    """Whether more rounds would say the same: the difference is large, or certainly none."""
    gain, spread = abs(median(differences)), spread_of(differences)
    return gain > CLEAR * max(spread, LEAST_SHARE * base) or gain + spread <= LEAST_SHARE * base
