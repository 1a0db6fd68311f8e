"""Work that grows from one recorded step to the next, or from turn to turn within a step, and what is held meanwhile.

Work rises if each step adds the same amount. So lengths that vary, a schedule that alternates, or a first step that
creates state do not count.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from gobrrr.analysis.findings.claims import F8
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.events import ABSENT, I8, EventKind
from gobrrr.model.recording import HeldMemory, OpTally, SecondStep
from gobrrr.model.tree import outermost

LEAST_TREND_STEPS = 3
"""A trend needs at least three steps: two that differ show none."""
LEAST_UNEVEN_STEPS = 5
"""A rise by unequal amounts counts over at least this many steps, if observing the step twice shows it as well: five
values in random order rise by chance once in 120."""
BACKWARD_CALLS = ("backward", "grad")
"""The functions by which a program runs a backward pass."""


class Operation(NamedTuple):
    """One operation in a recorded step: its row, and its calls with device work (indices into `evidence.calls`)."""

    row: int
    calls: tuple[int, ...]


@dataclass(frozen=True)
class RisingOperation:
    """Operations of one name at one line whose number, or size, rises by `rate` per step.

    `rows`: all of them. `last`: the number or size in the last step; `mean`: in the mean recorded step. `counted`:
    these are numbers of calls, not of elements. `calls`: those with device work (indices into `evidence.calls`); for
    each, `low`, `high`: the share of its time that the first recorded step, and the first step of the loop, did not
    have; `a_step`: the share that each step adds. `seen`: observing the step twice has shown it as well.
    """

    op: str
    source: str | None
    rows: I8
    calls: I8
    low: F8
    high: F8
    a_step: F8
    rate: float
    last: float
    mean: float
    counted: bool
    seen: bool


@dataclass(frozen=True)
class LongerTurns:
    """Backward passes of one step that become longer from turn to turn.

    `lengths`: the operations in each; `calls`: those of all. `more`: the share of each call's time that would not be
    there if all turns were as long as the first.
    """

    lengths: tuple[int, ...]
    source: str | None
    calls: I8
    more: F8


@dataclass(frozen=True)
class Holding:
    """Something that a program holds and that rises from step to step: by `rate` per step, to `now`."""

    rate: float
    now: float


def rising(evidence: Evidence) -> tuple[RisingOperation, ...]:
    """Operations that rise from step to step, most time first; () for fewer than three marked steps."""
    steps, later = evidence.recorded_steps, _later(evidence)
    if not steps.marked or steps.count < LEAST_TREND_STEPS:
        return ()
    visible = _visible(evidence, later)
    calls: dict[int, list[int]] = defaultdict(list)
    for call, row in enumerate(evidence.calls.op.tolist()):
        if row >= 0 and visible[row] >= 0:
            calls[int(visible[row])].append(call)
    risen: list[RisingOperation] = []
    for name, ops in _by_name(evidence, visible, calls).items():
        risen += _of_name(evidence, later, name, ops)
    return tuple(sorted(risen, key=lambda rise: -evidence.replayed.duration_ns[rise.rows].sum()))


def _visible(evidence: Evidence, later: SecondStep | None) -> I8:
    """For each row the counted operation around it: one that was dispatched; in a trace, one with device work."""
    events = evidence.events
    if later is not None:
        names = {tally.op for tally in (*later.first, *later.second)}
    else:
        rows = evidence.calls.op
        names = {events.names[at] for at in np.unique(events.name[rows[rows >= 0]]).tolist()}
    known = np.array([name in names for name in events.names] or [False], dtype=bool)
    return outermost(evidence.priced.links.op_parent, known[events.name] & (events.kind == EventKind.OP))


def _by_name(evidence: Evidence, visible: I8, calls: dict[int, list[int]]) -> dict[str, list[list[Operation]]]:
    """The operations of each name, by step, in the host's order."""
    events, steps = evidence.events, evidence.recorded_steps
    rows = np.flatnonzero(visible == np.arange(len(visible)))
    step = np.searchsorted(np.array(steps.begins), events.start_ns[rows], side="right") - 1
    last = steps.host_stop if steps.host_stop is not None else steps.stop
    inside = (step >= 0) & (events.start_ns[rows] < last)
    rows, step = rows[inside], step[inside]
    order = np.argsort(events.start_ns[rows], kind="stable")
    by_name: dict[str, list[list[Operation]]] = {}
    for row, at in zip(rows[order].tolist(), step[order].tolist(), strict=True):
        of_name = by_name.setdefault(events.name_of(row), [[] for _ in steps.begins])
        of_name[at].append(Operation(row, tuple(calls.get(row, ()))))
    return by_name


