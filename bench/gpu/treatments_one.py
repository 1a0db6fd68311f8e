"""One workload of the bench of treatments, in a process of its own that bench/gpu/runs.py starts and may end.

    python -m bench.gpu.treatments_one NAME FOLDER --lock FILE        (FOLDER/NAME.json and FOLDER/NAME.profile.xz)

The untreated step is profiled once and stored, and all ways are predicted from what was stored. Then each way that fits
and the recipes that experts use are measured in turns with the untreated step: first all that compiles nothing,
together, then one after another what compiles. NAME.json grows with each; what it holds already is not measured again.
A way under which the process ended is "begun" in it, and counts as lost when the process is started again.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import math
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

import gobrrr
from bench.gpu.timed import wait
from bench.gpu.treatment_workloads import ENTRIES, Entry
from bench.gpu.treatments_turns import ROUNDS, Runner, Turn, Turns, in_turns, spread_share
from bench.predicted_ways import Told, foretold, named, told
from bench.stored_profile import pack, unpack
from gobrrr.doors import live, pipeline
from gobrrr.model.treated import Numerics
from gobrrr.observe.live import make_watcher
from gobrrr.observe.live.options import WatchOptions
from gobrrr.observe.live.pull import pull
from gobrrr.observe.live.state.snapshot import Snapshot, snapshot
from gobrrr.observe.live.watcher import Watcher
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.base import catalogue
from gobrrr.treatments.framework.way import NotApplicable, TreatmentWay, UnfitWay
from gobrrr.trials import numerics, timing
from gobrrr.trials.arms import Arm
from gobrrr.trials.bench import stacked
from gobrrr.trials.sets import JOINED, SERVING, TRAINING
from gobrrr.trials.trial import compiled

PROFILED = 3
"""Steps in a stored profile: gobrrr itself records five; three take half of the room and say the same."""

WARM_S, SIMPLE_S, COMPILED_S = 4.0, 12.0, 4.0
"""Seconds of settling of an arm, and of timing all simple ways together and each compiled one alone."""

NUMERIC_STEPS = 2
PLAIN_STEPS = 2
LEAST_WARM, LEAST_COMPILED = 4, 6
DEAD, LOOKED = 4, 5
"""The status of a process whose device does not answer any more, and of one that has profiled the step: a new one goes
on. After torch's profiler launches may stay slower for the rest of a process, and what is timed must not be."""

UNTIMED = "not timed"
FAR = 4.0
"""How many times the untreated step what is timed in turns may take."""

DIGITS = 6
"""Significant digits of the numbers that are kept."""

NARROW = ("bf16-cast", "bf16-autocast")


def fitting(workload: gobrrr.Workload) -> tuple[dict[str, TreatmentWay], dict[str, str]]:
    """(the ways that can be tried in this process, those that can't with the reason), by name."""
    ways: dict[str, TreatmentWay] = {}
    others: dict[str, str] = {}
    for treatment in catalogue():
        for way in treatment.ways(workload) if treatment.ways is not None else ():
            if isinstance(way, UnfitWay):
                others[way.name] = way.why
            elif way.fresh:
                others[way.name] = "needs a process of its own"
            else:
                ways[way.name] = way
    return ways, others


def together(ways: Sequence[TreatmentWay]) -> TreatmentWay:
    """Several ways as one, stacked by their ranks and named by them."""
    names = [way.name for way in sorted(ways, key=lambda way: way.rank)]
    return dataclasses.replace(stacked(ways), name=" + ".join(names))


def watched(workload: gobrrr.Workload) -> Watcher:
    """A watcher that has seen the untreated step as gobrrr sees it."""
    watcher = make_watcher(WatchOptions(profiled=PROFILED), steps_from="the step was called as a whole")
    with Arm(workload, ()).entered() as entered:
        pull(watcher, entered.workload, (), {}, None)
    return watcher


