"""The replay's constants of the host, from steps of the bench that the host bounds once they are treated.

Each is a number of durations of a launch call as recorded (`gobrrr.analysis.path.launch_call_ns`), which tells how fast
that host was. A step that takes LATE times its device's work is bound by the host; then what the host needed under a
treatment follows from the time that was measured: that time less what the treatment leaves to the host as it is.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bench.calibration_fit import NOISY
from gobrrr.analysis.compiled import compilable, in_the_model
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.fusion import Chain
from gobrrr.analysis.intervals import inside_spans
from gobrrr.analysis.path import launch_call_ns, path_of
from gobrrr.analysis.what_if import host_of
from gobrrr.fitted import Constant
from gobrrr.treatments.bf16_autocast import operands

LATE = 1.15
CAPTURED = 0.98
"""A step that takes more of its time than this under mode="reduce-overhead" was not captured: the compiler says so in a
warning that the bench does not keep."""

FEWEST = 20.0
"""A step with fewer launches tells little of what one of them takes."""


class Implied(NamedTuple):
    """What one measured step says of a constant, in launch calls; `things`: launches or operands that it is for."""

    name: str
    calls: float
    things: float = 1.0


def implied(evidence: Evidence, step_ns: float, rows: dict[str, dict[str, Any]]) -> list[Implied]:
    """All that the measured ways of one workload say. `rows`: by the names of ways, as measured."""
    call, path = launch_call_ns(evidence), path_of(evidence)
    if call is None or evidence.on_cpu:
        return []
    found = []
    if path.busy * LATE < step_ns and path.launches:
        found.append(Implied("host", path.host / path.launches / call))
    begin, end = compilable(evidence)
    count = evidence.recorded_steps.count
    inside = float(host_of(evidence.graph, begin, end).sum()) / count
    trains = "training" if evidence.training else "inference"
    for way in ("compile", "compile:reduce-overhead", "bf16-autocast"):
        if way not in rows or rows[way].get("quartiles", 0.0) > NOISY:
            continue
        after = rows[way]["after_ns"] / rows[way]["before_ns"] * step_ns
        if after < LATE * path.busy or (way == "compile:reduce-overhead" and after > CAPTURED * step_ns):
            continue
        if way == "bf16-autocast":
            found.append(Implied("casts", (after - path.host) / call, _operands(evidence)))
        else:
            kind = "compiled" if way == "compile" else "captured"
            found.append(Implied(f"{kind} {trains}", (after - path.host + inside) / call, _launches(evidence)))
    return found


def _launches(evidence: Evidence) -> float:
    """Launches a step of the model's passes that a compiler leaves."""
    links = evidence.priced.links
    launched = inside_spans(evidence.graph.called, *compilable(evidence)) & (links.launch >= 0) & ~links.in_graph
    chains: list[Chain] = [one for each in evidence.fusion.chains if (one := each.without_head()) is not None]
    gone = np.array([call for chain in chains for call in chain.calls[1:]], dtype=np.int64)
    gone = gone[in_the_model(evidence)[gone]]
    return float(launched.sum()) / evidence.recorded_steps.count - len(gone) / evidence.steps.count


def _operands(evidence: Evidence) -> float:
    """What autocast casts in a step."""
    groups = evidence.priced.groups
    each = [operands(one.call.tensors) if one.work.matrix_dtype in ("float32", "tf32") else 0 for one in groups]
    return float(np.array(each or [0])[evidence.calls.group].sum()) / evidence.steps.count


def constants(said: Iterable[Implied]) -> list[Constant]:
    """The constants: the launch's of compiled code from inference, whose guards are few; the guards' from the rest."""
    by_name: dict[str, list[Implied]] = {}
    for one in said:
        by_name.setdefault(one.name, []).append(one)
    inference = by_name.get("compiled inference", [])
    launch = [one.calls / one.things for one in inference if one.things >= FEWEST]
    made = [_constant("compiled launch", launch)]
    each = made[0].value
    for kind in ("inference", "training"):
        guards = [max(one.calls - each * one.things, 0.0) for one in by_name.get(f"compiled {kind}", [])]
        made.append(_constant(f"compiled guards, {kind}", guards))
        captured = [max(one.calls, 0.0) for one in by_name.get(f"captured {kind}", [])]
        made.append(_constant(f"captured replay, {kind}", captured))
    casts = [one.calls / one.things for one in by_name.get("casts", []) if one.things >= FEWEST]
    host = [one.calls for one in by_name.get("host", [])]
    return [*made, _constant("cast", casts), _constant("host launch", host, at=0.9)]


def _constant(name: str, values: Sequence[float], at: float = 0.5) -> Constant:
    value = statistics.median(values) if at == 0.5 else float(np.quantile(values, at))
    return Constant(
        name=name, value=round(value, 2), unit="launch calls", points=len(values), low=round(min(values), 2),
        high=round(max(values), 2), quantile=at,
    )  # fmt: skip
