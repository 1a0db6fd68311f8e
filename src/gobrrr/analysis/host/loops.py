"""Loops on the host: as a live run saw them, else by the index that they count up: `x[t]`, `w[e]`, `idx == e`.

A turn is one iteration. A live run knows the program's loops by their lines, and whether their turns need each other's
results. A trace does not, but it has the integer arguments of operations. Where the same operation on the same shapes
is called with 0, 1, 2, ... in turn, the host runs a loop over timesteps, experts or rows. A model's layers repeat as
well, but without such an index.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gobrrr.analysis.events.intervals import covered, union
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.origins import AUTOGRAD_NODE
from gobrrr.model.events import I8, EventKind
from gobrrr.model.recording import Dependence, RecordedLoop

INDEXED_OPS = ("aten::select", "aten::narrow", "aten::slice", "aten::eq", "aten::index_select")
"""Operations that take the index of a turn: of a row, a timestep, an expert."""

INTEGER = re.compile(r"-?[0-9]{1,18}")
"""Whole numbers as the profiler prints them; longer ones are no index of a turn."""

LEAST_LOOP_TURNS = 16
"""The least number of turns of a loop. Fewer turns have few launches: attention heads, chunks, micro-batches. Chosen,
not measured."""

CELL_MODULES = ("LSTMCell", "GRUCell", "RNNCell")
CELL_OPS = ("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell")
"""One timestep of a recurrent layer, as a module and as an operation: the next timestep needs its result."""

LEAST_CALLS = 128
"""The least number of operations of a live run's loop that has fewer turns: four micro-batches of a model, tasks,
samples. Chosen, not measured."""


@dataclass(frozen=True)
class StepLoop:
    """One loop of the recorded steps. `begins`: where each turn begins on the host, on the recorded timeline, in ns.

    `row`: the first operation of its first turn; in a trace the operation with the index. `end`: None: not known.
    `calls`: in a live run, the first of `seen.calls` of each turn, and the end of the last turn. `depends`, `carried`,
    `source`, `reads`, `again_bytes` and `free`: as in `HostLoop`. `cell`: where each turn is a timestep of a recurrent
    layer, its name ("lstm_cell", "GRUCell").
    """

    row: int
    begins: I8
    end: int | None = None
    calls: tuple[int, ...] = ()
    depends: Dependence = "unknown"
    carried: str = ""
    source: str | None = None
    reads: int = 0
    again_bytes: int = 0
    free: tuple[int, ...] = ()
    cell: str | None = None

    @property
    def stop(self) -> int:
        """The end of the last turn; where it is not known, the last turn is taken to be as long as the median turn."""
        return self.end if self.end is not None else int(self.begins[-1] + np.median(np.diff(self.begins)))

    @property
    def apart(self) -> bool:
        """Whether its turns are known not to need each other's results, except to sum them."""
        return self.depends in ("no", "sum")

    @property
    def needing(self) -> bool:
        """Whether its turns are known to need each other's results."""
        return self.depends == "yes"


def find_loops(evidence: Evidence) -> list[StepLoop]:
    """The loops of the recorded steps with at least `LEAST_LOOP_TURNS` turns per step, without the layers of a model;
    those of a live run may be nested."""
    if evidence.profile.seen is not None and evidence.profile.seen.loops is not None:
        return _seen(evidence, evidence.profile.seen.loops)
    return [_with_cells(evidence, loop) for loop in _counted(evidence)]


def _seen(evidence: Evidence, loops: Sequence[RecordedLoop]) -> list[StepLoop]:
    """The loops of a live run, in each of the recorded steps."""
    turns: Counter[str] = Counter()
    for loop in loops:
        turns[loop.source] += len(loop.turns) - 1
    calls = {loop.source: loop.turns[-1] - loop.turns[0] for loop in loops}
    long = [loop for loop in loops if turns[loop.source] >= LEAST_LOOP_TURNS or calls[loop.source] >= LEAST_CALLS]
    wanted = [loop for loop in long if _of_interest(evidence, loop)]
    if not wanted:
        return []
    row, begin, end = _calls(evidence)
    placed = (_placed(loop, row[step], begin[step], end[step]) for step in range(len(row)) for loop in wanted)
    return [loop for loop in placed if loop is not None]


