"""What the conditions share: making findings and places, reasons why a condition was not checked, coverage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec
import numpy as np

from gobrrr import units
from gobrrr.analysis.budget.idle import HOST_WORK
from gobrrr.analysis.findings.claims import F8, NO_CALLS, NO_CLAIM, ClaimedFinding, TimeClaim, of_calls
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import step_saving
from gobrrr.analysis.findings.scopes import idle_under
from gobrrr.analysis.host.host_loops import CostlyLoop, inside_of, spans_of_loops
from gobrrr.analysis.host.inputs import input_stretches
from gobrrr.analysis.pricing.fusion import tensors
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.model.diagnosis import Certainty, Finding, NotChecked, Place
from gobrrr.model.events import I8

LEAST_STEP_SHARE = 0.02
"""The least share of the step that is reported. Less is not worth a reader's time and within most spreads."""

GOOD_COVERAGE = 0.8
"""Share of device time that must be priced for a claim about the whole step (docs/design.md, section 5)."""

LEAST_COVERAGE = 0.5
"""The least share of the device's compute time that must be priced for conditions that price calls to be sure."""

PLACES_SHOWN = 3
"""Places and facts of one kind that a finding shows; chosen for one screen."""

UNPRICED = ("C07",)
"""Conditions that need no price of a call."""

OF_TENSOR_CORES = ("C02", "C03")
"""Conditions about tensor cores. They need no priced work to be absent on a device without tensor cores."""


def finding(
    evidence: Evidence,
    code: str,
    title: str,
    *,
    where: list[Place],
    at_stake: tuple[float, float],
    claim: TimeClaim,
    certainty: Certainty,
    treatments: list[str],
    facts: list[str],
    gone: I8 = NO_CALLS,
) -> ClaimedFinding | None:
    """The finding, or None if less than `LEAST_STEP_SHARE` of the step is at stake. 0 <= low <= high <= wall.

    `gone`: calls that are no longer launched once it is mended. A finding is hidden if its calls take enough time on
    the device, but less is at stake because the host is the bottleneck.
    """
    high = min(max(at_stake[1], 0.0), evidence.wall_ns)
    low = min(max(at_stake[0], 0.0), high)
    least = LEAST_STEP_SHARE * max(evidence.wall_ns, 1.0)
    hidden = high < least
    if hidden and claim.total < least * evidence.steps.count:
        return None
    about = Finding(
        code=code,
        title=title,
        where=where,
        at_stake_ns=(low, high),
        certainty=certainty,
        treatments=treatments,
        evidence=facts,
    )
    return ClaimedFinding(about, claim, gone, hidden)


def about_calls(
    evidence: Evidence,
    code: str,
    title: str,
    lost: tuple[I8, F8, F8],
    *,
    treatments: list[str],
    facts: list[str],
    where: list[Place] | None = None,
    certainty: Certainty | None = None,
    gone: I8 = NO_CALLS,
) -> ClaimedFinding | None:
    """A finding about calls that can get shorter. `lost`: (calls, the least and the most ns that each can lose). That
    is claimed, and what it saves of the step's wall time is at stake.

    By default the places are those of the calls, and the certainty depends on how much is priced.
    """
    calls, low, high = lost
    return finding(
        evidence,
        code,
        title,
        where=places(evidence, by_signature(evidence, calls)) if where is None else where,
        at_stake=step_saving(evidence, calls, low, high, len(gone) / evidence.steps.count),
        claim=of_calls(calls, low, high),
        certainty=certainty or certainty_of(evidence),
        treatments=treatments,
        facts=facts,
        gone=gone,
    )


def about_measurement(
    code: str, title: str, facts: list[str], treatments: list[str], where: list[Place]
) -> ClaimedFinding:
    """A finding about the trace and not the step: nothing of the step is at stake."""
    about = Finding(
        code=code,
        title=title,
        where=where,
        at_stake_ns=(0.0, 0.0),
        certainty="high",
        treatments=treatments,
        evidence=facts,
    )
    return ClaimedFinding(about, NO_CLAIM)


