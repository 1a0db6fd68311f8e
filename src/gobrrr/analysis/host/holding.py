"""What occupies the host while the device idles, other than launching: functions that work or wait, and the lines that
call them.

For a function of a known kind (analysis/host/host_kinds.py) all of its time counts: its own launches, and on a CPU
what it computes. For other functions only stretches count that occur in every step, are too long to be Python between
two launches, and are not torch's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.budget.idle import HOST_WORK, IDLE_CAUSES, LAUNCHING, PYTHON_CAUSE, UNEXPLAINED
from gobrrr.analysis.events.calls import HostCall, classify
from gobrrr.analysis.findings.claims import TimeClaim, of_calls, of_gaps
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.scopes import of_every_step, spent_under
from gobrrr.analysis.host.host_kinds import HostKind, called, kind_of
from gobrrr.analysis.host.reports import reporting
from gobrrr.analysis.places import PlaceTimes
from gobrrr.analysis.places.labels import PlaceSort
from gobrrr.analysis.places.where import LONG_NS
from gobrrr.model.events import ABSENT, F8, I8, EventKind
from gobrrr.model.frame_names import file_of, is_users
from gobrrr.model.recording import OwnTime
from gobrrr.model.tree import depths, outermost

PROGRAM_CAUSES = (PYTHON_CAUSE, UNEXPLAINED)
"""Causes of idle time that are the program's Python, or what it calls; on a GPU also operations that the host computes
(`HOST_WORK`). Loading, compiling, allocating, collecting and waiting for the device belong to other conditions."""

KNOWN_KIND_CAUSES = (*PROGRAM_CAUSES, HOST_WORK, LAUNCHING)
"""Causes that count within a function of a known kind."""

LEAST_KNOWN_SHARE = 0.1
"""The least share of the step that is reported for a line whose call is of a known kind. In live runs of eight
programs without a fault (mended forms of known ones, on a CPU) no line had more than 1 %."""

LEAST_UNKNOWN_SHARE = 0.2
"""The least share of the step that is reported for a line whose call is of no known kind. In those runs the largest was
2 %; on a machine so busy that a thread waited two thirds of the time for a processor, 11 and 16 %."""

LONG_PYTHON_NS = 1_000_000
"""Without frames, shorter stretches of Python count as dispatching: 99.9 % of such stretches are shorter than 0.8 ms.
"""

OPTIMIZER_ANNOTATIONS = ("Optimizer.step#", "Optimizer.zero_grad#")
"""torch's annotations of an optimizer: Python in these is the optimizer's, however long it runs without a launch."""

FRAMEWORK_FRAMES = ("torch/", "triton/", "gobrrr/")
OBSERVER_FRAMES = ("torch/profiler/", "gobrrr/")
IMPORT_FRAMES = "<frozen importlib"
"""Beginnings of the names of frames of the framework, of the profiler with this package, and of imports."""


@dataclass(frozen=True)
class Holder:
    """One line of the program, and the function called there that occupies the host.

    `kind`: None where the function is of no known kind; `what`: the function; `row`: the first of its host events;
    `gap`, `ns`: the budget's gaps in which it runs, and its ns of each, over the window; `calls`, `call_ns`: on a CPU
    the calls within it, and the ns of each; `count`: how often it runs in the window, None: not known; `inside`: the
    function's own time, as a live run saw it.
    """

    kind: HostKind | None
    what: str
    source: str | None
    row: int
    gap: I8
    ns: F8
    count: int | None
    calls: I8
    call_ns: F8
    inside: OwnTime | None = None

    @property
    def own(self) -> bool:
        """Whether a live run saw that it is Python of the program itself."""
        return self.inside is not None and not self.inside.callee

    @property
    def total(self) -> float:
        """Nanoseconds in the window."""
        return float(self.ns.sum() + self.call_ns.sum())


def holders(evidence: Evidence) -> list[Holder]:
    """The lines that occupy the host, longest time first; none where no frames were read. Reporting is left out."""
    if not evidence.profile.frames:
        return []
    return [holder for holder in every_holder(evidence) if holder.total >= _least(evidence, holder)]


def _least(evidence: Evidence, holder: Holder) -> float:
    """The least time of a line that is reported, in ns over the window. What is known to be the program's is compared
    with the usual step; what is not known is compared with the mean step, because it may be a thread that waits."""
    steps = evidence.steps
    share = LEAST_UNKNOWN_SHARE if holder.kind is None else LEAST_KNOWN_SHARE
    if (holder.kind is None and holder.inside is None) or not steps.begins:
        return share * evidence.wall_ns * steps.count
    usual = float(np.percentile(np.diff([*steps.begins, steps.stop]), 50, method="lower"))
    return share * min(usual, evidence.wall_ns) * steps.count


def own_python(evidence: Evidence, gaps: I8) -> F8:
    """For each of `gaps` (indices into the budget's), the ns of Python that is the program's own, without dispatching.

    It is the holders' part; without frames, the part of long stretches outside of an optimizer's step.
    """
    python = evidence.budget.gaps.of(PYTHON_CAUSE)[gaps].astype(np.float64)
    if evidence.profile.frames:
        held = np.zeros(len(evidence.budget.gaps))
        for holder in every_holder(evidence):
            held[holder.gap] += holder.ns
        return np.minimum(held[gaps], python)
    python[python < LONG_PYTHON_NS] = 0.0
    for at in np.flatnonzero(python).tolist():
        gaps_ = evidence.budget.gaps
        python[at] *= not _in_update(evidence, int(gaps_.start[gaps[at]]), int(gaps_.stop[gaps[at]]))
    return python


def _in_update(evidence: Evidence, start: int, stop: int) -> bool:
    """Whether most of the stretch lies in an optimizer's call."""
    events = evidence.replayed
    named = np.array([name.startswith(OPTIMIZER_ANNOTATIONS) for name in events.names], dtype=bool)
    rows = np.flatnonzero(named[events.name] & (events.kind == EventKind.ANNOTATION))
    inside = np.minimum(events.end_ns[rows], stop) - np.maximum(events.start_ns[rows], start)
    return bool(len(rows)) and 2 * int(np.maximum(inside, 0).max()) > stop - start


def every_holder(evidence: Evidence) -> list[Holder]:
    """All lines that occupy the host, however shortly, longest time first."""
    where = evidence.where
    kinds = _kinds(evidence)
    frame = np.isin(evidence.replayed.kind, [int(EventKind.PYTHON)])
    known = np.array([kind is not None for kind in kinds] or [False], dtype=bool)
    outer = outermost(where.parent, frame & known[evidence.replayed.name])
    left_out = _left_out(evidence, where, frame, reporting(evidence))
    idle = where.idle
    row = np.maximum(idle.row, 0)
    causes = (*PROGRAM_CAUSES, HOST_WORK) if evidence.device.asynchronous else PROGRAM_CAUSES
    ns = _of(idle.part, KNOWN_KIND_CAUSES)
    unknown_kind = (idle.row < 0) | (outer[row] < 0)
    ns[unknown_kind] = _of(idle.part, causes)[unknown_kind]
    stretch = np.zeros(len(evidence.budget.gaps))
    np.add.at(stretch, idle.gap[unknown_kind], ns[unknown_kind])
    short = unknown_kind & ((stretch[idle.gap] < LONG_NS) | _of_torch(evidence, where, frame)[row])
    ns[short | (idle.row < 0) | left_out[row]] = 0.0
    held = np.flatnonzero(ns > 0)
    return _grouped(evidence, where, outer, kinds, held, ns)


def claim_of(evidence: Evidence, held_by: list[Holder]) -> TimeClaim:
    """The holders' part of idle time, and of a CPU's computing: all of it at most, nothing at least."""
    ns, computed = np.zeros(len(evidence.budget.gaps)), np.zeros(len(evidence.calls))
    for holder in held_by:
        ns[holder.gap] += holder.ns
        computed[holder.calls] += holder.call_ns
    gaps, calls = np.flatnonzero(ns), np.flatnonzero(computed)
    of_idle = of_gaps(evidence, gaps, ns[gaps], np.zeros(len(gaps)), causes=KNOWN_KIND_CAUSES)
    return of_idle + of_calls(calls, np.zeros(len(calls)), np.minimum(computed, evidence.calls.ns)[calls])


def _of(part: F8, causes: tuple[str, ...]) -> F8:
    result: F8 = part[:, [IDLE_CAUSES.index(cause) for cause in causes]].sum(axis=1)
    return result


def _kinds(evidence: Evidence) -> list[HostKind | None]:
    """The kind of each name."""
    streams = evidence.profile.seen.streams if evidence.profile.seen is not None else {}
    return [kind_of(name, streams) for name in evidence.replayed.names]


def _innermost(parent: I8, wanted: NDArray[np.bool_]) -> I8:
    """For each row, the innermost wanted row around it, itself included; -1 for none."""
    result = np.where(wanted, np.arange(len(parent)), ABSENT)
    depth = depths(parent)
    order = np.argsort(depth, kind="stable")
    edges = np.flatnonzero(np.diff(depth[order])) + 1
    for rows in np.split(order, edges)[1:] if len(order) else ():
        result[rows] = np.where(wanted[rows], rows, result[parent[rows]])
    return result


def _left_out(evidence: Evidence, where: PlaceTimes, frame: NDArray[np.bool_], ignored: I8) -> NDArray[np.bool_]:
    """Rows within ignored frames, within loading, collecting, compiling or importing, and what the profiler or this
    package does between steps."""
    names, name = evidence.replayed.names, evidence.replayed.name
    observer = np.array(
        [text.startswith(OBSERVER_FRAMES) and not is_users(text) for text in names] or [False], dtype=bool
    )
    users = np.array([is_users(text) for text in names] or [False], dtype=bool)
    imports = np.array([IMPORT_FRAMES in text for text in names] or [False], dtype=bool)
    # the observer's frames are around the step as well: there the nearest frame is the program's
    nearest = _innermost(where.parent, frame & (observer | users)[name])
    elsewhere = np.isin(classify(evidence.replayed.names), (HostCall.COLLECT, HostCall.INPUT, HostCall.COMPILE))
    wanted = (frame & imports[name]) | elsewhere[name]
    wanted[ignored] = True
    result: NDArray[np.bool_] = outermost(where.parent, wanted) >= 0
    observing: NDArray[np.bool_] = (nearest >= 0) & observer[name[np.maximum(nearest, 0)]]
    return result | observing


def _of_torch(evidence: Evidence, where: PlaceTimes, frame: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Rows whose innermost frame with a file is torch's or a module's call: these count as launching."""
    names = evidence.replayed.names
    filed = np.array([file_of(name) is not None or name.startswith("nn.Module: ") for name in names] or [False])
    of_torch = np.array(
        [(name.startswith(FRAMEWORK_FRAMES) and not is_users(name)) or name.startswith("nn.Module: ") for name in names]
        or [False]
    )
    inner = _innermost(where.parent, frame & filed[evidence.replayed.name])
    result: NDArray[np.bool_] = (inner < 0) | of_torch[evidence.replayed.name[np.maximum(inner, 0)]]
    return result


def _grouped(
    evidence: Evidence, where: PlaceTimes, outer: I8, kinds: list[HostKind | None], held: I8, ns: F8
) -> list[Holder]:
    """Group by line and kind; functions of no known kind also by the function."""
    idle = where.idle
    parts: dict[tuple[HostKind | None, str, str | None], list[int]] = {}
    labels: dict[int, tuple[HostKind | None, str, str | None]] = {}
    for piece, row in zip(held.tolist(), idle.row[held].tolist(), strict=True):
        if row not in labels:
            labels[row] = _call_site(evidence, where, row, int(outer[row]), kinds)
        kind, what, source = labels[row]
        parts.setdefault((kind, what if kind is None else "", source), []).append(piece)
    result = []
    for (kind, _, source), pieces in parts.items():
        at = np.array(pieces)
        gap, which = np.unique(idle.gap[at], return_inverse=True)
        total = np.bincount(which.reshape(-1), weights=ns[at]).astype(np.float64)
        longest = int(idle.row[at[ns[at].argmax()]])
        if kind is None:
            share = of_every_step(evidence, evidence.budget.gaps.stop[gap] - 1, total)
            inside = where.own_times.get(evidence.replayed.name_of(longest))
            what = labels[longest][1]
            result.append(Holder(None, what, source, longest, gap, total * share, None, _NONE, _NONE_NS, inside))
            continue
        rows = np.unique(outer[idle.row[at]])
        result.append(_of_kind(evidence, kind, labels[longest][1], source, rows, gap, total))
    return sorted(result, key=lambda holder: -holder.total)


_NONE, _NONE_NS = np.empty(0, dtype=np.int64), np.empty(0)
"""No calls, and their ns."""


def _of_kind(evidence: Evidence, kind: HostKind, what: str, source: str | None, rows: I8, gap: I8, total: F8) -> Holder:
    """The holder of the calls `rows`; on a CPU with what they compute. Work that each step does counts as much as in
    the usual step, because a thread may wait for a processor anywhere."""
    begun = evidence.replayed.start_ns[rows]
    inside = (begun >= evidence.steps.start) & (begun < evidence.steps.stop)
    calls, call_ns = _NONE, _NONE_NS
    if not evidence.device.asynchronous:
        spent = spent_under(evidence, rows)
        calls, call_ns = spent.calls, spent.call_ns
    begins = np.array(evidence.steps.begins or (evidence.steps.start,))
    if not kind.waits and len(np.unique(np.searchsorted(begins, begun, side="right"))) == len(begins):
        total = total * of_every_step(evidence, evidence.budget.gaps.stop[gap] - 1, total)
        call_ns = call_ns * of_every_step(evidence, evidence.calls.start_ns[calls], call_ns)
    count = None if kind.resumed else int(inside.sum())
    return Holder(kind, what, source, int(rows[0]), gap, total, count, calls, call_ns)


def _call_site(
    evidence: Evidence, where: PlaceTimes, row: int, outer: int, kinds: list[HostKind | None]
) -> tuple[HostKind | None, str, str | None]:
    """(the kind, the called function, the line) of a host event."""
    events, tree = evidence.replayed, where.tree
    kind = kinds[int(events.name[outer])] if outer >= 0 else None
    what, source, at = called(events.name_of(outer)) if outer >= 0 else "", None, int(where.node_of[row])
    if outer >= 0:
        at = int(where.node_of[outer])
    while at > 0:
        sort, text = tree.labels[int(tree.label[at])]
        if sort in (PlaceSort.CALL, PlaceSort.FUNCTION, PlaceSort.OP) and not what:
            what = called(text)
        if sort == PlaceSort.FUNCTION and outer < 0 and at == int(where.node_of[row]) and text in where.own_times:
            own = where.own_times[text]
            return kind, f"{own.callee}()" if own.callee else what, own.source or text
        if sort in (PlaceSort.LINE, PlaceSort.FUNCTION) and (outer < 0 or text != events.name_of(outer)):
            source = text
            if sort == PlaceSort.LINE or outer >= 0 or _called_from_nowhere(where, at):
                break
        at = int(tree.parent[at])
    return kind, what or "the step", source


def _called_from_nowhere(where: PlaceTimes, at: int) -> bool:
    """Whether no line around a function's place is known."""
    above = int(where.tree.parent[at])
    return above <= 0 or where.tree.labels[int(where.tree.label[above])][0] != PlaceSort.LINE