def tidy() -> None:
    """What a trial leaves behind does not burden the next."""
    torch._dynamo.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def small(value: Any) -> Any:
    """Without None and empty text, and with numbers of few digits, for the repository keeps it. NaN becomes None."""
    if isinstance(value, dict):
        return {key: small(item) for key, item in value.items() if item is not None and item != ""}
    if isinstance(value, list | tuple):
        return [small(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def recipes(ways: dict[str, TreatmentWay], trains: bool, typed: bool) -> list[tuple[str, ...]]:
    """The experts' sets of two and more ways that fit. `typed`: the step runs in 16 bit already."""
    found: list[tuple[str, ...]] = []
    for recipe in TRAINING if trains else SERVING:
        fit = tuple(name for name in recipe if name in ways and not (typed and name in (*NARROW, "tf32")))
        if len(fit) > 1 and set(fit) not in [set(earlier) for earlier in found]:
            found.append(fit)
    return found


def slim(found: Numerics) -> dict[str, Any]:
    """Whether the numbers hold, and the largest relative error that the treated step has."""
    errors = [part.treated for part in (found.output, found.loss, found.gradients) if part is not None]
    largest = max((error for error in errors if error is not None), default=None)
    return {"ok": found.ok, "why": "" if found.ok else found.why, "error": largest}


class One:
    """A workload that is measured, and what is known of it so far."""

    rounds = ROUNDS

    def __init__(self, entry: Entry, folder: Path, turn: Turn, *, each_s: float, device: str, tiny: bool,
                 slow: bool) -> None:  # fmt: skip
        self.entry, self.turn, self.each_s, self.slow = entry, turn, each_s, slow
        self.device, self.tiny = device, tiny
        self.part, self.profile = folder / f"{entry.name}.json", folder / f"{entry.name}.profile.xz"
        self.found: dict[str, Any] = json.loads(self.part.read_text()) if self.part.is_file() else {}
        self.rows: dict[str, Any] = self.found.setdefault("rows", {})
        self.unfit: dict[str, str] = self.found.setdefault("unfit", {})
        lost = self.found.pop("begun", None)
        if lost:
            self.rows[lost] = {"verdict": "inconclusive", "why": "it ended its process, or ran out of its time"}
        for name in [set_name for set_name, row in self.rows.items() if row["why"] == UNTIMED]:
            del self.rows[name]  # a process ended before it came to that
        self.begun_at = time.perf_counter()

    def save(self) -> None:
        """Everything so far, in one move."""
        fresh = self.part.with_suffix(".new")
        fresh.write_text(json.dumps(small(self.found)), encoding="utf-8")
        fresh.replace(self.part)

    def say(self, text: str) -> None:
        """A line of progress."""
        print(
            f"{time.perf_counter() - self.begun_at:6.1f} s ({self.turn.used_s:5.1f} on the device)  {text}", flush=True
        )

    def run(self) -> int:
        """All of it, but for what has to be done by another process, as the status says."""
        self.turn.take()
        self.workload = self.entry.made(device=self.device, tiny=self.tiny)
        self.ways, unfit = fitting(self.workload)
        self.unfit.update(unfit)
        if "ways" not in self.found or not self.profile.is_file():
            self.look()
            return LOOKED
        self.told = {way["name"]: msgspec.convert(way, Told) for way in self.found["ways"]}
        self.settle()
        wanted = [set_name for set_name in self.sets() if set_name not in self.rows and set_name not in self.unfit]
        simple = [set_name for set_name in wanted if not self.compiles(set_name)]
        if simple:
            self.measure(simple, SIMPLE_S)
        for set_name in wanted:
            if self.compiles(set_name):
                self.measure([set_name], COMPILED_S)
                tidy()
        self.original.restore()
        self.found["left"] = [
            set_name for set_name in self.sets() if set_name not in self.rows and set_name not in self.unfit
        ]
        self.found["seconds"] = round(time.perf_counter() - self.begun_at, 1)
        self.found["device_seconds"] = round(self.found.get("look_seconds", 0.0) + self.turn.used_s, 1)
        self.save()
        return 0

    # -- what is to be measured

    def sets(self) -> list[str]:
        """Names of the single ways and of the recipes, in the order in which they are measured."""
        ways = {name: told(way) for name, way in self.ways.items() if self.slow or not way.slow}
        trains = applying.trains(self.workload)
        expert = [named(recipe, ways) for recipe in recipes(self.ways, trains, self.entry.typed)]
        single = [way for way in ways if not (self.entry.typed and way in NARROW)]
        compiling = [name for name in single if ways[name].compiles]
        last = [name for name in compiling if name not in ("compile", "compile:reduce-overhead")]
        first = [name for name in compiling if name not in last]
        simple = [name for name in single if not ways[name].compiles]
        return [*simple, *first[-1:], *expert, *first[:-1], *last]

    def compiles(self, name: str) -> bool:
        """Whether any way of a set does."""
        return any(self.ways[one].compiles for one in name.split(JOINED))

    def stack(self, name: str) -> TreatmentWay:
        """The ways of a set as one."""
        several = [self.ways[one] for one in name.split(JOINED)]
        return several[0] if len(several) == 1 else together(several)

    # -- the untreated step

    def look(self) -> None:
        """Profile the untreated step, store it, and predict from what was stored."""
        before = snapshot(self.workload)
        try:
            watcher = watched(self.workload)
        finally:
            before.restore()
        self.turn.give()  # what follows needs no device
        data = pack(watcher.profile(self.entry.name, live.cpu_name()))
        self.profile.write_bytes(data)
        profile = unpack(data)
        live.ready(profile, None, None)
        ways = {name: told(way) for name, way in self.ways.items()}
        sets = list(dict.fromkeys([*ways, *self.sets()]))
        machine = pipeline.examine(profile).machine
        fore = foretold(profile, ways, sets, machine)
        self.found |= {
            "step_ns": fore.step_ns, "regime": fore.regime, "trains": applying.trains(self.workload),
            "profile_bytes": len(data), "ways": [msgspec.to_builtins(way) for way in ways.values()],
            "predicted": {name: None if saving is None else list(saving) for name, saving in fore.savings.items()},
        }  # fmt: skip
        if self.device == "cpu" and machine is not None:
            self.found["machine"] = msgspec.to_builtins(machine)  # a CPU has no datasheet
        self.found["look_seconds"] = round(self.turn.used_s, 1)
        self.save()
        self.say(f"{self.entry.name}: {(fore.step_ns or 0) / 1e6:.2f} ms, {fore.regime}, {len(data)} bytes of profile")

    def settle(self) -> None:
        """The state from which every arm starts: an optimizer has made its own in the first steps."""
        self.original = snapshot(self.workload)
        with Arm(self.workload, ()).entered() as plain:
            for _ in range(PLAIN_STEPS):
                plain.call()
        wait()
        self.original.restore_random()
        self.state: Snapshot = snapshot(self.workload)
        self.base = Arm(self.workload, ())
        self.base_ns = self.warm(self.base)[0]

    # -- measuring

    def warm(self, arm: Arm) -> tuple[float, float]:
        """(ns of a settled step, seconds that the first ones took beyond that)."""
        self.state.restore()
        least = LEAST_COMPILED if any(way.compiles for way in arm.ways) else LEAST_WARM
        begin = self.turn.clock()
        with arm.entered() as entered:
            applied_s = (self.turn.clock() - begin) / 1e9
            found = timing.warm_up(entered.call, seconds=WARM_S, least=least, compiling=compiled, clock=self.turn.clock)
        return found.step_ns, found.extra_s + applied_s

    def measure(self, names: Sequence[str], seconds: float) -> None:
        """Warm up, compare the numbers, then time all of them in turns with the untreated step."""
        begin, runners = time.perf_counter(), {}
        for name in names:
            if self.over():
                break
            runner = self.tried(name)
            if runner is not None:
                runners[name] = runner
        if runners:
            self.found["begun"] = names[0] if len(names) == 1 else ""
            cheap = self.state.seconds * 1e9 <= 3 * max(self.base_ns, 5e6)
            reset = self.workload.reset or (lambda: None)
            turns = in_turns(Runner(self.base, self.base_ns), runners, prepare=self.state.restore if cheap else reset,
                             seconds=seconds, most=self.rounds)  # fmt: skip
            for name, turn in turns.items():
                self.note(name, turn)
        for one in runners.values():
            one.arm.close()
        self.found.pop("begun", None)
        self.save()
        self.say(f"{len(runners)} timed in {time.perf_counter() - begin:.1f} s")

    def over(self) -> bool:
        """Whether no other set is warmed up, for the time."""
        return self.turn.used_s > self.each_s

    def tried(self, name: str) -> Runner | None:
        """A set of ways warmed up and its numbers compared; None where it can't be timed."""
        way, row = self.stack(name), {}
        self.turn.give_while_compiling()
        arm = Arm(self.workload, (way,))
        self.found["begun"] = name
        self.save()
        begin = self.turn.used_s
        try:
            step_ns, extra_s = self.warm(arm)
            row["compile_s"] = extra_s if way.compiles else None
            if step_ns / way.work > FAR * self.base_ns:
                step_ns = min(step_ns, self.warm(arm)[0])
            if step_ns / way.work > FAR * self.base_ns:
                return self.far(name, arm, step_ns, row)
            found = numerics.compare(self.workload, self.base, arm, way, self.state, steps=NUMERIC_STEPS, few=True)
            row["numerics"] = slim(found)
        except NotApplicable as error:
            self.unfit[name] = str(error)
        except Exception as error:  # recorded: one way must not lose the others
            line = (str(error).strip().splitlines() or [""])[0][:300]
            self.rows[name] = {**row, "verdict": "inconclusive", "why": f"{type(error).__name__}: {line}"}
        else:
            self.rows[name] = {**row, "verdict": "inconclusive", "why": UNTIMED}
            del self.found["begun"]
            self.say(f"  {name}: {step_ns / 1e6:.3f} ms{f', {extra_s:.1f} s to compile' if way.compiles else ''}, "
                     f"numbers {found.ok} ({self.turn.used_s - begin:.1f} s)")  # fmt: skip
            return Runner(arm, step_ns, way.work)
        del self.found["begun"]
        arm.close()
        self.say(f"  {name}: {self.unfit.get(name) or self.rows[name]['why']}")
        self.save()
        self.alive()
        with_nothing = self.warm(self.base)[0]  # the step as it was still runs
        self.base_ns = min(self.base_ns, with_nothing)
        return None

    def far(self, name: str, arm: Arm, step_ns: float, row: dict[str, Any]) -> None:
        """A set that is so much slower that its first steps say enough: timed in turns it would take the whole time."""
        del self.found["begun"]
        why = f"{step_ns / self.base_ns:.0f} times as slow when its first steps had settled: not timed in turns"
        self.rows[name] = {
            **row, "verdict": "hurt", "why": why, "before_ns": self.base_ns, "after_ns": step_ns, "rounds": 0,
            "work": self.stack(name).work, **self.measured_by(),
        }  # fmt: skip
        arm.close()
        self.say(f"  {name}: {why}")

    def measured_by(self) -> dict[str, str]:
        """The code that measured a row, and when."""
        return {"commit": os.environ.get("GOBRRR_BENCH_COMMIT", ""), "date": time.strftime("%Y-%m-%d")}

    def alive(self) -> None:
        """End this process where the device does not answer any more."""
        try:
            wait()
        except Exception:
            os._exit(DEAD)

    def note(self, name: str, timed: Turns) -> None:
        """What was timed into the row of a set."""
        row, found = self.rows[name], timed.compared.timing
        safe = row["numerics"]["ok"]
        worse = row["numerics"]["why"]
        row |= {
            "verdict": "unsafe" if safe is False else timed.compared.verdict,
            "why": worse if safe is False else timed.compared.why,
            "before_ns": found.before_ns, "after_ns": found.after_ns, "spread_ns": found.spread_ns,
            "rounds": found.rounds, "quartiles": spread_share(timed), "work": self.stack(name).work,
            "differences_ns": [float(f"{x:.4g}") for x in timed.differences], **self.measured_by(),
        }  # fmt: skip


def parser(doc: str | None, names: Iterable[str], *, each_s: float) -> argparse.ArgumentParser:
    """The arguments of a process that bench/gpu/runs.py starts."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("name", choices=sorted(names), metavar="NAME")
    made.add_argument("folder", type=Path)
    made.add_argument("--lock", type=Path, required=True)
    made.add_argument("--beside", default="", help="the cores to keep to while it waits, as 4,5,6")
    made.add_argument("--each-s", type=float, default=each_s)
    made.add_argument("--device", default="cuda")
    made.add_argument("--tiny", action="store_true")
    return made


def begun(made: argparse.ArgumentParser) -> tuple[argparse.Namespace, Turn]:
    """What the process is asked for, and its turn, which it has not taken yet."""
    asked = made.parse_args()
    if asked.tiny:
        applying.BACKEND = "aot_eager"  # generating code for a CPU takes a minute
    return asked, Turn(asked.lock, [int(core) for core in asked.beside.split(",") if core])


def main() -> int:
    made = parser(__doc__, ENTRIES, each_s=45.0)
    made.add_argument("--slow", action="store_true")
    asked, turn = begun(made)
    workload = One(ENTRIES[asked.name], asked.folder, turn, each_s=asked.each_s, device=asked.device, tiny=asked.tiny,
                   slow=asked.slow)  # fmt: skip
    status = workload.run()
    turn.give()
    return status


if __name__ == "__main__":
    sys.exit(main())
