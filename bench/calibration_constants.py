"""The replay's constants of the host, from steps of the bench that the host bounds once they are treated.

Each is a number of durations of a launch call as recorded (`gobrrr.analysis.findings.path.launch_call_ns`), which tells
how fast that host was. A step that takes LATE times its device's work is bound by the host; then what the host needed
under a treatment follows from the time that was measured: that time less what the treatment leaves to the host as it
is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from bench.calibration_fit import NOISY
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import launch_call_ns, path_of
from gobrrr.analysis.host.waits import inner_waits
from gobrrr.analysis.replay.fitted import FittedConstant
from gobrrr.analysis.replay.what_if import host_of
from gobrrr.analysis.savings.compiled import compilable, issued, left_by_fusion
from gobrrr.treatments.bf16_autocast import casts_of

LATE = 1.15
CAPTURED = 0.98
"""A step that takes more of its time than this under mode="reduce-overhead" was not captured: the compiler says so in a
warning that the bench does not keep."""

FEWEST = 20.0
"""A step with fewer launches tells little of what one of them takes."""


class Implied(NamedTuple):
    """What one measured step says of a constant, in launch calls; `things`: what they are for (calls of compiled code,
    operands). `at_most`: the device bounds the step, and the host may need less. `step`: what the step takes, in launch
    calls: an error counts as a share of that."""

    name: str
    calls: float
    things: float = 1.0
    at_most: bool = False
    step: float = 1.0


def implied(evidence: Evidence, step_ns: float, rows: dict[str, dict[str, Any]]) -> list[Implied]:
    """All that the measured ways of one workload say. `rows`: by the names of ways, as measured."""
    call, path = launch_call_ns(evidence), path_of(evidence)
    if call is None or not evidence.device.asynchronous:
        return []
    found = []
    if path.busy * LATE < step_ns and path.launches:
        found.append(Implied("host", path.host / path.launches / call))
    begin, end = compilable(evidence)
    count = evidence.recorded_steps.count
    inside = float(host_of(evidence.graph, begin, end).sum()) / count
    trains = "training" if evidence.training else "inference"
    first, further = (calls / count for calls in issued(evidence, left_by_fusion(evidence)))
    for way in ("compile", "compile:reduce-overhead", "bf16-autocast"):
        if way not in rows or rows[way].get("quartiles", 0.0) > NOISY:
            continue
        after = rows[way]["after_ns"] / rows[way]["before_ns"] * step_ns
        late, rest = after < LATE * path.busy, (after - path.host + inside) / call
        if way == "bf16-autocast" and not late:
            found.append(Implied(f"casts {trains}", (after - path.host) / call, _operands(evidence)))
        elif way == "compile" and not len(inner_waits(evidence)):
            found.append(Implied(f"compiled {trains}", rest - further, first, late, step_ns / call))
        elif way == "compile:reduce-overhead" and after <= CAPTURED * step_ns:
            found.append(Implied(f"captured {trains}", rest, 1.0, late, step_ns / call))
    return found


def _operands(evidence: Evidence) -> float:
    """What autocast casts in a step."""
    return float(np.array(casts_of(evidence) or [0])[evidence.calls.group].sum()) / evidence.steps.count


def constants(said: Iterable[Implied]) -> list[FittedConstant]:
    """The constants: the launch's of compiled code from inference, whose guards are few; the guards' from the rest."""
    by_name: dict[str, list[Implied]] = {}
    for hint in said:
        by_name.setdefault(hint.name, []).append(hint)
    inference = [hint for hint in by_name.get("compiled inference", []) if hint.things >= FEWEST and not hint.at_most]
    made = [_each("compiled launch", inference)]
    each = made[0].value
    for kind in ("inference", "training"):
        guards = [
            hint._replace(calls=max(hint.calls - each * hint.things, 0.0)) for hint in by_name[f"compiled {kind}"]
        ]
        made.append(_at_most(f"compiled guards, {kind}", guards))
        made.append(_at_most(f"captured replay, {kind}", by_name[f"captured {kind}"]))
        made.append(_each(f"cast, {kind}", [hint for hint in by_name[f"casts {kind}"] if hint.things >= FEWEST]))
    return [*made, _constant("host launch", [hint.calls for hint in by_name["host"]], at=0.9)]


def _constant(name: str, values: Sequence[float], at: float = 0.5) -> FittedConstant:
    """A quantile of what single steps say."""
    least, value, most = (float(value) for value in np.quantile(values, (0.25, at, 0.75)))
    return FittedConstant(
        name=name, value=round(value, 2), unit="launch calls", points=len(values), low=round(min(values), 2),
        high=round(max(values), 2), quantile=at, quarters=(round(least, 2), round(most, 2)),
    )  # fmt: skip


def _each(name: str, said: Sequence[Implied]) -> FittedConstant:
    """What a thing needs, by least absolute deviations of what all things of a step need."""
    ordered = sorted(said, key=lambda hint: hint.calls / hint.things)
    each = [hint.calls / hint.things for hint in ordered]
    below = np.cumsum([hint.things for hint in ordered])
    least, value, most = (round(each[int(np.searchsorted(below, below[-1] * at))], 2) for at in (0.25, 0.5, 0.75))
    return replace(_constant(name, each), value=value, quarters=(least, most))


def _at_most(name: str, said: Sequence[Implied]) -> FittedConstant:
    """The quantiles, with the steps that only tell what the host needs at most (Kaplan and Meier 1958, from above)."""
    exact = [hint.calls for hint in said if not hint.at_most]
    least, value, most = (_from_above(said, at, min(exact)) for at in (0.25, 0.5, 0.75))
    kept = [*exact, *(hint.calls for hint in said if hint.at_most and hint.calls < value)]
    return replace(_constant(name, kept), value=value, quarters=(least, most))


def _from_above(said: Sequence[Implied], at: float, least: float) -> float:
    ordered, below = sorted(said, key=lambda hint: (-hint.calls, hint.at_most)), 1.0
    for place, hint in enumerate(ordered):
        rest = sum(1.0 / other.step for other in ordered[place:])
        below *= 1.0 if hint.at_most else 1.0 - 1.0 / hint.step / rest
        if below <= at and not hint.at_most:
            return round(hint.calls, 2)
    return round(least, 2)
