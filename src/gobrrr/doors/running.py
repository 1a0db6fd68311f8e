"""A script that is run here -> its exit status, and the diagnosis of its step loop or why there is none."""

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
    from gobrrr.observe.live.loops.loop import Finder, Found
    from gobrrr.observe.live.watcher import Options, Watcher

RANKS_WARMUP = 6


@dataclass(frozen=True, kw_only=True)
class Ran:
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
) -> Ran:
    """Run a script under a watcher; what the script raises is printed as python would and becomes its exit status.

    `told` is called with a line on what is looked at now, while the script runs; `stages` with what is done afterwards.
    """
    if not live.has_torch():
        raise UsageError("a live run needs torch: pip install torch")
    from gobrrr.observe.live.loops import script as scripts
    from gobrrr.observe.live.loops.arrival import WhenTorchArrives

    made: list[Watcher] = []

    def eye() -> Finder:
        from gobrrr.observe.live.loops.loop import Finder

        made.append(make_watcher(_in_step() if _number("WORLD_SIZE", 1) > 1 else None))
        made[0].gives_way = True  # to a watch or a diagnosis of the script's own
        made[0].may_end = True
        if told is not None and _number("RANK", 0) == 0:
            made[0].progress = _in_lines(made[0], told, stop_after=stop_after)
        return Finder(made[0], steps=steps)

    ran = scripts.run(script, arguments, is_module=module, loop=WhenTorchArrives(eye), stop_after=stop_after)
    found: Found | None = ran.found
    if found is None or not made:
        why = "it never imported torch, so that there was nothing to see"
        return Ran(status=ran.status, why_not=f"{script}: {why}{_ending(ran)}")
    if found.failure is not None or found.how is None:
        more = f" ({'; '.join(found.remarks)})" if found.remarks else ""
        return Ran(status=ran.status, why_not=f"{script}: {found.failure or found.text}{more}{_ending(ran)}")
    if _number("RANK", 0) > 0:
        return Ran(status=ran.status)  # the first rank speaks for all
    watcher = made[0]
    watcher.steps_from = f"{found.text}; {units.things(found.boundaries, 'step')} watched"
    if found.how != "optimizer":
        watcher.found_late = f"after {units.things(found.before, 'call')}" if found.before else "while it ran"
    watcher.remarks += found.remarks
    try:
        diagnosis = live.diagnose_profile(watcher.profile(script, cpu_name()), on=on, stages=stages)
    except GobrrrError as error:
        return Ran(status=ran.status, why_not=f"{error}{_ending(ran)}")
    except Exception as error:  # the script's own exit status stands
        return Ran(status=ran.status, why_not=f"{script}: its step {failed('the step', error)}")
    return Ran(status=ran.status, diagnosis=diagnosis)


def _ending(ran: scripts.Ran) -> str:
    """How a script ended, where that may be why there is no answer."""
    if ran.error is not None:
        return f". The script ended in an error: {ran.error}"
    return f". The script ended itself (sys.exit), with status {ran.status}" if ran.exited else ""


def _in_lines(watcher: Watcher, told: Callable[[str], None], *, stop_after: bool) -> live.Stages:
    """What the watcher does, in lines for somebody who watches the script's own output."""
    then = "the script is ended here" if stop_after else "the script goes on to its end, then the answer follows"

    def tell(stage: str, done: int, total: int) -> None:
        told(f"gobrrr: {watcher.steps_from}: {f'enough was seen; {then}' if watcher.done else stage}")

    return tell


def _number(variable: str, otherwise: int) -> int:
    """What torchrun says in the environment."""
    value = os.environ.get(variable, "")
    return int(value) if value.isdecimal() else otherwise


def _in_step() -> Options:
    """Among ranks all look at the same steps, whatever each one's clock says: one that stops alone hangs the others."""
    from gobrrr.observe.live.watcher import Options as Made

    return Made(warmup=RANKS_WARMUP, most_warmup=RANKS_WARMUP, window_s=math.inf, profiled_s=math.inf)
