"""What the conditions share: the threshold of a finding, the words for what was not looked at, places."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec
import numpy as np

from gobrrr import units
from gobrrr.analysis.budget.idle import HOST_WORK
from gobrrr.analysis.findings.claims import F8, NO_CALLS, NOTHING, Claim, Found, of_calls
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import step_saving
from gobrrr.analysis.findings.scopes import idle_under
from gobrrr.analysis.host.host_loops import HostLoop, inside_of, spans_of_loops
from gobrrr.analysis.host.inputs import input_stretches
from gobrrr.analysis.pricing.fusion import tensors
from gobrrr.analysis.pricing.price import Group
from gobrrr.model.diagnosis import Certainty, Finding, NotChecked, Place
from gobrrr.model.events import I8

LEAST_SHARE = 0.02
"""Less of the step than this is not worth a reader's time, and below the spread of most measurements."""

GOOD_COVERAGE = 0.8
"""Share of device time that must be priced for a claim about the whole step (docs/design.md, section 5)."""

LEAST_COVERAGE = 0.5
"""With less than this share of the device's compute time priced, a condition that prices calls saw the lesser part."""

MOST_PLACES = 3

UNPRICED = ("C07",)
"""Conditions that need no price of a call."""

OF_TENSOR_CORES = ("C02", "C03")
"""Conditions of tensor cores: a device without them has none, however little of its work is priced."""


def finding(
    evidence: Evidence,
    code: str,
    title: str,
    *,
    where: list[Place],
    at_stake: tuple[float, float],
    claim: Claim,
    certainty: Certainty,
    treatments: list[str],
    facts: list[str],
    gone: I8 = NO_CALLS,
) -> Found | None:
    """The finding, or None where less than `LEAST_SHARE` of the step is at stake. 0 <= low <= high <= wall.

    `gone`: calls that no longer are launches of their own once it is mended. Where the host alone keeps more from being
    at stake, and the calls' own time would make it so, it is hidden.
    """
    high = min(max(at_stake[1], 0.0), evidence.wall_ns)
    low = min(max(at_stake[0], 0.0), high)
    least = LEAST_SHARE * max(evidence.wall_ns, 1.0)
    hidden = high < least
    if hidden and claim.total < least * evidence.steps.count:
        return None
    made = Finding(
        code=code,
        title=title,
        where=where,
        at_stake_ns=(low, high),
        certainty=certainty,
        treatments=treatments,
        evidence=facts,
    )
    return Found(made, claim, gone, hidden)


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
) -> Found | None:
    """A finding about calls that may get shorter. `lost`: the calls, and by how many ns each of them may, at the least
    and at the most. So much is claimed, and what it is worth on the wall is at stake.

    Where nothing else is said, the places are those of the calls, and the certainty goes by how much is priced.
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


def about_measurement(code: str, title: str, facts: list[str], treatments: list[str], where: list[Place]) -> Found:
    """A finding about the trace and not the step: nothing of the step is at stake."""
    made = Finding(
        code=code,
        title=title,
        where=where,
        at_stake_ns=(0.0, 0.0),
        certainty="high",
        treatments=treatments,
        evidence=facts,
    )
    return Found(made, NOTHING)


def following(evidence: Evidence) -> I8:
    """For each idle stretch the index (into `links.device`) of the work that ends it, -1 at the end of the window."""
    index = np.full(len(evidence.events) + 1, -1, dtype=np.int64)
    index[evidence.priced.links.device] = np.arange(len(evidence.priced.links.device))
    return index[evidence.budget.gaps.next_work]


def launching(evidence: Evidence) -> tuple[I8, I8]:
    """(idle stretches that end in work that the host launched by itself, that work as indices into `links.device`).

    Not those that end in input (D01) or in a graph's replay.
    """
    links, behind = evidence.priced.links, following(evidence)
    wanted = behind >= 0
    wanted[input_stretches(evidence)] = False
    gaps = np.flatnonzero(wanted)
    gaps = gaps[~links.in_graph[behind[gaps]]]
    return gaps, behind[gaps]


def within_loops(evidence: Evidence, loops: list[HostLoop], *causes: str) -> tuple[I8, F8]:
    """(idle stretches, ns of `causes` in each) of loops on the host: those that end in work which they launch.

    A CPU that is the device is in the loops themselves, and much of what it does there launches nothing.
    """
    told = evidence.budget.gaps
    if not evidence.device.asynchronous:
        ns = np.minimum(idle_under(evidence, spans_of_loops(evidence, loops)), told.of(*causes, HOST_WORK))
        gaps = np.flatnonzero(ns)
        return gaps, ns[gaps].astype(np.float64)
    gaps, behind = launching(evidence)
    gaps = gaps[inside_of(evidence, loops)[behind]]
    return gaps, told.of(*causes)[gaps].astype(np.float64)


def needs_machine(code: str) -> NotChecked:
    """The device is not known, so neither are its ceilings."""
    return NotChecked(code=code, needs="needs a machine: --on NAME")


def needs_shapes(code: str) -> NotChecked:
    """The trace has no arguments."""
    return NotChecked(code=code, needs="needs the operations' shapes: profile with record_shapes=True")


def needs_eager(code: str) -> NotChecked:
    """The kernels are replayed from a graph, which carries no arguments."""
    return NotChecked(code=code, needs="needs the operations behind the CUDA graph: profile the step without it")


def unable(code: str, evidence: Evidence) -> NotChecked | None:
    """Why a condition that prices calls can't be looked at; None if it can."""
    if not shapes_known(evidence):
        return needs_eager(code) if evidence.priced.links.in_graph.any() else needs_shapes(code)
    return needs_machine(code) if evidence.machine is None else None


