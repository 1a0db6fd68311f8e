"""Work that grows: from one recorded step to the next, from turn to turn within one, and what is held meanwhile.

A rise is one that each step shows by the same amount. Lengths that vary, a schedule that alternates, a first step that
makes its state do not show one.
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
from gobrrr.model.events import ABSENT, I8, Kind
from gobrrr.model.recording import Held, Later, Tally
from gobrrr.model.tree import outermost

LEAST_STEPS = 3
"""Two steps that differ show no trend: the third has to go on as they began."""
LEAST_UNEVEN = 5
"""Steps in which a rise by unequal amounts counts, where two looks show it as well: by chance one in 120 rises so."""
ASKS = ("backward", "grad")
"""What a program calls to run a backward pass."""


class Operation(NamedTuple):
    """One operation in a recorded step: its row, and its calls with device work (indices into `evidence.calls`)."""

    row: int
    calls: tuple[int, ...]


@dataclass(frozen=True)
class Rising:
    """Operations of one name at one line that become more, or larger, by `rate` a step.

    `last`: in the last step; `mean`: of the recorded ones; `rows`: of all of them. `calls`: indices into
    `evidence.calls`, of what has device work; `low`, `high`: the share of each one's time that was not there in the
    first recorded step, and in the first step of the loop; `a_step`: the share of each one's time that each step adds.
    `counted`: `rate` is of calls, not of elements. `seen`: two looks have shown it as well.
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
class Turns:
    """Backward passes of one step that become longer from turn to turn: operations in each, and the calls of all.

    `more`: the share of each call's time that the first turn's length would not have.
    """

    lengths: tuple[int, ...]
    source: str | None
    calls: I8
    more: F8


@dataclass(frozen=True)
class Holding:
    """What a program holds that rises from step to step: by how much in one, and how much there is."""

    rate: float
    now: float


def rising(evidence: Evidence) -> tuple[Rising, ...]:
    """What rises from step to step, most time first; () for fewer than three marked steps."""
    steps, later = evidence.recorded_steps, _later(evidence)
    if not steps.marked or steps.count < LEAST_STEPS:
        return ()
    visible = _visible(evidence, later)
    calls: dict[int, list[int]] = defaultdict(list)
    for call, row in enumerate(evidence.calls.op.tolist()):
        if row >= 0 and visible[row] >= 0:
            calls[int(visible[row])].append(call)
    found: list[Rising] = []
    for name, ops in _by_name(evidence, visible, calls).items():
        found += _of_name(evidence, later, name, ops)
    return tuple(sorted(found, key=lambda one: -evidence.replayed.duration_ns[one.rows].sum()))


def _visible(evidence: Evidence, later: Later | None) -> I8:
    """For each row the operation around it that is counted: as it was dispatched; in a trace, what has device work."""
    events = evidence.events
    if later is not None:
        names = {tally.op for tally in (*later.first, *later.second)}
    else:
        rows = evidence.calls.op
        names = {events.names[at] for at in np.unique(events.name[rows[rows >= 0]]).tolist()}
    known = np.array([name in names for name in events.names] or [False], dtype=bool)
    return outermost(evidence.priced.links.op_parent, known[events.name] & (events.kind == Kind.OP))


def _by_name(evidence: Evidence, visible: I8, calls: dict[int, list[int]]) -> dict[str, list[list[Operation]]]:
    """The operations of each name, by step, in the order in which the host ran them."""
    events, steps = evidence.events, evidence.recorded_steps
    rows = np.flatnonzero(visible == np.arange(len(visible)))
    step = np.searchsorted(np.array(steps.begins), events.start_ns[rows], side="right") - 1
    last = steps.host_stop if steps.host_stop is not None else steps.stop
    inside = (step >= 0) & (events.start_ns[rows] < last)
    rows, step = rows[inside], step[inside]
    order = np.argsort(events.start_ns[rows], kind="stable")
    found: dict[str, list[list[Operation]]] = {}
    for row, at in zip(rows[order].tolist(), step[order].tolist(), strict=True):
        of_name = found.setdefault(events.name_of(row), [[] for _ in steps.begins])
        of_name[at].append(Operation(row, tuple(calls.get(row, ()))))
    return found


def _of_name(evidence: Evidence, later: Later | None, name: str, steps: list[list[Operation]]) -> list[Rising]:
    """`steps`: the operations of one name, by step."""
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
    found = []
    for source, places in grown.items():
        mine = [[step[at] for at in places] for step in steps]
        totals = [sum(size[at] for at in places) for size in sizes]
        found.append(_risen(later, (name, source), mine, totals, counted=False))
    return found


def _rises(values: Sequence[int], *, confirmed: bool) -> bool:
    """Whether each value is above the one before, all by as much; by unequal amounts where there are enough."""
    more = {b - a for a, b in pairwise(values)}
    even = len(values) >= LEAST_STEPS and len(more) == 1
    return min(more, default=0) > 0 and (even or (confirmed and len(values) >= LEAST_UNEVEN))


