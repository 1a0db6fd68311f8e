"""The tree of places with its times: where the step spends its time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.budget.idle import IDLE_CAUSES, INPUT_CAUSE, host_time
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.origins import AUTOGRAD_NODE, forward_ops
from gobrrr.analysis.places.instants import IdlePieces, Track, idle_pieces
from gobrrr.analysis.places.labels import PlaceSort, same_labels, sorts
from gobrrr.analysis.places.lines import callers, of_operations, own_times
from gobrrr.analysis.places.tree import ROOT, Tree, TreeBuilder, plant
from gobrrr.model.events import ABSENT, F8, I8, EventKind, EventTable
from gobrrr.model.frame_names import is_users
from gobrrr.model.recording import OwnTime
from gobrrr.model.tree import HOST_KINDS, STEP_MARK, outermost, parents

HOLDING_SHARE = 0.5
"""A place with more than this share of the step holds the step."""

LEADING_MARGIN = 0.05
"""An operation leads where its share of the step exceeds the next place's by at least this. Chosen, not measured."""

LONG_NS = 100_000
"""Python between two launches is shorter: 98.7 % of 41,254 such stretches in the 68 H100 traces of this package and its
tests, whose programs have no Python of their own except the loop. The others are torch's (optimizers, gradient norms).
"""

UNKNOWN_PLACE = "launched before the recording"
"""The name of the place of work whose launch was not recorded."""

INPUT_PLACE = "the input"
"""The name of the place that prepares the input, where no function of the program around it is known."""

_INPUT = IDLE_CAUSES.index(INPUT_CAUSE)
"""The column of the cause `INPUT`."""


@dataclass(frozen=True)
class PlaceTimes:
    """The tree of one device's step. Times are ns over the whole window, exact.

    Of each node: `own`: the time that no child has; `device`: the device's busy part of it; `host`: the idle part, a
    column per cause of `CAUSES`; `backward`: the backward pass's part; `calls`: how often it is entered. Of each host
    event: `node_of`: its node; `parent`: the event around it, across threads; `enclosing`: the event around it on its
    own thread. `main`: the program's thread; `idle`: the pieces of idle time; `own_times`: the own time of functions,
    by their names in the profile.
    """

    tree: Tree
    own: I8
    device: I8
    host: F8
    backward: I8
    calls: I8
    steps: int
    parent: I8
    enclosing: I8
    main: int
    idle: IdlePieces
    own_times: dict[str, OwnTime] = field(default_factory=dict)

    @property
    def node_of(self) -> I8:
        """The node of each host event."""
        return self.tree.of_row

    def line_of(self, row: int) -> str | None:
        """The source line that calls a host event; None where only the function around it is known."""
        at, tree = int(self.node_of[row]), self.tree
        if tree.labels[int(tree.label[at])][0] == PlaceSort.FUNCTION:
            at = int(tree.parent[at])  # for a function, the line that calls it
        while at > ROOT:
            sort, text = tree.labels[int(tree.label[at])]
            if sort in (PlaceSort.LINE, PlaceSort.FUNCTION):
                return text if sort == PlaceSort.LINE else None
            at = int(tree.parent[at])
        return None

    def total(self, values: I8) -> I8:
        """Each node's own values, with those of all its descendants."""
        result = values.copy()
        for at in range(len(self.tree) - 1, 0, -1):
            result[self.tree.parent[at]] += result[at]
        return result

    def holding(self, step: I8) -> int:
        """The deepest node, kernels aside, with most of the step; where no function is known and no operation has most,
        the operation that leads. `step`: the time of each node, descendants included."""
        sort = np.array([kind for kind, _ in self.tree.labels])[self.tree.label]
        big = np.flatnonzero((step > HOLDING_SHARE * step[ROOT]) & (sort != PlaceSort.KERNEL))
        deepest = int(big[-1]) if len(big) else ROOT  # at most one child of a node has more than half
        known = np.isin(sort, (PlaceSort.FUNCTION, PlaceSort.LINE)).any() or sort[deepest] not in (
            PlaceSort.NONE,
            PlaceSort.ANNOTATION,
        )
        return deepest if known else self._leading(deepest, sort, step)

    def _leading(self, node: int, sort: NDArray[np.int64], step: I8) -> int:
        """The operation within a node that leads the node's other parts; where none leads, the node."""
        inner = np.flatnonzero(self.tree.parent == node)
        inner = inner[np.argsort(-step[inner], kind="stable")]
        if not len(inner) or sort[inner[0]] != PlaceSort.OP:
            return node
        next_ = max(int(self.own[node]), int(step[inner[1]]) if len(inner) > 1 else 0)
        return int(inner[0]) if step[inner[0]] - next_ >= LEADING_MARGIN * step[ROOT] else node

    @property
    def held_by_line(self) -> bool:
        """Whether a line of the program holds the step, and no place within it does."""
        node = self.holding(self.total(self.own))
        return self.tree.labels[int(self.tree.label[node])][0] == PlaceSort.LINE


