"""One workload treated by gobrrr and by experts' recipes, in a process that bench.gpu.treat starts and may end.

    python -m bench.gpu.treat_one NAME FOLDER --lock FILE --trials 3                            (FOLDER/NAME.json)

The first process treats it. After torch's profiler launches may stay slower for the rest of a process, so that a second
one times what treat kept, each recipe and the untreated step, all of them in turns. A set that changes the numbers
beyond what its treatments may is not the best of anything.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.gpu.treatment_workloads import KNOWN, Entry
from bench.gpu.treatments_one import LOOKED, NARROW, One, begun, fitting, parser, small
from bench.gpu.treatments_turns import Turn, Turns
from gobrrr.model.treated import Treated, TrialRecord
from gobrrr.treatments.framework import applying
from gobrrr.trials import treat
from gobrrr.trials.bench import LocalRunner
from gobrrr.trials.candidate import Candidate
from gobrrr.trials.candidates import StepOverview
from gobrrr.trials.choosing import SEARCH_BUDGET_S, SearchOptions
from gobrrr.trials.ledger import Ledger
from gobrrr.trials.pace import TrialTime
from gobrrr.trials.search import NamedProgress
from gobrrr.trials.sets import INPUT_WAYS, JOINED

TRAINING = (
    ("bf16-autocast", "compile:reduce-overhead", "fused-optimizer", "channels-last", *INPUT_WAYS),
    ("bf16-autocast", "compile", "fused-optimizer", "channels-last", *INPUT_WAYS),
    ("bf16-autocast", "cuda-graph", "fused-optimizer", *INPUT_WAYS),
    ("tf32", "compile:reduce-overhead", "fused-optimizer", *INPUT_WAYS),
)
SERVING = (
    ("bf16-cast", "compile:reduce-overhead", "channels-last"),
    ("bf16-cast", "compile", "channels-last"),
    ("bf16-cast", "cuda-graph"),
    ("tf32", "compile:reduce-overhead"),
)
"""What experts apply in one go, less what does not fit the workload: chosen before anything was measured by it."""

TURNS_S, ROUNDS = 15.0, 12
"""What timing all of them in turns may take, in seconds of the device, and the rounds that it has at most."""

COMPILED_S = 80.0
"""Seconds that compiling one set and timing all of them may take together: 90 s of compiling were seen where nothing
was in the compiler's cache."""

TRIAL = ("way", "treatment", "kept", "verdict", "why", "predicted_saving_ns", "expected_ns", "timing", "numerics",
         "memory_before_bytes", "memory_after_bytes", "compile_s", "break_even_steps", "recompiles_stopped", "work",
         "seconds", "step_ns", "replayed_saving_ns", "replayed_expected_ns", "instead_of", "members",
         "leaves_out")  # fmt: skip
TREATED = ("kept", "order", "stopped", "notes", "step_before_ns", "step_after_ns", "faster", "seconds", "untried")


class Limited(LocalRunner):
    """A bench that ends the search, as a user's interrupt does, after so many trials; 0: never. The step is not
    diagnosed again for trials that do not come.

    `ends`: of each trial, the seconds since the beginning, and those of them in which torch's compiler worked.
    """

    def __init__(self, workload: Any, name: str, turn: Turn, most: int, stages: NamedProgress) -> None:
        super().__init__(workload, name, alone=False, clock=turn.clock, stages=stages)
        self.turn, self.most, self.begun = turn, most, turn.clock()
        self.ends: list[tuple[float, float]] = []

    def look(self, kept: Sequence[str], within_s: float, spent_s: float) -> StepOverview:
        """The step with what is kept, while there are trials to come."""
        self.go_on()
        return super().look(kept, within_s, spent_s)

    def go_on(self) -> None:
        """Raises KeyboardInterrupt after the last trial."""
        if self.most and len(self.ends) >= self.most:
            raise KeyboardInterrupt

    def trial(self, kept: Sequence[str], way: Candidate, allowed: TrialTime, instead_of: str = "") -> TrialRecord:
        """A trial; one that found out that a way does not apply is none."""
        self.go_on()
        found = super().trial(kept, way, allowed, instead_of)
        if not found.unapplied:
            self.ends.append(((self.turn.clock() - self.begun) / 1e9, self.turn.compiling_s))
        return found


