"""One process at a time on the device, and steps of several arms timed in turns.

Several workloads are under way at once, each in a process of its own, for compiling takes longer than measuring. Only
the one whose turn it is runs anything on the device; it gives its turn away while the compiler works, and its own clock
stands still while it waits.
"""

from __future__ import annotations

import fcntl
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench.gpu.timed import wait
from gobrrr.trials import timing
from gobrrr.trials.arms import Arm, ahead
from gobrrr.trials.sequential import LEAST_DECIDING_ROUNDS, Round
from gobrrr.trials.trial import AHEAD_STEPS

ROUNDS = LEAST_DECIDING_ROUNDS
"""With fewer, gobrrr's own verdict is that they are too few."""

FEWEST = 5
BLOCK_NS, LEAST_STEPS = 25e6, 2
BETWEEN = 4
"""After so many treated arms of a round the untreated step is timed again."""


class Turn:
    """The right to use the device, which one process has at a time: a lock on a file with its process and the time.

    `beside`: the cores that this process keeps to while it waits; None: all.
    """

    def __init__(self, path: Path, beside: Sequence[int] | None = None) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)
        self._all, self._beside = os.sched_getaffinity(0), set(beside or ()) or None
        self.held = False
        self.held_s = 0.0
        self._since = 0.0
        self._lost_ns = self._compiling_ns = 0
        self._compiling_since = 0
        self._lent = False

    def take(self) -> None:
        """Wait for the turn."""
        begin = time.perf_counter_ns()
        fcntl.flock(self._file, fcntl.LOCK_EX)
        os.pwrite(self._file, f"{os.getpid():>10} {time.time():>20.3f}".encode(), 0)
        self._keep_to(self._all)
        self.held, self._since = True, time.perf_counter()
        self._lost_ns += time.perf_counter_ns() - begin

    def keep(self) -> None:
        """Take the turn where it was given away."""
        if not self.held:
            self.take()

    def give(self) -> None:
        """Let another process have it, once the device is idle."""
        if not self.held:
            return
        wait()
        self.held = False
        self.held_s += time.perf_counter() - self._since
        os.pwrite(self._file, b" " * 31, 0)
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self._keep_to(self._beside)

    @property
    def used_s(self) -> float:
        """Seconds that this process had the device."""
        return self.held_s + (time.perf_counter() - self._since if self.held else 0.0)

    def clock(self) -> int:
        """ns, without those in which it waited."""
        return time.perf_counter_ns() - self._lost_ns

    @property
    def compiling_s(self) -> float:
        """Seconds in which torch's compiler worked since it was told to give the turn away."""
        return self._compiling_ns / 1e9

    def give_while_compiling(self) -> None:
        """Have torch's compiler begin without the turn and end with it; graphs are recorded with it.

        To be called again after torch._dynamo.reset(), which forgets it.
        """
        from torch._dynamo.callback import callback_handler

        if self._begins not in callback_handler.start_callbacks:
            callback_handler.register_start_callback(self._begins)
            callback_handler.register_end_callback(self._ends)

    def _begins(self, about: Any = None) -> None:
        self._compiling_since = time.perf_counter_ns()
        recording = "CUDAGRAPH" in str(getattr(about, "callback_trigger", ""))
        capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
        if self.held and not recording and not capturing:
            self._lent = True
            self.give()

    def _ends(self, about: Any = None) -> None:
        self._compiling_ns += time.perf_counter_ns() - self._compiling_since
        if self._lent:
            self._lent = False
            self.take()

    def _keep_to(self, cores: set[int] | None) -> None:
        if self._beside is None or cores is None:
            return
        for thread in os.listdir("/proc/self/task"):
            with suppress(OSError):  # it has ended
                os.sched_setaffinity(int(thread), cores)


@dataclass(frozen=True)
class Runner:
    """An arm that is to be timed: `work` is of its step, in untreated ones; `step_ns` about what it takes."""

    arm: Arm
    step_ns: float
    work: float = 1.0

    def block(self) -> float:
        """ns of a step among as many as fill a block, after those whose batches a loader may hold ready."""
        with self.arm.entered() as entered:
            loader = entered.workload.loader
            ready = 0 if loader is None else ahead(loader)
            steps = max(AHEAD_STEPS if ready else LEAST_STEPS, math.ceil(BLOCK_NS / max(self.step_ns, 1.0)))
            for _ in range(1 + ready):
                entered.call()
            wait()
            begin = time.perf_counter_ns()
            for _ in range(steps):
                entered.call()
            wait()
            return (time.perf_counter_ns() - begin) / steps


@dataclass(frozen=True)
class Turns:
    """One arm against the untreated step: its verdict by time alone, and each round's difference in ns.

    `times`: ns of its step in each round, per unit of work.
    """

    compared: timing.Compared
    differences: tuple[float, ...]
    times: tuple[float, ...]


def in_turns(
    base: Runner, runners: dict[str, Runner], *, prepare: Callable[[], None], seconds: float, most: int = ROUNDS
) -> dict[str, Turns]:
    """Time all arms and the untreated step in turns, in another order each round, at most so many rounds.

    A treated block is held against the mean of the untreated ones before and after it. `seconds` ends it between two
    rounds, after FEWEST of them unless even they take three times as long.
    """
    dice, begin = random.Random(timing.ROUND_ORDER_SEED), time.perf_counter()
    names = list(runners)
    firsts: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    others: dict[str, list[float]] = {name: [] for name in names}
    rounds = 0
    while rounds < most:
        spent = time.perf_counter() - begin
        if spent > (seconds if rounds >= FEWEST else 3 * seconds) and rounds > 1:
            break
        dice.shuffle(names)
        before = _timed(base, prepare)
        for at in range(0, len(names), BETWEEN):
            some = names[at : at + BETWEEN]
            for name in some:
                others[name].append(_timed(runners[name], prepare))
            after = _timed(base, prepare)
            for name in some:
                firsts[name].append((before, after))
            before = after
        rounds += 1
    return {name: _told(firsts[name], others[name], runners[name].work) for name in runners}


def _timed(runner: Runner, prepare: Callable[[], None]) -> float:
    prepare()
    return runner.block()


def _told(firsts: list[tuple[float, float]], others: list[float], work: float) -> Turns:
    rounds = [Round(pair, (other / work, other / work)) for pair, other in zip(firsts, others, strict=True)]
    compared = timing.decide(rounds, steps=len(others), work=work)
    return Turns(compared, tuple(turn.saved for turn in rounds), tuple(other / work for other in others))


def spread_share(turns: Turns) -> float:
    """The distance of the quartiles of the rounds' differences, as a share of the untreated step."""
    low, _, high = statistics.quantiles(turns.differences, n=4)
    return (high - low) / turns.compared.timing.before_ns