def launching(evidence: Evidence) -> tuple[I8, I8]:
    """(idle stretches that end in work with a launch of its own, that work as indices into `links.device`).

    Stretches that end in input (D01) or in a graph's replay are left out.
    """
    links = evidence.priced.links
    index = np.full(len(evidence.events) + 1, -1, dtype=np.int64)
    index[links.device] = np.arange(len(links.device))
    behind = index[evidence.budget.gaps.next_work]  # -1 at the end of the window
    wanted = behind >= 0
    wanted[input_stretches(evidence)] = False
    gaps = np.flatnonzero(wanted)
    gaps = gaps[~links.in_graph[behind[gaps]]]
    return gaps, behind[gaps]


def by_line(loops: list[CostlyLoop]) -> list[CostlyLoop]:
    """The first loop of each line, at most `PLACES_SHOWN`."""
    first: dict[str | None, CostlyLoop] = {}
    for loop in loops:
        first.setdefault(loop.loop.source, loop)
    return list(first.values())[:PLACES_SHOWN]


def within_loops(evidence: Evidence, loops: list[CostlyLoop], *causes: str) -> tuple[I8, F8]:
    """(idle stretches that end in work launched by the loops, ns of `causes` in each).

    If the CPU is the device, the stretches are those within the loops: much of what it does there launches nothing.
    """
    idle = evidence.budget.gaps
    if not evidence.device.asynchronous:
        ns = np.minimum(idle_under(evidence, spans_of_loops(evidence, loops)), idle.of(*causes, HOST_WORK))
        gaps = np.flatnonzero(ns)
        return gaps, ns[gaps].astype(np.float64)
    gaps, behind = launching(evidence)
    gaps = gaps[inside_of(evidence, loops)[behind]]
    return gaps, idle.of(*causes)[gaps].astype(np.float64)


def needs_machine(code: str) -> NotChecked:
    """The device is not known, so its ceilings are not known either."""
    return NotChecked(code=code, needs="needs a machine: --on NAME")


def needs_live(code: str) -> NotChecked:
    """A trace does not record what the condition looks at."""
    return NotChecked(code=code, needs="needs a live run: gobrrr diagnose file.py:step")


def needs_frames(code: str) -> NotChecked:
    """The profile has no Python frames."""
    return NotChecked(code=code, needs="needs Python frames: record with_stack=True, diagnose with --stacks")


def without_shapes(code: str, evidence: Evidence) -> NotChecked | None:
    """Why a condition that needs the calls' shapes can't be checked; None if it can."""
    if shapes_known(evidence):
        return None
    if evidence.priced.links.in_graph.any():  # a replayed graph records no arguments
        return NotChecked(code=code, needs="needs the operations behind the CUDA graph: profile the step without it")
    return NotChecked(code=code, needs="needs the operations' shapes: profile with record_shapes=True")


def unable(code: str, evidence: Evidence) -> NotChecked | None:
    """Why a condition that prices calls can't be checked; None if it can."""
    missing = without_shapes(code, evidence)
    return needs_machine(code) if missing is None and evidence.machine is None else missing


def as_far_as_priced(
    code: str, evidence: Evidence, result: ClaimedFinding | NotChecked | None
) -> ClaimedFinding | NotChecked | None:
    """The result of a check if less than `LEAST_COVERAGE` of the device's compute time is priced.

    A condition that prices calls (C, M) and found nothing did not see the larger part: NotChecked, with the share. What
    it did find has low certainty, and says why. Other results stay the same.
    """
    share = covered(evidence)
    if (
        code[:1] not in ("C", "M")
        or code in UNPRICED
        or share >= LEAST_COVERAGE
        or (code in OF_TENSOR_CORES and not evidence.device.tensor_cores)
    ):
        return result
    if result is None or (isinstance(result, ClaimedFinding) and result.hidden):
        needs = f"needs FLOPs and bytes of more of the device's compute time: known for {units.percent(share)} of it"
        return NotChecked(code=code, needs=needs)
    if isinstance(result, NotChecked):
        return result
    known = f"FLOPs and bytes are known for only {units.percent(share)} of the device's compute time"
    facts = [*result.finding.evidence, f"{known}: there may be more of this in the rest"]
    return ClaimedFinding(
        msgspec.structs.replace(result.finding, certainty="low", evidence=facts), result.claim, result.gone
    )


