"""What a patient expert gets by hand: every way of every treatment alone, then combinations of those that helped.

    python -m bench.gpu.treat_exhaustive NAME PART.json --earlier FILE --seconds S      (bench.gpu.treat starts it)

All ways that fit the workload are tried on their own. Of those that helped, the best MOST (at most PER_TREATMENT of one
treatment) are tried in every combination without a conflict, the most promising first; both without and then with the
ways that time each kernel's forms. Then the steps of the best few are timed in turns with that of what gobrrr.treat
kept and with the untreated one, and the best is the one that is the fastest then. PART.json grows with each trial;
what is in --earlier is not measured again, and a trial that ended an earlier process counts as inconclusive.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import itertools
import json
import math
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import gobrrr
from bench.gpu.treat_form import KNOWN
from bench.gpu.treat_one import SOURCES as SOURCES
from bench.gpu.treat_one import small
from gobrrr.treating.arms import Arm, ahead
from gobrrr.treating.bench import stacked
from gobrrr.treating.pace import Allowed
from gobrrr.treating.trial import run_trial
from gobrrr.treatments.base import catalogue
from gobrrr.treatments.way import Unfit, Way

MOST, PER_TREATMENT = 5, 2
TRIAL_S = 2.5
"""Seconds that the timing of a trial may take; compilation is not counted."""

ROUNDS, BLOCK_S = 12, 0.15
"""The last comparison: rounds, and seconds of each block of steps in them."""

AGAIN_S = 5.0
"""A trial that does not end when its time is over is told so again."""

LEAD = 3
"""Steps before a block; those of batches that a loader's workers may hold ready, which are no gain, come on top."""

FINALISTS, NEAR = 3, 1.15
"""How many sets, no slower than the fastest by more than this factor, are timed again in turns: trials one after
another on a noisy host don't tell which of them is the best."""

FINAL_S = 75.0
"""Kept of the time for the last comparison, which compiles again."""


def fitting(workload: gobrrr.Workload) -> tuple[dict[str, Way], dict[str, str]]:
    """(the ways that can be tried in this process, those that can't with the reason), by name."""
    ways: dict[str, Way] = {}
    others: dict[str, str] = {}
    for treatment in catalogue():
        for one in treatment.ways(workload) if treatment.ways is not None else ():
            if isinstance(one, Unfit):
                others[one.name] = one.why
            elif one.fresh:
                others[one.name] = "needs a process of its own"
            else:
                ways[one.name] = one
    return ways, others


def at_odds(one: Way, other: Way) -> bool:
    """Whether two ways can't be kept together; two of one treatment never are."""
    named = {one.name, one.treatment} & other.conflicts or {other.name, other.treatment} & one.conflicts
    return bool(named) or one.treatment == other.treatment


def together(ways: Sequence[Way]) -> Way:
    """Several ways as one, stacked by their ranks and named by them."""
    names = [one.name for one in sorted(ways, key=lambda one: one.rank)]
    return dataclasses.replace(stacked(ways), name=" + ".join(names))


def chosen(singles: dict[str, float], ways: dict[str, Way]) -> list[str]:
    """The best ways that are combined: `singles` are the shares of the step that those which helped leave of it."""
    count: Counter[str] = Counter()
    found = []
    for name in sorted(singles, key=singles.__getitem__):
        count[ways[name].treatment] += 1
        if count[ways[name].treatment] <= PER_TREATMENT and len(found) < MOST:
            found.append(name)
    return found


def combinations(names: Sequence[str], singles: dict[str, float], ways: dict[str, Way]) -> list[tuple[str, ...]]:
    """All sets of two and more without a conflict, the ones first that would leave the least if shares multiplied."""
    sets = [one for size in range(2, len(names) + 1) for one in itertools.combinations(names, size)]
    free = [one for one in sets if not any(at_odds(ways[a], ways[b]) for a, b in itertools.combinations(one, 2))]
    return sorted(free, key=lambda one: math.prod(singles[name] for name in one))


def dear(name: str) -> bool:
    """Whether a way times each kernel's forms, which takes a minute and more."""
    return "max-autotune" in name