def _of_interest(evidence: Evidence, loop: RecordedLoop) -> bool:
    """Whether the loop is neither the layers of a model nor a loop of training steps."""
    assert evidence.profile.seen is not None
    if loop.depends == "layers":
        return False
    calls = evidence.profile.seen.calls[loop.turns[0] : loop.turns[-1]]
    trained = any(call.phase == "optimizer" for call in calls)
    return not trained and not (loop.depends == "yes" and any(call.phase == "backward" for call in calls))


def _calls(evidence: Evidence) -> tuple[I8, I8, I8]:
    """(row, begin on the host, end on the host) of each dispatched call in each recorded step; begin `NO_BEGIN_NS`:
    none."""
    events, steps = evidence.events, evidence.recorded_steps
    rows = np.flatnonzero(evidence.dispatched >= 0)
    step = np.maximum(np.searchsorted(np.array(steps.begins), events.start_ns[rows], side="right") - 1, 0)
    shape = (len(steps.begins), len(evidence.profile.seen.calls) if evidence.profile.seen is not None else 0)
    row, begin, end = np.full(shape, -1, dtype=np.int64), np.full(shape, NO_BEGIN_NS), np.zeros(shape, dtype=np.int64)
    order = np.argsort(-events.start_ns[rows], kind="stable")  # the first row, which encloses the others, wins
    rows, step = rows[order], step[order]
    call = evidence.dispatched[rows]
    row[step, call], begin[step, call] = rows, events.start_ns[rows]
    np.maximum.at(end, (step, call), events.end_ns[rows])
    return row, begin, end


NO_BEGIN_NS = np.iinfo(np.int64).max
"""The begin of a call that a step does not have."""


def _placed(loop: RecordedLoop, row: I8, begin: I8, end: I8) -> StepLoop | None:
    """A loop in one recorded step; None where fewer than half of its turns are found there."""
    first, stop = loop.turns[0], loop.turns[-1]
    begins = np.minimum.reduceat(begin[first:stop], np.array(loop.turns[:-1]) - first)
    begins = np.unique(begins[begins < NO_BEGIN_NS])
    if 2 * len(begins) < len(loop.turns):
        return None
    at = first + int(np.argmin(begin[first:stop]))
    cell = loop.within if loop.within in CELL_MODULES else None
    return StepLoop(
        row=int(row[at]),
        begins=begins,
        end=int(end[first:stop].max()),
        calls=loop.turns,
        depends=loop.depends,
        carried=loop.carried,
        source=loop.source,
        reads=loop.reads,
        again_bytes=loop.again_bytes,
        free=loop.free if cell is None else (),  # the program can't move the products within a library's cell
        cell=cell,
    )


def _with_cells(evidence: Evidence, loop: StepLoop) -> StepLoop:
    """A trace's loop; where each turn has a timestep of a recurrent layer, its turns need each other."""
    events = evidence.events
    kinds = np.array([name.removeprefix("aten::") in CELL_OPS for name in events.names] or [False], dtype=bool)
    rows = np.flatnonzero(kinds[events.name] & (events.kind == EventKind.OP))
    start = events.start_ns[rows]
    rows = rows[(start >= loop.begins[0]) & (start < loop.stop)]
    if len(rows) < len(loop.begins):
        return loop
    cell = events.name_of(int(rows[0]))
    return replace(loop, depends="yes", carried=cell, cell=cell.removeprefix("aten::"))


def _counted(evidence: Evidence) -> list[StepLoop]:
    """Disjoint loops that count up an index, the longest first."""
    events, steps = evidence.events, evidence.recorded_steps
    begin = steps.begins[0] if steps.begins else steps.start
    wanted = np.array([name in INDEXED_OPS for name in events.names], dtype=bool)
    rows = np.flatnonzero(wanted[events.name] & (events.kind == EventKind.OP) & (events.concrete >= 0))
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
    runs = [run for indices in series.values() for run in _runs(indices)]
    loops = [StepLoop(run[0], events.start_ns[np.array(run)]) for run in runs]
    return _disjoint(sorted(loops, key=lambda loop: loop.begins[0] - loop.stop))


ALONG = ("aten::select", "aten::narrow", "aten::slice")
"""Operations that take a part of a tensor along a dimension, which is their first integer."""