def as_far_as_priced(code: str, evidence: Evidence, result: Found | NotChecked | None) -> Found | NotChecked | None:
    """What a condition's check comes to where less than `LEAST_COVERAGE` of the device's compute time is priced.

    A condition that prices calls (C, M) and found nothing was not looked for in the greater part: NotChecked, with the
    share. What it did find has low certainty, and says why. Other results stay as they are.
    """
    share = covered(evidence)
    if (
        code[:1] not in ("C", "M")
        or code in UNPRICED
        or share >= LEAST_COVERAGE
        or (code in OF_TENSOR_CORES and not evidence.device.tensor_cores)
    ):
        return result
    if result is None or (isinstance(result, Found) and result.hidden):
        needs = f"needs FLOPs and bytes of more of the device's compute time: known for {units.percent(share)}"
        return NotChecked(code=code, needs=needs)
    if isinstance(result, NotChecked):
        return result
    known = f"FLOPs and bytes are known for only {units.percent(share)} of the device's compute time"
    fact = f"{known}: more may be in the rest"
    facts = [*result.finding.evidence, fact]
    return Found(msgspec.structs.replace(result.finding, certainty="low", evidence=facts), result.claim, result.gone)


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
    """`best` where most of the device time is priced, one less where it is not."""
    if covered(evidence) >= GOOD_COVERAGE:
        return best
    return "medium" if best == "high" else "low"


def signature(group: Group) -> tuple[object, ...]:
    """What makes two calls the same to a reader: the operation and its tensors' shapes and dtypes."""
    return group.call.name or group.call.kernels[:1], tuple(
        (tensor.shape, tensor.dtype) for tensor in tensors(group.call)
    )


def places(evidence: Evidence, sets: Iterable[I8], most: int = MOST_PLACES) -> list[Place]:
    """A place for each set of calls, most time first."""
    found = [evidence.place(calls) for calls in sets]
    return sorted(found, key=lambda place: (-(place.ns or 0.0), place.op or "", place.shapes or ""))[:most]


def by_signature(evidence: Evidence, calls: I8) -> list[I8]:
    """The calls split by operation and shapes."""
    sets: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for call in calls.tolist():
        sets[signature(evidence.group_of(call))].append(call)
    return [np.array(one, dtype=np.int64) for one in sets.values()]


def short_op(name: str | None) -> str:
    """An operation's name as people say it: "softmax" for "aten::_softmax"."""
    return (name or "?").removeprefix("aten::").strip("_")