def where_time_goes(evidence: Evidence) -> PlaceTimes:
    """Build the tree of places of a device's step, and assign each nanosecond to one of its nodes."""
    events, links = evidence.replayed, evidence.priced.links
    raw = evidence.host_parents  # a replay keeps the nesting
    raw = parents(events) if raw is None else raw
    main = _main_thread(events)
    forward = forward_ops(events, raw)
    parent = _joined(events, raw, forward, main)
    sort = sorts(events, parent, is_users)
    label, labels = same_labels(events.names, sort, events.name)
    line, labels = _lines(evidence, parent, sort, labels)
    idle = idle_pieces(events, links, evidence.budget.gaps, host_time(events, links), parent, main)
    loads = _loads(evidence, parent, sort, idle)
    line[loads] = len(labels)
    labels.append((int(PlaceSort.INPUT), INPUT_PLACE))
    planting, node = plant(parent, label, line, labels)
    busy = evidence.budget.own_ns
    launched = _launched_at(evidence, node)
    worked = _kernels(evidence, planting, launched)
    own = own_times(events.names, evidence.profile.seen)
    idled = _own_lines(planting, events, sort, idle, _idled(planting, node, idle), own)
    tree = planting.done(node)
    op = links.op[evidence.budget.work]
    behind = (op >= 0) & (forward[np.maximum(op, 0)] >= 0)
    waiting = (idle.row >= 0) & (forward[np.maximum(idle.row, 0)] >= 0)
    device = _summed(len(tree), worked, busy)
    host = np.zeros((len(tree), len(IDLE_CAUSES)))
    np.add.at(host, idled, idle.part)
    return PlaceTimes(
        tree=tree,
        own=device + _summed(len(tree), idled, idle.ns),
        device=device,
        host=host,
        backward=_summed(len(tree), worked[behind], busy[behind])
        + _summed(len(tree), idled[waiting], idle.ns[waiting]),
        calls=_calls(evidence, label, node, worked if evidence.device.asynchronous else worked[:0], len(tree)),
        steps=evidence.steps.count,
        parent=parent,
        enclosing=raw,
        main=main,
        idle=idle,
        own_times=own,
    )


def _loads(evidence: Evidence, parent: I8, sort: NDArray[np.uint8], idle: IdlePieces) -> I8:
    """The outermost places that prepare the input: the device waits for input during most of their time."""
    top = outermost(parent, sort != PlaceSort.NONE)
    known = np.flatnonzero((idle.row >= 0) & (top[np.maximum(idle.row, 0)] >= 0))
    at = top[idle.row[known]]
    op, work = evidence.priced.links.op[evidence.budget.work], evidence.budget.own_ns
    worked = (op >= 0) & (top[np.maximum(op, 0)] >= 0)
    spent = _summed(len(parent), at, idle.ns[known]) + _summed(len(parent), top[op[worked]], work[worked])
    fed = np.bincount(at, weights=idle.part[known, _INPUT], minlength=len(parent))
    return np.flatnonzero(np.isin(sort, (PlaceSort.OP, PlaceSort.ANNOTATION)) & (fed > HOLDING_SHARE * spent))


def _idled(planting: TreeBuilder, node: I8, idle: IdlePieces) -> I8:
    """The node of each piece of idle time. Waiting for input outside of every place belongs to the input's place."""
    idled = np.where(idle.row >= 0, node[np.maximum(idle.row, 0)], ROOT)
    waits = np.flatnonzero((idled == ROOT) & (idle.part[:, _INPUT] > HOLDING_SHARE * idle.ns))
    if len(waits):
        idled[waits] = planting.children(
            idled[waits], np.repeat(planting.label(PlaceSort.INPUT, [INPUT_PLACE]), len(waits))
        )
    return idled


def _own_lines(
    planting: TreeBuilder,
    events: EventTable,
    sort: NDArray[np.uint8],
    idle: IdlePieces,
    idled: I8,
    own: dict[str, OwnTime],
) -> I8:
    """The nodes of idle time; long stretches of a function's own time are moved to the line with most of it."""
    lines = [time.source if (time := own.get(name)) is not None else None for name in events.names]
    known = np.array([line is not None for line in lines] or [False], dtype=bool)
    row = np.maximum(idle.row, 0)
    at = np.flatnonzero(
        (idle.row >= 0) & (sort[row] == PlaceSort.FUNCTION) & known[events.name[row]] & (idle.ns >= LONG_NS)
    )
    if len(at):
        texts = [lines[name] or "" for name in events.name[row[at]].tolist()]
        idled[at] = planting.children(idled[at], planting.label(PlaceSort.LINE, texts))
    return idled