def _of_name(
    evidence: Evidence, later: SecondStep | None, name: str, steps: list[list[Operation]]
) -> list[RisingOperation]:
    """The rises of one operation, in number or in size. `steps`: its occurrences by step."""
    counts = [len(step) for step in steps]
    counted = len(set(counts)) > 1
    lines = _more(later, name, counted=counted)
    if later is not None and not lines:
        return []
    if counted:
        if not _rises(counts, confirmed=bool(lines)):
            return []
        source = lines[0] if lines else evidence.source(steps[-1][0].row)
        return [_risen(later, (name, source), steps, counts, counted=True)]
    sizes = [[_elements(evidence, op) for op in step] for step in steps]
    grown: dict[str | None, list[int]] = defaultdict(list)
    for at, values in enumerate(zip(*sizes, strict=True)):
        if min(values) > 0 and _rises(values, confirmed=bool(lines)):
            grown[evidence.source(steps[-1][at].row)].append(at)
    risen = []
    for source, places in grown.items():
        at_line = [[step[at] for at in places] for step in steps]
        totals = [sum(size[at] for at in places) for size in sizes]
        risen.append(_risen(later, (name, source), at_line, totals, counted=False))
    return risen


def _rises(values: Sequence[int], *, confirmed: bool) -> bool:
    """Whether each value exceeds the one before by the same amount; by any amount if `confirmed` and enough values."""
    more = {b - a for a, b in pairwise(values)}
    even = len(values) >= LEAST_TREND_STEPS and len(more) == 1
    return min(more, default=0) > 0 and (even or (confirmed and len(values) >= LEAST_UNEVEN_STEPS))


def _risen(
    later: SecondStep | None,
    place: tuple[str, str | None],
    steps: list[list[Operation]],
    values: Sequence[int],
    *,
    counted: bool,
) -> RisingOperation:
    rate = (values[-1] - values[0]) / (len(values) - 1)
    before = later.before if later is not None and later.before is not None else 0
    first = max(values[0] - rate * before, min(rate, values[0]))
    pairs = [(call, value) for step, value in zip(steps, values, strict=True) for op in step for call in op.calls]
    total = np.array([value for _, value in pairs], dtype=np.float64)
    return RisingOperation(
        op=place[0],
        source=place[1],
        rows=np.array([op.row for step in steps for op in step], dtype=np.int64),
        calls=np.array([call for call, _ in pairs], dtype=np.int64),
        low=(total - values[0]) / total,
        high=(total - first) / total,
        a_step=rate / total,
        rate=rate,
        last=float(values[-1]),
        mean=float(np.mean(values)),
        counted=counted,
        seen=later is not None,
    )


def _more(later: SecondStep | None, name: str, *, counted: bool) -> list[str | None]:
    """Lines at which an operation rose between the two observed steps, the largest rise first."""
    if later is None:
        return []
    first = {tally.source: tally for tally in later.first if tally.op == name}
    rises = [
        (_size(tally, counted) - _size(first.get(tally.source), counted), tally.source)
        for tally in later.second
        if tally.op == name
    ]
    return [source for more, source in sorted(rises, key=lambda rise: -rise[0]) if more > 0]


def _size(tally: OpTally | None, counted: bool) -> int:
    return 0 if tally is None else tally.count if counted else tally.elements


def _elements(evidence: Evidence, op: Operation) -> int:
    """The elements of the inputs of an operation's largest call; 0 where no call has device work."""
    sizes = (sum(math.prod(tensor.shape) for tensor in evidence.group_of(call).call.tensors) for call in op.calls)
    return max(sizes, default=0)


def _later(evidence: Evidence) -> SecondStep | None:
    return evidence.profile.seen.later if evidence.profile.seen is not None else None


