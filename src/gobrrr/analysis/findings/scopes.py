"""Which part of the timeline belongs to given functions of the program, by their Python frames."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from gobrrr.analysis.events.intervals import Spans, covered, union
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.replay.graph import F8
from gobrrr.model.events import I8, EventKind
from gobrrr.model.frame_names import as_written

_FRAME_LINE = re.compile(r"(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)")
"""A place in the program, as the profiler and the answers write it: "path/file.py(12): function"."""


@dataclass(frozen=True)
class FunctionScope:
    """Host time of some functions, and of what they call, within the analysed steps.

    `gaps`: idle gaps that end in work launched there (indices into the budget's gaps); `calls`: calls whose first work
    was launched there (indices into `evidence.calls`). `known`: False where no frame of the functions was recorded; the
    scope is then the whole step.
    """

    spans: Spans
    gaps: I8
    calls: I8
    known: bool


def scope_of(evidence: Evidence, lines: Iterable[str]) -> FunctionScope:
    """The scope of the functions that `lines` ("path/file.py(12): function") lie in."""
    wanted = [match for line in lines if (match := _FRAME_LINE.fullmatch(line)) is not None]
    return _scope(evidence, frames(evidence, lambda name: any(_same(name, match) for match in wanted)))


def frames(evidence: Evidence, wanted: Callable[[str], bool]) -> I8:
    """Rows of the wanted Python frames within the analysed steps, on threads that launch work.

    Other threads (a progress bar's monitor, a writer's queue) run beside the steps.
    """
    events, launch = evidence.replayed, evidence.priced.links.launch
    rows = events.of(EventKind.PYTHON)
    rows = rows[np.isin(events.thread[rows], np.unique(events.thread[launch[launch >= 0]]))]
    rows = rows[(events.end_ns[rows] > evidence.steps.start) & (events.start_ns[rows] < evidence.steps.stop)]
    used = np.unique(events.name[rows])
    chosen = [name for name in used.tolist() if wanted(events.names[name])]
    return rows[np.isin(events.name[rows], chosen)]


def idle_under(evidence: Evidence, spans: Spans) -> I8:
    """For each of the budget's gaps, how many of its nanoseconds `spans` covers."""
    return covered(spans, evidence.budget.gaps.start, evidence.budget.gaps.stop)


def spans_of(evidence: Evidence, rows: I8) -> Spans:
    """The union of some host events."""
    return union(evidence.replayed.start_ns[rows], evidence.replayed.end_ns[rows])


def _scope(evidence: Evidence, rows: I8) -> FunctionScope:
    links, gaps = evidence.priced.links, evidence.budget.gaps
    spans = spans_of(evidence, rows)
    if not len(rows):
        return FunctionScope(spans, np.arange(len(gaps)), np.arange(len(evidence.calls)), False)
    inside = _covers(spans, evidence.replayed.start_ns[np.maximum(links.launch, 0)]) & (links.launch >= 0)
    device = np.zeros(len(evidence.events), dtype=bool)
    device[links.device[inside]] = True
    behind = (gaps.next_work >= 0) & device[np.maximum(gaps.next_work, 0)]
    return FunctionScope(spans, np.flatnonzero(behind), np.flatnonzero(inside[evidence.calls.first]), True)


def _covers(spans: Spans, at: I8) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return covered(spans, at, at + 1) > 0


def _same(frame: str, line: re.Match[str]) -> bool:
    """Whether a frame belongs to the function of a line; the profiler omits the beginning of long paths."""
    match = _FRAME_LINE.fullmatch(frame)
    if match is None or as_written(match["function"]) != as_written(line["function"]):
        return False
    short, full = match["file"].removeprefix("./"), line["file"]
    return full == short or full.endswith("/" + short.lstrip("/")) or short.endswith("/" + full.lstrip("/"))


@dataclass(frozen=True)
class TimeUnderEvents:
    """The time of the steps under some host events, idle or computing.

    `gap_ns`: of each of the budget's gaps, in the whole window; `call_ns`: of each of `calls` (indices into
    `evidence.calls`), in the whole window. `ns`: of both in one step.
    """

    gap_ns: F8
    calls: I8
    call_ns: F8
    ns: float


def of_every_step(evidence: Evidence, at: I8, ns: F8) -> float:
    """The share of `ns`, spent at the times `at`, that recurs in the usual (median) step.

    Time that is spent once in many steps does not recur, nor does a wait for a processor, which can happen anywhere.
    """
    begins = np.array(evidence.steps.begins or (evidence.steps.start,))
    step = np.maximum(np.searchsorted(begins, at, side="right") - 1, 0)
    by_step = np.bincount(step, weights=ns, minlength=len(begins))
    total = float(by_step.sum())
    usual = float(np.percentile(by_step, 50, method="lower"))
    return min(usual * len(begins) / total, 1.0) if total > 0 else 0.0


def spent_under(evidence: Evidence, rows: I8) -> TimeUnderEvents:
    """The time of the steps under host events, given by their rows.

    Where the host's processor is the device: the part of its calls that the events cover. Else: the calls that were
    launched under the events.
    """
    spans, calls = spans_of(evidence, rows), evidence.calls
    gap_ns = idle_under(evidence, spans).astype(np.float64)
    if not evidence.device.asynchronous:
        ns = np.minimum(covered(spans, calls.start_ns, calls.stop_ns), calls.ns)
    else:
        links = evidence.priced.links
        inside = _covers(spans, evidence.replayed.start_ns[np.maximum(links.launch, 0)]) & (links.launch >= 0)
        ns = np.where(inside[calls.first], calls.ns, 0.0)
    under = np.flatnonzero(ns > 0)
    return TimeUnderEvents(gap_ns, under, ns[under], float(gap_ns.sum() + ns.sum()) / evidence.steps.count)