class Against(One):
    """A workload that is treated, and what treating gave held against recipes."""

    rounds = ROUNDS

    def __init__(self, entry: Entry, folder: Path, turn: Turn, *, trials: int, budget_s: float, **how: Any) -> None:
        super().__init__(entry, folder, turn, slow=False, **how)
        self.trials, self.budget_s, self.folder = trials, budget_s, folder

    def treat(self) -> None:
        """Treat it as `gobrrr.treat` does, on a clock that stands still while another process has the device."""
        tell = NamedProgress(self.stage)
        here = Limited(self.workload, self.entry.name, self.turn, self.trials, tell)
        ledger = Ledger.open(self.folder / f"{self.entry.name}.ledger")
        found = treat.run(
            here, self.entry.name, SearchOptions(budget_s=self.budget_s), ledger, tell=tell,
            clock=lambda: self.turn.clock() / 1e9,
        )  # fmt: skip
        self.turn.keep()
        self.found["treat"] = {**slim(found), "trial_ends_s": here.ends, "compiling_s": self.turn.compiling_s}
        print(found, flush=True)

    def stage(self, stage: str, done: int, total: int) -> None:
        """What is predicted from a profile needs no device."""
        if stage.endswith("predicting"):
            self.turn.give()
        else:
            self.turn.keep()
            self.turn.give_while_compiling()
        if not done:
            self.say(stage)

    def sets(self) -> list[str]:
        """What treat kept, for the same work, and the recipes that fit.

        A graph of the whole step is captured before the compiler makes graphs: nodes of autograd that those hold are
        tied to another stream, and a capture that meets them fails.
        """
        mine = JOINED.join(self.mine())
        found = [set_name for set_name in dict.fromkeys([mine, *map(JOINED.join, self.recipes())]) if set_name]
        return sorted(found, key=lambda set_name: "cuda-graph" not in set_name.split(JOINED))

    def mine(self) -> list[str]:
        """What treat kept, by rank; a larger batch is other work and left out."""
        kept = [self.ways[name] for name in self.found["treat"]["kept"]]
        return in_order(way for way in kept if way.work == 1.0)

    def recipes(self) -> list[list[str]]:
        """The experts' sets, of what fits."""
        found = []
        for recipe in TRAINING if applying.trains(self.workload) else SERVING:
            fit = [self.ways[name] for name in recipe if name in self.ways]
            names = in_order(way for way in fit if not (self.entry.typed and way.name in (*NARROW, "tf32")))
            if names not in found:
                found.append(names)
        return found

    def run(self) -> int:
        """One of the two processes' work."""
        self.found.pop("left", None)
        self.turn.take()
        self.workload = self.entry.made(device=self.device, tiny=self.tiny)
        if "treat" not in self.found:
            self.treat()
            self.save()
            return LOOKED
        self.ways, _ = fitting(self.workload)
        self.settle()
        self.turn.give_while_compiling()
        self.measure(self.sets(), TURNS_S)
        self.original.restore()
        self.found["against"] = self.against()
        self.found["device_seconds"] = round(self.turn.used_s, 1)
        self.save()
        return 0

    def over(self) -> bool:
        """Also where the call ends before another set could be compiled and all of them timed."""
        ends = float(os.environ.get("GOBRRR_BENCH_ENDS", "inf"))
        return super().over() or (len(self.rows) > 1 and time.time() > ends - COMPILED_S)

    def note(self, name: str, timed: Turns) -> None:
        """With the time of each round."""
        super().note(name, timed)
        self.rows[name]["times_ns"] = timed.times

    def against(self) -> dict[str, Any]:
        """What treat kept against the fastest recipe whose numbers hold, by the medians and by each round."""
        mine = JOINED.join(self.mine())
        timed = {name: row for name, row in self.rows.items() if "times_ns" in row}
        if not timed:
            return {"mine": mine}
        medians = {name: statistics.median(row["times_ns"]) for name, row in timed.items()}
        medians[""] = statistics.median(row["before_ns"] for row in timed.values())
        best = min((name for name in medians if name != mine and self.safe(name)), key=medians.__getitem__, default="")
        left = [set_name for set_name in self.sets() if set_name not in self.rows and set_name not in self.unfit]
        return {"mine": mine, "best": best, "untreated_ns": medians[""], "treat_ns": medians.get(mine),
                "best_ns": medians[best], **({"left": left} if left else {})}  # fmt: skip

    def safe(self, name: str) -> bool:
        """Whether the numbers of a set hold, as far as they could be compared; nothing has the name ""."""
        return not name or self.rows[name]["verdict"] != "unsafe"


def in_order(ways: Any) -> list[str]:
    """Names of ways in the order in which they are applied."""
    return [way.name for way in sorted(ways, key=lambda way: (way.rank, way.name))]


def slim(found: Treated) -> dict[str, Any]:
    """A Treated without its diagnoses, its code and what all trials share."""
    picked: dict[str, Any] = {key: msgspec.to_builtins(getattr(found, key)) for key in TREATED}
    picked["regime"] = found.before.regime
    trials = [msgspec.to_builtins(trial) for trial in found.trials]
    picked["trials"] = [{key: trial.get(key) for key in TRIAL} for trial in trials]
    return small(picked)


def main() -> int:
    made = parser(__doc__, KNOWN, each_s=150.0)
    made.add_argument("--trials", type=int, default=3, help="end treating after so many trials; 0: never (3)")
    made.add_argument("--budget-s", type=float, default=SEARCH_BUDGET_S)
    asked, turn = begun(made)
    workload = Against(
        KNOWN[asked.name], asked.folder, turn, trials=asked.trials, budget_s=asked.budget_s, each_s=asked.each_s,
        device=asked.device, tiny=asked.tiny,
    )  # fmt: skip
    status = workload.run()
    turn.give()
    return status


if __name__ == "__main__":
    sys.exit(main())
