"""Loops on the host, by the index that they count up: `x[t]`, `w[e]`, `idx == e`.

The profiler records the integers that an operation was called with. Where the same operation on the same shapes is
called with 0, 1, 2, ... in turn, the host runs a loop over timesteps, experts or rows. Layers of a model repeat as
well, but nothing counts them.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.intervals import covered, union
from gobrrr.model.events import I8, Kind

COUNTED = ("aten::select", "aten::narrow", "aten::slice", "aten::eq", "aten::index_select")
"""Operations that take the index of a turn: of a row, a timestep, an expert."""

NODE = "autograd::engine::evaluate_function"

INTEGER = re.compile(r"-?[0-9]{1,18}")
"""Whole numbers as the profiler prints them; longer ones don't count turns."""

LEAST_TURNS = 16
"""With fewer turns a loop's launches are few; attention heads, chunks and micro-batches are counted like that."""


@dataclass(frozen=True)
class Loop:
    """One loop of the recorded steps. `begins`: where each turn begins on the host, on the recorded timeline, in ns.

    `row`: the counting operation of its first turn. A loop ends with a last turn as long as its median one.
    """

    row: int
    begins: I8

    @property
    def stop(self) -> int:
        """Where the last turn ends, taken to be as long as the median one."""
        return int(self.begins[-1] + np.median(np.diff(self.begins)))


def find_loops(evidence: Evidence) -> list[Loop]:
    """Loops of at least `LEAST_TURNS` turns in the recorded steps, the one with the longest reach first, disjoint."""
    events, steps = evidence.events, evidence.recorded_steps
    begin = steps.begins[0] if steps.begins else steps.start
    wanted = np.array([name in COUNTED for name in events.names], dtype=bool)
    rows = np.flatnonzero(wanted[events.name] & (events.kind == Kind.OP) & (events.concrete >= 0))
    rows = rows[(events.start_ns[rows] >= begin) & (events.start_ns[rows] < steps.stop)]
    series: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
    numbers: dict[int, tuple[int, ...]] = {}
    for row in rows.tolist():
        text = int(events.concrete[row])
        if text not in numbers:
            numbers[text] = _integers(events.texts[text])
        key = (int(events.name[row]), int(events.dims[row]), int(events.thread[row]))
        if numbers[text]:
            series[key].append((row, numbers[text][-1] if len(numbers[text]) < 3 else numbers[text][1]))
    runs = [run for one in series.values() for run in _runs(one)]
    loops = [Loop(run[0], events.start_ns[np.array(run)]) for run in runs]
    return _disjoint(sorted(loops, key=lambda one: one.begins[0] - one.stop))


def work_of(evidence: Evidence, loop: Loop) -> I8:
    """Device work that a loop launches, and that the backward pass of its operations does (into `links.device`)."""
    events, links = evidence.events, evidence.priced.links
    launch = np.maximum(links.launch, 0)
    start, known = events.start_ns[launch], links.launch >= 0
    inside = known & (start >= loop.begins[0]) & (start < loop.stop)
    nodes = _nodes_of(evidence, loop)
    for thread in np.unique(events.thread[nodes]).tolist():
        mine = nodes[events.thread[nodes] == thread]
        spans = union(events.start_ns[mine], events.end_ns[mine])
        inside |= known & (events.thread[launch] == thread) & (covered(spans, start, start + 1) > 0)
    return np.flatnonzero(inside)


def _nodes_of(evidence: Evidence, loop: Loop) -> I8:
    """Nodes of autograd that differentiate the loop's operations: their sequence numbers are among those."""
    events, steps = evidence.events, evidence.recorded_steps
    engine = np.array([name.startswith(NODE) for name in events.names], dtype=bool)
    if not engine.any():
        return np.empty(0, dtype=np.int64)
    rows = events.of(Kind.OP)
    start = events.start_ns[rows]
    mine = rows[(start >= loop.begins[0]) & (start < loop.stop) & (events.thread[rows] == events.thread[loop.row])]
    numbers = events.sequence[mine][events.sequence[mine] >= 0]
    if not len(numbers):
        return np.empty(0, dtype=np.int64)
    end = min((begin for begin in steps.begins if begin >= loop.stop), default=steps.stop)
    nodes = rows[engine[events.name[rows]] & (start >= loop.stop) & (start < end)]
    sequence = events.sequence[nodes]
    found: I8 = nodes[(sequence >= numbers.min()) & (sequence <= numbers.max())]
    return found


def _integers(text: bytes) -> tuple[int, ...]:
    """The integers among the arguments as the profiler printed them."""
    try:
        given = json.loads(text)
    except (ValueError, UnicodeDecodeError):
        return ()
    if not isinstance(given, list):
        return ()
    return tuple(int(one) for one in given if isinstance(one, str) and INTEGER.fullmatch(one))


def _runs(series: list[tuple[int, int]]) -> list[list[int]]:
    """Rows of stretches in which the number grows by one step after step; equal ones belong to the same turn."""
    runs: list[list[int]] = []
    current: list[int] = []
    last = 0
    for row, number in series:
        if current and number == last:
            continue
        if not current or number != last + 1:
            runs.append(current)
            current = []
        current.append(row)
        last = number
    runs.append(current)
    return [run for run in runs if len(run) >= LEAST_TURNS]


def _disjoint(loops: list[Loop]) -> list[Loop]:
    kept: list[Loop] = []
    for loop in loops:
        if all(loop.stop <= other.begins[0] or loop.begins[0] >= other.stop for other in kept):
            kept.append(loop)
    return kept