TIME_FIRST = 3
"""The number of dimensions of [T, B, D]: a part along its first dimension is a timestep of a whole batch, not an
element of the batch."""

HOLDING_LOOP_SHARE = 0.5
"""The share of the step beyond which loops hold the step."""


def grows_with_batch(evidence: Evidence) -> bool:
    """Whether the step is mostly loops over a tensor's first dimension, which is the batch's: the number of turns grows
    with the batch."""
    steps = evidence.recorded_steps
    whole = steps.stop - (steps.begins[0] if steps.begins else steps.start)
    taken = [loop.stop - int(loop.begins[0]) for loop in find_loops(evidence) if _through_first(evidence, loop)]
    return sum(taken) > HOLDING_LOOP_SHARE * whole


def _through_first(evidence: Evidence, loop: StepLoop) -> bool:
    events, row = evidence.events, loop.row
    dims, numbers = int(events.dims[row]), _integers(events.texts[int(events.concrete[row])])
    if events.name_of(row) not in ALONG or dims < 0 or not numbers or numbers[0] != 0:
        return False
    try:
        sizes = json.loads(events.texts[dims])
    except (ValueError, UnicodeDecodeError):
        return False
    first = sizes[0] if isinstance(sizes, list) and sizes else None
    if not isinstance(first, list) or not first or len(first) == TIME_FIRST:
        return False
    size = first[0]
    return isinstance(size, int) and len(loop.begins) >= size >= LEAST_LOOP_TURNS


def work_of(evidence: Evidence, loop: StepLoop) -> I8:
    """Device work of a loop and of the backward pass of its operations (into `links.device`)."""
    events, links = evidence.events, evidence.priced.links
    launch = np.maximum(links.launch, 0)
    start, known = events.start_ns[launch], links.launch >= 0
    inside = known & (start >= loop.begins[0]) & (start < loop.stop)
    nodes = nodes_of(evidence, loop)
    for thread in np.unique(events.thread[nodes]).tolist():
        node_rows = nodes[events.thread[nodes] == thread]
        spans = union(events.start_ns[node_rows], events.end_ns[node_rows])
        inside |= known & (events.thread[launch] == thread) & (covered(spans, start, start + 1) > 0)
    return np.flatnonzero(inside)


def nodes_of(evidence: Evidence, loop: StepLoop) -> I8:
    """Autograd nodes that differentiate the loop's operations, by sequence number."""
    events, steps = evidence.events, evidence.recorded_steps
    engine = np.array([name.startswith(AUTOGRAD_NODE) for name in events.names], dtype=bool)
    if not engine.any():
        return np.empty(0, dtype=np.int64)
    rows = events.of(EventKind.OP)
    start = events.start_ns[rows]
    ops = rows[(start >= loop.begins[0]) & (start < loop.stop) & (events.thread[rows] == events.thread[loop.row])]
    numbers = events.sequence[ops][events.sequence[ops] >= 0]
    if not len(numbers):
        return np.empty(0, dtype=np.int64)
    end = min((begin for begin in steps.begins if begin >= loop.stop), default=steps.stop)
    nodes = rows[engine[events.name[rows]] & (start >= loop.stop) & (start < end)]
    sequence = events.sequence[nodes]
    within: I8 = nodes[(sequence >= numbers.min()) & (sequence <= numbers.max())]
    return within


def _integers(text: bytes) -> tuple[int, ...]:
    """The integers among the recorded arguments."""
    try:
        arguments = json.loads(text)
    except (ValueError, UnicodeDecodeError):
        return ()
    if not isinstance(arguments, list):
        return ()
    return tuple(int(text) for text in arguments if isinstance(text, str) and INTEGER.fullmatch(text))


def _runs(series: list[tuple[int, int]]) -> list[list[int]]:
    """Rows of runs in which the number grows by one each time; equal numbers belong to the same turn."""
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
    return [run for run in runs if len(run) >= LEAST_LOOP_TURNS]


def _disjoint(loops: list[StepLoop]) -> list[StepLoop]:
    kept: list[StepLoop] = []
    for loop in loops:
        if all(loop.stop <= other.begins[0] or loop.begins[0] >= other.stop for other in kept):
            kept.append(loop)
    return kept