def _summed(count: int, at: I8, values: I8) -> I8:
    result = np.zeros(count, dtype=np.int64)
    np.add.at(result, at, values)
    return result


def _calls(evidence: Evidence, label: I8, node: I8, worked: I8, count: int) -> I8:
    """How often each place was entered within the window."""
    start, steps = evidence.replayed.start_ns, evidence.steps
    inside = np.flatnonzero((label >= 0) & (start >= steps.start) & (start < steps.stop))
    return np.bincount(node[inside], minlength=count) + np.bincount(worked, minlength=count)


def _main_thread(events: EventTable) -> int:
    """The thread of the program's loop: that of the marked steps, else of most frames, else of most operations."""
    marks = np.array([name.startswith(STEP_MARK) for name in events.names] or [False], dtype=bool)
    for rows in (
        np.flatnonzero(marks[events.name] & (events.kind == EventKind.ANNOTATION)),
        events.of(EventKind.PYTHON),
        events.of(EventKind.OP),
        events.of(EventKind.RUNTIME),
    ):
        if len(rows):
            return int(np.bincount(events.thread[rows]).argmax())
    return ABSENT


def _joined(events: EventTable, parent: I8, forward: I8, main: int) -> I8:
    """The event around each row, across threads: a node of the backward pass belongs to its forward operation, and an
    event of another thread to where the program's thread is at that time."""
    result = parent.copy()
    is_node = np.array([name.startswith(AUTOGRAD_NODE) for name in events.names] or [False], dtype=bool)
    node = is_node[events.name] & (events.kind == EventKind.OP)
    outer = np.flatnonzero(node & (outermost(parent, node) == np.arange(len(parent))))
    result[outer] = np.where(forward[outer] >= 0, forward[outer], parent[outer])
    if main != ABSENT:
        orphans = np.flatnonzero((result < 0) & (events.thread != main) & np.isin(events.kind, HOST_KINDS))
        track = Track.of(events, main)
        result[orphans] = track.innermost(events.end_ns, parent, events.start_ns[orphans])
    return result


def _lines(
    evidence: Evidence, parent: I8, sort: NDArray[np.uint8], labels: list[tuple[int, str]]
) -> tuple[I8, list[tuple[int, str]]]:
    """(for each row the label of the line that calls it, or -1 where it is not known; the labels, lines included)."""
    line = np.full(len(parent), ABSENT, dtype=np.int64)
    if evidence.profile.seen is None:
        return line, labels
    sources = of_operations(evidence.replayed, sort, _above(parent, sort), evidence.sites, evidence.profile.seen)
    sources.update(callers(evidence.replayed, parent, sort, evidence.steps, evidence.profile.seen))
    texts = list(dict.fromkeys(sources.values()))
    place = {text: len(labels) + at for at, text in enumerate(texts)}
    line[list(sources)] = [place[text] for text in sources.values()]
    return line, [*labels, *((int(PlaceSort.LINE), text) for text in texts)]


def _above(parent: I8, sort: NDArray[np.uint8]) -> I8:
    """The nearest place around each row that is no annotation; -1 for none."""
    above = parent.copy()
    passed = (sort == PlaceSort.NONE) | (sort == PlaceSort.ANNOTATION)
    while len(rows := np.flatnonzero((above >= 0) & passed[np.maximum(above, 0)])):
        above[rows] = above[above[rows]]
    return above


def _launched_at(evidence: Evidence, node: I8) -> I8:
    """The node that launched each piece of the budget's work; -1 where its launch was not recorded."""
    links, work = evidence.priced.links, evidence.budget.work
    op, launch = links.op[work], links.launch[work]
    row = np.where(op >= 0, op, launch)
    return np.where(row >= 0, node[np.maximum(row, 0)], ABSENT)


def _kernels(evidence: Evidence, planting: TreeBuilder, launched: I8) -> I8:
    """The node of each piece of work: its kernel, below the launching node; on a CPU the operation itself."""
    if not evidence.device.asynchronous:
        return np.where(launched >= 0, launched, ROOT)
    events, rows = evidence.replayed, evidence.priced.links.device[evidence.budget.work]
    at = launched.copy()
    lost = at < 0
    if lost.any():
        at[lost] = planting.children(np.array([ROOT]), planting.label(PlaceSort.NONE, [UNKNOWN_PLACE]))[0]
    names, which = np.unique(events.name[rows], return_inverse=True)
    label = planting.label(PlaceSort.KERNEL, [events.names[name] for name in names.tolist()])
    return planting.children(at, label[np.asarray(which).reshape(-1)]) if len(rows) else at