# -- turns


def longer_turns(evidence: Evidence) -> LongerTurns | None:
    """Backward passes of the observed step, each longer than the one before, after forward passes of equal length."""
    seen = evidence.profile.seen
    if seen is None or not seen.calls:
        return None
    runs: list[tuple[bool, list[int]]] = []
    for back, positions in groupby(range(len(seen.calls)), key=lambda at: seen.calls[at].phase == "backward"):
        runs.append((back, list(positions)))
    backward = [run for back, run in runs if back]
    between = [len(run) for back, run in runs if not back][1:-1]  # without preparation before and work after the turns
    lengths = [len(run) for run in backward]
    if len(lengths) <= LEAST_TREND_STEPS or len(set(between)) != 1 or not _steadily(lengths):
        return None
    share = {at: (len(run) - lengths[0]) / len(run) for run in backward for at in run}
    ops = evidence.calls.op
    position = np.where(ops >= 0, evidence.dispatched[np.maximum(ops, 0)], ABSENT)
    calls = np.flatnonzero(np.isin(position, np.array(sorted(share), dtype=np.int64)))
    asked = {line.source for line in seen.lines if line.callee in BACKWARD_CALLS}
    users = Counter(seen.sites[seen.calls[at].site].user for at in share)
    source = asked.pop() if len(asked) == 1 else users.most_common(1)[0][0]
    return LongerTurns(tuple(lengths), source, calls, np.array([share[at] for at in position[calls].tolist()]))


def _steadily(lengths: Sequence[int]) -> bool:
    """Whether each is longer than the one before, by the same amount or by more each time."""
    more = [b - a for a, b in pairwise(lengths)]
    return more[0] > 0 and all(b >= a > 0 for a, b in pairwise(more))


# -- what is held


def nodes_held(evidence: Evidence) -> Holding | None:
    """Nodes of autograd's graphs that exist between steps, if each step leaves more."""
    return _held(evidence, "nodes")


def hooks_held(evidence: Evidence) -> Holding | None:
    """Hooks on modules and tensors, if each step leaves more."""
    return _held(evidence, "hooks")


def bytes_held(evidence: Evidence) -> Holding | None:
    """Bytes that tensors hold, if the profiled steps left more.

    Only the counts before the observed steps matter: observing a step keeps samples of its own.
    """
    later = _later(evidence)
    if later is None or len(later.held) < 2:
        return None
    held, other = later.held[:2]
    if held.device_bytes is not None and other.device_bytes is not None:
        return _between(held, other, held.device_bytes, other.device_bytes)
    return _between(held, other, held.bytes, other.bytes)


def bytes_kept(evidence: Evidence) -> Holding | None:
    """Bytes of the results that each step keeps.

    They still exist when the next step has ended, and the recorded steps left at least as many more tensors. Results
    that are replaced, or rotate, do not.
    """
    later = _later(evidence)
    if later is None or len(later.held) < 2:
        return None
    held, other = later.held[:2]
    kept = [result for result in later.kept if not result.chain]
    if not kept or other.tensors - held.tensors < len(kept) * (other.step - held.step) or other.bytes <= held.bytes:
        return None
    return Holding(float(sum(result.bytes for result in kept)), float(other.bytes))


def _held(evidence: Evidence, what: str) -> Holding | None:
    """A count of what is held ("nodes" or "hooks"), if it rises evenly; None if not, or where it was not counted."""
    later = _later(evidence)
    if later is None or len(later.held) < LEAST_TREND_STEPS + 1:
        return None
    values = [getattr(held, what) for held in later.held]
    if None in values:
        return None
    pairs = list(zip(later.held, later.held[1:], values, values[1:], strict=False))
    rates = [(b - a) / max(then.step - now.step, 1) for now, then, a, b in pairs]
    if min(rates) <= 0 or max(rates) > min(rates) + 1e-9:
        return None
    return Holding(rates[0], float(values[-1]))


def _between(held: HeldMemory, other: HeldMemory, before: int, after: int) -> Holding | None:
    steps = other.step - held.step
    return Holding((after - before) / steps, float(after)) if steps > 0 and after > before else None