def shapes_known(evidence: Evidence) -> bool:
    """Whether any call of the window has tensor arguments."""
    groups = evidence.priced.groups
    return any(tensors(groups[index].call) for index in np.unique(evidence.calls.group).tolist())


def covered(evidence: Evidence) -> float:
    """Share of the device time of calls that is priced; 1 without device time."""
    ns = evidence.calls.ns
    total = float(ns.sum())
    return float(ns[~np.isnan(evidence.calls.floor_ns)].sum()) / total if total else 1.0


def certainty_of(evidence: Evidence, best: Certainty = "high") -> Certainty:
    """`best` if most of the device time is priced, otherwise one level less."""
    if covered(evidence) >= GOOD_COVERAGE:
        return best
    return "medium" if best == "high" else "low"


def signature(group: CallGroup) -> tuple[object, ...]:
    """Calls are alike to a reader if this is equal: the operation and its tensors' shapes and dtypes."""
    return group.call.name or group.call.kernels[:1], tuple(
        (tensor.shape, tensor.dtype) for tensor in tensors(group.call)
    )


def places(evidence: Evidence, sets: Iterable[I8], most: int = PLACES_SHOWN) -> list[Place]:
    """A place for each set of calls, most time first."""
    by_set = [evidence.place(calls) for calls in sets]
    return sorted(by_set, key=lambda place: (-(place.ns or 0.0), place.op or "", place.shapes or ""))[:most]


def place_of_row(
    evidence: Evidence, row: int, count: float | None, ns: float | None = None, op: str | None = None
) -> Place:
    """The place of a host event, by default with the event's name as the operation."""
    name = evidence.events.name_of(row) if op is None else op
    return Place(op=name, module=evidence.module(row), source=evidence.source(row), count=count, ns=ns)


def of_step(evidence: Evidence, ns: float) -> str:
    """A time of one step, for a reader: "3.2 ms of the step's 10 ms"."""
    return f"{units.duration(ns)} of the step's {units.duration(evidence.wall_ns)}"


def bytes_of(evidence: Evidence, calls: Iterable[int]) -> float:
    """Bytes that calls move together; calls without a known number count as 0."""
    return sum(evidence.group_of(call).work.bytes or 0.0 for call in calls)


def matrix_flop_of(evidence: Evidence, calls: Iterable[int]) -> float:
    """FLOP of the matrix products of calls."""
    return sum(evidence.group_of(call).work.matrix_flop or 0.0 for call in calls)


def recorded_steps_of(evidence: Evidence, rows: I8) -> I8:
    """The numbers of the recorded steps that host events lie in, the first being 1."""
    start = evidence.replayed.start_ns[rows]
    return np.unique(np.searchsorted(np.array(evidence.steps.begins), start, side="right"))


def which_steps(evidence: Evidence, rows: I8, verb: str, *, again: bool) -> str:
    """Which recorded steps have events of a kind; if only the first has them, a warm-up was recorded (not `again`)."""
    count = len(evidence.steps.begins)
    if count < 2:
        return f"one step was recorded: whether later ones {verb} as well is not known"
    if not again:
        return f"only the first recorded step {verb}s: warm up before profiling"
    return f"{units.count(len(recorded_steps_of(evidence, rows)))} of {units.count(count)} recorded steps {verb}"


def by_signature(evidence: Evidence, calls: I8) -> list[I8]:
    """The calls split by operation and shapes."""
    sets: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for call in calls.tolist():
        sets[signature(evidence.group_of(call))].append(call)
    return [np.array(alike, dtype=np.int64) for alike in sets.values()]


def short_op(name: str | None) -> str:
    """An operation's name as people say it: "softmax" for "aten::_softmax"."""
    return (name or "?").removeprefix("aten::").strip("_")