class Over(BaseException):
    """The time for all trials was over. Not an Exception: compilers catch those of their own kernels' timing."""


@contextlib.contextmanager
def no_longer_than(seconds: float) -> Iterator[None]:
    """End what runs here after some seconds, again and again until it ends: a kernel's forms may take minutes."""

    def end(number: int, frame: Any) -> None:
        raise Over

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01), AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def tidy() -> None:
    """What a trial leaves behind does not burden the next."""
    torch._dynamo.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class Trials:
    """The trials of a workload, on disk as they grow."""

    def __init__(
        self, make: Callable[[], gobrrr.Workload], part: Path, earlier: dict[str, Any], seconds: float
    ) -> None:
        self.make, self.part, self.end = make, part, time.monotonic() + seconds
        self.workload = make()
        self.ways, self.unfit = fitting(self.workload)
        self.found: dict[str, Any] = {**earlier, "unfit": self.unfit, "left": []}
        self.found["trials"] = list(earlier.get("trials", []))
        begun = self.found.pop("begun", None)
        if begun:
            lost = {"ways": begun, "verdict": "inconclusive", "why": "it ended its process, or ran out of its time"}
            self.found["trials"].append(lost)

    def save(self) -> None:
        """Everything so far, rounded."""
        self.part.write_text(json.dumps(small(self.found)), encoding="utf-8")

    def of(self, names: Sequence[str]) -> dict[str, Any] | None:
        """The trial of these ways, if there was one."""
        return next((one for one in self.found["trials"] if set(one["ways"]) == set(names)), None)

    def measure(self, names: Sequence[str]) -> None:
        """One trial against the untreated step; written down as left where no time is left."""
        if self.of(names) is not None or list(names) in self.found["left"] or " + ".join(names) in self.found["unfit"]:
            return
        if time.monotonic() > self.end - FINAL_S:
            self.found["left"].append(list(names))
            return
        self.found["begun"] = list(names)
        self.save()
        begin = time.monotonic()
        row: dict[str, Any] = {"ways": list(names)}
        try:
            stack = [self.ways[one] for one in names]
            with no_longer_than(self.end - FINAL_S - time.monotonic()):
                got = run_trial(
                    self.workload,
                    (),
                    stack[0] if len(stack) == 1 else together(stack),
                    allowed=Allowed(seconds=TRIAL_S),
                )
            if got.unapplied:  # no trial, as it is none of gobrrr.treat's
                self.found["unfit"][" + ".join(names)] = got.why
                del self.found["begun"]
                self.save()
                return
            row |= {"verdict": got.verdict, "why": got.why}
            if got.timing is not None:
                work = math.prod(self.ways[one].work for one in names)
                before, after = got.timing.before_ns, got.timing.after_ns / work
                row |= {"before_ns": before, "after_ns": after, "ratio": after / before}
        except Over:
            self.cut(names)
            return
        except Exception as error:  # recorded: one combination must not lose the others
            row |= {"verdict": "inconclusive", "why": f"{type(error).__name__}: {error}"[:300]}
        tidy()
        row["seconds"] = time.monotonic() - begin
        del self.found["begun"]
        self.found["trials"].append(row)
        print(f"{' + '.join(names):60} {row['verdict']:12} {row.get('ratio', math.nan):7.3f} {row['seconds']:6.1f} s "
              f"{row['why'][:80]}", flush=True)  # fmt: skip
        self.save()

    def cut(self, names: Sequence[str]) -> None:
        """A trial whose time was over is left; the workload is made anew, for it may be as the trial had it."""
        del self.found["begun"]
        self.found["left"].append(list(names))
        self.save()
        tidy()
        self.workload = self.make()
        self.ways, self.unfit = fitting(self.workload)

    def helped(self) -> dict[tuple[str, ...], float]:
        """What each set of ways that helped leaves of the step, by its own time.

        Of the untreated step's times the median of all trials counts: a host that is slow for a while makes what it is
        slow beside look the better.
        """
        timed = [one for one in self.found["trials"] if "after_ns" in one]
        before = statistics.median([one["before_ns"] for one in timed] or [1.0])
        return {tuple(one["ways"]): one["after_ns"] / before for one in timed
                if one["verdict"] == "helped" and all(name in self.ways for name in one["ways"])}  # fmt: skip

    def all(self) -> None:
        """Singles, then combinations; the best set is `best`.

        What times each kernel's forms comes after all that goes without: a run that is cut short loses the fewest.
        """
        quick = [name for name in self.ways if not dear(name)]
        for names in (quick, list(self.ways)):
            self.measure_all(sorted(names, key=lambda one: self.ways[one].compiles))
        finalists = self.finalists()
        self.found["best"] = list(finalists[0]) if finalists else []
        self.save()

    def finalists(self) -> list[tuple[str, ...]]:
        """The sets that may be the best, by their own times."""
        helped = self.helped()
        ordered = sorted(helped, key=helped.__getitem__)
        return [one for one in ordered if helped[one] <= helped[ordered[0]] * NEAR][:FINALISTS]

    def measure_all(self, names: Sequence[str]) -> None:
        """Each of these ways alone, then the best of them together."""
        for name in names:
            self.measure((name,))
        singles = {one[0]: left for one, left in self.helped().items() if len(one) == 1 and one[0] in names}
        for several in combinations(chosen(singles, self.ways), singles, self.ways):
            self.measure(several)

    def compare(self, kept: Sequence[str]) -> None:
        """The best sets, what gobrrr.treat kept and the untreated step, timed in turns; the fastest set is `best`."""
        lacking = [one for one in kept if one not in self.ways]
        if lacking:
            self.found["why_no_ratio"] = f"not applied in this process: {', '.join(lacking)}"
            return
        finalists = self.finalists() or [()]

        def label(names: Sequence[str]) -> str:
            return "treat" if set(names) == set(kept) else " + ".join(names) or "untreated"

        stacks = {label(one): [self.ways[name] for name in one] for one in ((), *finalists, tuple(kept))}
        stacks.setdefault("untreated", [])
        times = in_turns(self.workload, stacks)
        timed = [(times[label(one)], one) for one in finalists]
        fastest, best = min(timed)
        turns = {"untreated": times["untreated"], "treat": times["treat"], "best": fastest}
        self.found |= {"best": list(best), "treat_kept": list(kept), "turns_ns": turns,
                       "finalists": [{"ways": list(one), "ns": took} for took, one in timed],
                       "ratio": fastest / times["treat"]}  # fmt: skip


