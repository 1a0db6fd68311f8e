"""A script that is run here -> its exit status, and the diagnosis of its step loop, or why there is none."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gobrrr import units
from gobrrr.doors import live
from gobrrr.errors import GobrrrError, UsageError
from gobrrr.guarded import failed
from gobrrr.hardware.measure.device import cpu_name
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.observe.live import make_watcher

if TYPE_CHECKING:
    from gobrrr.observe.live.loops import script as scripts
    from gobrrr.observe.live.loops.loop import Finder, FoundLoop
    from gobrrr.observe.live.options import WatchOptions
    from gobrrr.observe.live.watcher import Watcher

RANKS_WARMUP = 6
"""Warm-up steps of a script with several ranks: a fixed number, so that all ranks measure the same steps. Chosen."""


@dataclass(frozen=True, kw_only=True)
class ScriptOutcome:
    """A script that was run: its exit status, and the diagnosis of its step loop or why there is none."""

    status: int
    diagnosis: Diagnosis | None = None
    why_not: str = ""


def run(
    script: str,
    arguments: list[str],
    *,
    module: bool,
    on: str | None,
    stop_after: bool,
    steps: Literal["optimizer", "module", "line"] | None = None,
    told: Callable[[str], None] | None = None,
    stages: live.Stages | None = None,
) -> ScriptOutcome:
    """Run a script under a watcher. An exception of the script is printed as python prints it and sets the exit status.

    `told` is called with a line on the progress while the script runs; `stages` with the stages afterwards.
    """
    if not live.has_torch():
        raise UsageError("a live run needs torch: pip install torch")
    from gobrrr.observe.live.loops import script as scripts
    from gobrrr.observe.live.loops.arrival import WhenTorchArrives

    watchers: list[Watcher] = []

    def finder() -> Finder:
        from gobrrr.observe.live.loops.loop import Finder

        watchers.append(make_watcher(_in_step() if _number("WORLD_SIZE", 1) > 1 else None))
        watchers[0].gives_way = True  # to a watch or a diagnosis of the script's own
        watchers[0].may_end = True
        if told is not None and _number("RANK", 0) == 0:
            watchers[0].progress = _in_lines(watchers[0], told, stop_after=stop_after)
        return Finder(watchers[0], steps=steps)

    ran = scripts.run(script, arguments, is_module=module, loop=WhenTorchArrives(finder), stop_after=stop_after)
    found: FoundLoop | None = ran.found
    if found is None or not watchers:
        why = "it never imported torch, so no step could be measured"
        return ScriptOutcome(status=ran.status, why_not=f"{script}: {why}{_ending(ran)}")
    if found.failure is not None or found.how is None:
        more = f" ({'; '.join(found.remarks)})" if found.remarks else ""
        return ScriptOutcome(status=ran.status, why_not=f"{script}: {found.failure or found.text}{more}{_ending(ran)}")
    if _number("RANK", 0) > 0:
        return ScriptOutcome(status=ran.status)  # the first rank reports for all
    watcher = watchers[0]
    watcher.steps_from = f"{found.text}; {units.things(found.boundaries, 'step')} watched"
    if found.how != "optimizer":
        watcher.found_late = f"after {units.things(found.before, 'call')}" if found.before else "while it ran"
    watcher.remarks += found.remarks
    try:
        diagnosis = live.diagnose_profile(watcher.profile(script, cpu_name()), on=on, stages=stages)
    except GobrrrError as error:
        return ScriptOutcome(status=ran.status, why_not=f"{error}{_ending(ran)}")
    except Exception as error:  # the script's own exit status stands
        return ScriptOutcome(status=ran.status, why_not=f"{script}: its step {failed('the step', error)}")
    return ScriptOutcome(status=ran.status, diagnosis=diagnosis)


def _ending(ran: scripts.ScriptRun) -> str:
    """How a script ended, if that may be why there is no answer."""
    if ran.error is not None:
        return f". The script ended in an error: {ran.error}"
    return f". The script ended itself (sys.exit), with status {ran.status}" if ran.exited else ""


def _in_lines(watcher: Watcher, told: Callable[[str], None], *, stop_after: bool) -> live.Stages:
    """The watcher's progress as lines between the script's own output."""
    then = "the script is ended now" if stop_after else "the script runs to its end, then the answer follows"

    def tell(stage: str, done: int, total: int) -> None:
        told(f"gobrrr: {watcher.steps_from}: {f'enough steps were measured; {then}' if watcher.done else stage}")

    return tell


def _number(variable: str, otherwise: int) -> int:
    """A number that torchrun sets in the environment, else `otherwise`."""
    value = os.environ.get(variable, "")
    return int(value) if value.isdecimal() else otherwise


def _in_step() -> WatchOptions:
    """Options by number of steps, not by time: all ranks must measure the same ones, or they wait for each other."""
    from gobrrr.observe.live.options import WatchOptions

    return WatchOptions(warmup=RANKS_WARMUP, most_warmup=RANKS_WARMUP, window_s=math.inf, profiled_s=math.inf)