def _risen(
    later: Later | None,
    place: tuple[str, str | None],
    steps: list[list[Operation]],
    values: Sequence[int],
    *,
    counted: bool,
) -> Rising:
    rate = (values[-1] - values[0]) / (len(values) - 1)
    before = later.before if later is not None and later.before is not None else 0
    first = max(values[0] - rate * before, min(rate, values[0]))
    pairs = [(call, value) for step, value in zip(steps, values, strict=True) for op in step for call in op.calls]
    total = np.array([value for _, value in pairs], dtype=np.float64)
    return Rising(
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


def _more(later: Later | None, name: str, *, counted: bool) -> list[str | None]:
    """Lines at which an operation rose between the two looks, the most first."""
    if later is None:
        return []
    first = {one.source: one for one in later.first if one.op == name}
    found: list[tuple[int, str | None]] = []
    for tally in later.second:
        if tally.op == name:
            found.append((_size(tally, counted) - _size(first.get(tally.source), counted), tally.source))
    return [source for more, source in sorted(found, key=lambda pair: -pair[0]) if more > 0]


def _size(tally: Tally | None, counted: bool) -> int:
    return 0 if tally is None else tally.count if counted else tally.elements


def _elements(evidence: Evidence, op: Operation) -> int:
    """Of the tensors that the largest of an operation's calls is given; 0 where none has device work."""
    sizes = (sum(math.prod(tensor.shape) for tensor in evidence.group_of(call).call.tensors) for call in op.calls)
    return max(sizes, default=0)


def _later(evidence: Evidence) -> Later | None:
    return evidence.profile.seen.later if evidence.profile.seen is not None else None


# -- turns


def longer_turns(evidence: Evidence) -> Turns | None:
    """Backward passes of the step that was looked at, each longer than the one before, behind forward passes alike."""
    seen = evidence.profile.seen
    if seen is None or not seen.calls:
        return None
    runs: list[tuple[bool, list[int]]] = []
    for back, some in groupby(range(len(seen.calls)), key=lambda at: seen.calls[at].phase == "backward"):
        runs.append((back, list(some)))
    backward = [run for back, run in runs if back]
    between = [len(run) for back, run in runs if not back][1:-1]  # the first has what prepares, the last what follows
    lengths = [len(run) for run in backward]
    if len(lengths) <= LEAST_STEPS or len(set(between)) != 1 or not _steadily(lengths):
        return None
    share = {at: (len(run) - lengths[0]) / len(run) for run in backward for at in run}
    ops = evidence.calls.op
    position = np.where(ops >= 0, evidence.dispatched[np.maximum(ops, 0)], ABSENT)
    calls = np.flatnonzero(np.isin(position, np.array(sorted(share), dtype=np.int64)))
    asked = {line.source for line in seen.lines if line.callee in ASKS}
    users = Counter(seen.sites[seen.calls[at].site].user for at in share)
    source = asked.pop() if len(asked) == 1 else users.most_common(1)[0][0]
    return Turns(tuple(lengths), source, calls, np.array([share[at] for at in position[calls].tolist()]))


def _steadily(lengths: Sequence[int]) -> bool:
    """Each longer than the one before; from the second turn on by as much, or by more."""
    more = [b - a for a, b in pairwise(lengths)]
    return more[0] > 0 and all(b >= a > 0 for a, b in pairwise(more))


# -- what is held


def nodes_held(evidence: Evidence) -> Holding | None:
    """Nodes of autograd's graphs that are there between steps, where each step leaves more."""
    return _held(evidence, "nodes")


def hooks_held(evidence: Evidence) -> Holding | None:
    """Hooks on modules and tensors, where each step leaves more."""
    return _held(evidence, "hooks")


def bytes_held(evidence: Evidence) -> Holding | None:
    """Bytes that tensors hold, where the profiled steps left more.

    Looks keep samples of their own, so that the boundaries before them alone count.
    """
    later = _later(evidence)
    if later is None or len(later.held) < 2:
        return None
    held, other = later.held[:2]
    if held.device_bytes is not None and other.device_bytes is not None:
        return _between(held, other, held.device_bytes, other.device_bytes)
    return _between(held, other, held.bytes, other.bytes)


def bytes_kept(evidence: Evidence) -> Holding | None:
    """Bytes of the results that each step keeps: those of one were there when the next had ended, and the recorded
    steps left as many tensors more. What is replaced, or rotates, does not."""
    later = _later(evidence)
    if later is None or len(later.held) < 2:
        return None
    held, other = later.held[:2]
    kept = [each for each in later.kept if not each.chain]
    if not kept or other.tensors - held.tensors < len(kept) * (other.step - held.step) or other.bytes <= held.bytes:
        return None
    return Holding(float(sum(each.bytes for each in kept)), float(other.bytes))


def _held(evidence: Evidence, what: str) -> Holding | None:
    later = _later(evidence)
    if later is None or len(later.held) < LEAST_STEPS + 1:
        return None
    values = [getattr(held, what) for held in later.held]
    if None in values:
        return None
    pairs = list(zip(later.held, later.held[1:], values, values[1:], strict=False))
    rates = [(b - a) / max(then.step - now.step, 1) for now, then, a, b in pairs]
    if min(rates) <= 0 or max(rates) > min(rates) + 1e-9:
        return None
    return Holding(rates[0], float(values[-1]))


def _between(held: Held, other: Held, before: int, after: int) -> Holding | None:
    steps = other.step - held.step
    return Holding((after - before) / steps, float(after)) if steps > 0 and after > before else None