def block(call: Callable[[], Any], lead: int, steps: int) -> float:
    """Nanoseconds of a step among `steps`, with a wait before and after all of them, after `lead` of them."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else (lambda: None)
    for _ in range(lead):
        call()
    wait()
    begin = time.perf_counter_ns()
    for _ in range(steps):
        call()
    wait()
    return (time.perf_counter_ns() - begin) / steps


def in_turns(workload: gobrrr.Workload, stacks: dict[str, list[Way]]) -> dict[str, float]:
    """The median over rounds of each stack's step, per unit of work, in ns; the order turns from round to round."""
    arms = {name: Arm(workload, ways) for name, ways in stacks.items()}
    count = dict.fromkeys(arms, 10)
    times: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(-2, ROUNDS):  # two rounds to compile and to find how many steps fill a block
        for name in list(arms)[:: 1 if number % 2 else -1]:
            with arms[name].entered() as entered:
                loader = entered.workload.loader
                took = block(entered.call, LEAD + (0 if loader is None else ahead(loader)), count[name])
            if number < 0:
                count[name] = max(3, min(2000, round(BLOCK_S * 1e9 / took)))
            else:
                times[name].append(took / math.prod(way.work for way in stacks[name]))
    for arm in arms.values():
        arm.close()
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(KNOWN))
    parser.add_argument("part", type=Path)
    parser.add_argument("--earlier", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    earlier = json.loads(given.earlier.read_text(encoding="utf-8"))
    trials = Trials(KNOWN[given.name].make, given.part, earlier["exhaustive"], given.seconds)
    trials.all()
    trials.compare(earlier["kept"])
    trials.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
