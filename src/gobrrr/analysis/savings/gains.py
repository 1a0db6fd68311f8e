"""What a step takes when its graph runs, and when a changed one does: by replay, never by adding up times.

The saving of a change is the step's time minus that of the changed graph, both replayed. Its interval is spanned by
the least and the most that the change may do, and by the ends of what is known of the host: of a trace, the cost of
recording that was taken out of its time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gobrrr.analysis.events.observer import REPEATABLE
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.replay.graph import F8, StepGraph, host_needs
from gobrrr.analysis.replay.ranks import collectives, matched, run_together
from gobrrr.analysis.replay.simulator import Run, host_clock, run, serial_clock
from gobrrr.analysis.replay.what_if import Change
from gobrrr.analysis.savings.touched import touched
from gobrrr.model.events import I8

Clock = Callable[[I8], F8]
Effect = Callable[[float], Change]
"""The change at a share of its possible effect: 0.0 the least, 1.0 the most, 0.5 what is expected."""

MOST_WORK = 6_000
"""Pieces of work that a replay for a saving looks at: whole steps as far as they go, else a step's front part."""

LEAST, EXPECTED, MOST = 0.0, 0.5, 1.0

FASTEST, SLOWEST, HALVINGS = 0.25, 2.5, 10
"""Between how many times its time a host is looked for that gives a step its time, and in how many halvings."""


@dataclass(frozen=True)
class Plan:
    """What a treatment does to the step. `effect` None: it applies and changes nothing.

    `beyond`, `beyond_low`: what it saves outside the analysed steps, in ns of one step; `least_ns`: what the step takes
    at least then, for a reason that is not in the graph (loaders that need this long for a batch), at the effect's most
    and at its least. `work`: how many times today's work a step then does; the saving is for today's. `once`: of
    several findings' plans for the treatment one stands for all. `last`: it says what the host needs then, whatever the
    treatment's other plans leave, and is applied after them.
    """

    how: str
    assumes: str
    effect: Effect | None
    beyond: float = 0.0
    beyond_low: float = 0.0
    least_ns: tuple[float, float] = (0.0, 0.0)
    work: float = 1.0
    once: bool = False
    last: bool = False

    def bound(self, share: float) -> float:
        """What the step takes at least, in ns, at a share of the effect."""
        return self.least_ns[1] + share * (self.least_ns[0] - self.least_ns[1])

    def at(self, times: float) -> Plan:
        """The plan for the same step at a time when that took `times` as long: so does what lies outside the graph."""
        fast, slow = self.least_ns
        return replace(
            self,
            beyond=times * self.beyond,
            beyond_low=times * self.beyond_low,
            least_ns=(times * fast, times * slow),
        )


class Stopwatch:
    """Measures a step under changes, at the low end of what is known of the host, as expected, and at the high end.

    `evidences`: one a rank; several run together, and the step is that of the slowest. `wall_ns`: what a step takes
    (None: the longest of the evidences'). Where the host is known there is one end. `pace`: the host takes so many
    times as long as it did.
    """

    def __init__(self, *evidences: Evidence, wall_ns: float | None = None, pace: float = 1.0) -> None:
        self.evidences = evidences
        self.pace = pace
        self.until = _until(evidences[0]) if len(evidences) == 1 else None
        self.ends = min(len(evidence.graphs) for evidence in evidences)
        self.graphs = tuple(
            [_paced(_at(evidence.graphs, end, self.ends), pace) for evidence in evidences] for end in range(self.ends)
        )
        """For each end the graphs of all ranks."""
        self.meets = [collectives(evidence.graph, evidence.priced) for evidence in evidences]
        self.joined = len(evidences) > 1 and matched(self.graphs[0], self.meets)
        self.lengths = tuple(self._length(graphs) for graphs in self.graphs)
        """What the replayed part of the step takes at each end."""
        self.middle = self.ends // 2
        expected = self.lengths[self.middle]
        wall = max(evidence.wall_ns for evidence in evidences) if wall_ns is None else wall_ns
        self.scale = wall / expected if expected > 0 else 1.0
        """The step over what its replayed part takes."""

    def of_step(self, step_ns: float) -> Stopwatch:
        """The same step at a time when it took `step_ns`, by how fast its host then was; itself where no host explains
        that, or the device hides it: all parts of the step are then as much longer or shorter."""
        pace = self._pace_of(step_ns)
        return self if pace == 1.0 else Stopwatch(*self.evidences, wall_ns=step_ns, pace=pace)

    def _pace_of(self, step_ns: float) -> float:
        now = self.before(self.middle)
        known = len(self.evidences) == self.ends == 1 and self.evidences[0].device.asynchronous
        if not known or abs(step_ns - now) <= REPEATABLE * now:
            return 1.0  # where the device hides the host, the step's time says nothing of it

        def step(pace: float) -> float:
            return self.scale * self._length([_paced(self.graphs[self.middle][0], pace)])

        # no host makes a step shorter than its device's work
        wanted = max(step_ns, (1 + REPEATABLE) * step(FASTEST))
        low, high = (FASTEST, 1.0) if wanted < now else (1.0, SLOWEST)
        if not step(low) < wanted < step(high):
            return 1.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if step(middle) > wanted else (middle, high)
        return high

    def before(self, end: int) -> float:
        """The step as it is at one end of what is known of the host, in ns."""
        return self.lengths[end] * self.scale

    def after(self, changes: Sequence[Change], end: int | None = None) -> float:
        """The step with a change for each rank, in ns, at one end of what is known of the host; None: as expected."""
        end = self.middle if end is None else end
        graphs = self.graphs[end]
        changed = [change(graph) for change, graph in zip(changes, graphs, strict=True)]
        saved = self.lengths[end] - self._length(changed)
        if self._in_part:
            saved = self._of_all(graphs[0], changed[0], saved)
        else:
            saved *= self.scale
        return self.before(end) - min(saved, _taken(self.evidences, graphs, changed))

    def touched(self, changes: Sequence[Change]) -> float:
        """The time of the work and of the host that the changes take away: no step gets shorter by more, in ns."""
        most = 0.0
        for graphs in self.graphs:
            changed = [change(graph) for change, graph in zip(changes, graphs, strict=True)]
            most = max(most, _taken(self.evidences, graphs, changed))
        return most

    def runs(self, graphs: Sequence[StepGraph]) -> list[Run]:
        """The runs of the ranks' graphs, together where they reduce together."""
        return run_together(graphs, self.meets) if self.joined else [run(graph) for graph in graphs]

    @property
    def _in_part(self) -> bool:
        """Whether the replays stop within a step."""
        return self.until is not None and self.until not in self.evidences[0].recorded_steps.begins

    def _of_all(self, graph: StepGraph, changed: StepGraph, saved: float) -> float:
        """What a step loses that loses `saved` in its front part: as much more as the rest has of what is changed."""
        evidence, until = self.evidences[0], self.until
        assert until is not None
        start = _window(evidence)[0]
        here = touched(graph, changed).between(graph, start, until)
        every = _taken(self.evidences, [graph], [changed])
        if here > 0:
            return saved * every / here
        return length(evidence, graph) - length(evidence, changed) if every > 0 else saved * self.scale

    def _length(self, graphs: Sequence[StepGraph]) -> float:
        if len(graphs) == 1:
            return length(self.evidences[0], _front_of(graphs[0], self.until))
        each = zip(self.evidences, graphs, self.runs(graphs), strict=True)
        return max(length(evidence, graph, ran) for evidence, graph, ran in each)


def _taken(evidences: Sequence[Evidence], graphs: Sequence[StepGraph], changed: Sequence[StepGraph]) -> float:
    """What changed graphs have less than those before, of one step of all ranks, in ns."""
    each = zip(evidences, graphs, changed, strict=True)
    return sum(
        touched(graph, after).between(graph, *_window(evidence)) / evidence.steps.count
        for evidence, graph, after in each
    )


def _window(evidence: Evidence) -> tuple[int, int]:
    """The analysed steps on the host's recorded clock. Work that was launched before them is not theirs."""
    steps, first = evidence.recorded_steps, evidence.recorded_steps.count - evidence.steps.count
    return (steps.begins[first] if steps.begins else steps.start), steps.stop


def _at(graphs: Sequence[StepGraph], end: int, ends: int) -> StepGraph:
    """The graph at one of `ends` ends; the only one of a rank whose host is known."""
    return graphs[end if len(graphs) == ends else len(graphs) // 2]


def _paced(graph: StepGraph, pace: float) -> StepGraph:
    """The graph with a host that takes `pace` times as long."""
    return graph if pace == 1.0 else replace(graph, left=graph.left * pace, pace=pace)


def _front_of(graph: StepGraph, until: int | None) -> StepGraph:
    """The graph as far as the recorded clock's `until`."""
    if until is None:
        return graph
    last = int(np.searchsorted(graph.at, until, side="right")) + 1
    return replace(graph, until=until, at=graph.at[:last], left=graph.left[: last - 1])


def _until(evidence: Evidence) -> int | None:
    """Where the replays for savings stop, on the recorded clock: behind the last step that fits, at the least one, as
    long as that has no more than `MOST_WORK` pieces of work. None: nowhere.
    """
    graph, steps = evidence.graph, evidence.recorded_steps
    first = steps.begins[steps.count - evidence.steps.count] if steps.begins else steps.start
    called = np.sort(graph.called[graph.called >= first])
    if len(called) <= MOST_WORK or graph.serial:
        return None
    later = called[called > called[0]]  # a graph's work is called at once: the part holds a launch at the least
    if not len(later):
        return None
    most = max(int(called[MOST_WORK]), int(later[0]))
    ends = [begin for begin in steps.begins if first < begin <= most]
    return ends[-1] if ends else most


def length(evidence: Evidence, graph: StepGraph, ran: Run | None = None) -> float:
    """What one of the analysed steps takes when the graph runs, in ns. `ran`: how it did, with other ranks."""
    clock, begin, end = timed(graph, ran)
    if not len(begin):
        return evidence.wall_ns
    if graph.until is not None:
        return _front(evidence, graph, graph.until, clock, end)
    steps, first = evidence.recorded_steps, evidence.recorded_steps.count - evidence.steps.count
    count = steps.count - first
    if steps.marked and steps.host_stop is not None:
        opens, host_stop = (float(one) for one in clock(np.array([steps.begins[first], steps.host_stop])))
        inside = (graph.called >= steps.begins[0]) & (graph.called < steps.host_stop) & ~graph.ahead
        start = _opening(graph, steps.begins[first], opens, end)
        stop = max(host_stop, float(end[inside].max(initial=0.0)))
        if graph.serial:
            return (stop - start) / count
        loads = clock(evidence.loading.start), clock(evidence.loading.stop)
        hidden = _hidden(begin, end, clock(graph.called), loads, start, stop, host_stop)
        return max(stop - start - hidden, host_needs(graph, steps, count)) / count
    start = float(begin.min())
    if first:
        start = _opening(graph, steps.begins[first], float(clock(np.array([steps.begins[first]]))[0]), end)
    return (float(end.max()) - start) / count


def _hidden(begin: F8, end: F8, called: F8, loads: tuple[F8, F8], start: float, stop: float, host_stop: float) -> float:
    """What a loop that runs ahead hides of a window: gobrrr.analysis.budget.lead, on the times of a run.

    `loads`: when the host loads data, (begins, ends), which hides nothing.
    """
    inside = np.flatnonzero((begin >= start) & (begin < stop))
    if not len(inside) or stop <= host_stop:
        return 0.0
    order = inside[np.argsort(begin[inside], kind="stable")]
    reach = np.maximum.accumulate(end[order])
    before = np.concatenate([[start], np.maximum(reach[:-1], start)])
    lasts = begin[order] - before
    queued = called[order] <= before
    queued[0] = False
    pauses = lasts[queued & (lasts >= 0)]
    pause = np.full(len(order), float(np.median(pauses)) if len(pauses) else 0.0)
    pause[0] = 0.0
    late = np.flatnonzero(~queued & (lasts > pause))
    first, last = before[late], begin[order][late] - pause[late]
    return min(stop - host_stop, max(float((last - first).sum()) - _shared(first, last, *loads), 0.0))


def _shared(first: F8, last: F8, begin: F8, end: F8) -> float:
    """What disjoint spans have in common with other disjoint spans, both sorted."""
    if not len(begin) or not len(first):
        return 0.0
    edges = np.column_stack([begin, end]).reshape(-1)
    reached = np.column_stack([np.concatenate([[0.0], np.cumsum(end - begin)[:-1]]), np.cumsum(end - begin)]).reshape(
        -1
    )
    return float((np.interp(last, edges, reached) - np.interp(first, edges, reached)).sum())


def _front(evidence: Evidence, graph: StepGraph, until: int, clock: Clock, end: F8) -> float:
    """What the replayed part takes: from its first step's begin until host and device are done with it."""
    steps, first = evidence.recorded_steps, evidence.recorded_steps.count - evidence.steps.count
    inside = graph.called < until
    opens = steps.begins[first] if steps.begins else steps.start
    marks = clock(np.array([opens, until], dtype=np.int64))
    start = _opening(graph, opens, float(marks[0]), np.where(inside, end, 0.0))
    return max(float(marks[1]), float(end[inside].max(initial=0.0))) - start


def _opening(graph: StepGraph, at: int, on_host: float, end: F8) -> float:
    """When a step begins: with the host, and not before the work launched earlier is done."""
    earlier = (graph.called < at) | graph.ahead
    return max(on_host, float(end[earlier].max(initial=on_host)))


def timed(graph: StepGraph, ran: Run | None = None) -> tuple[Clock, F8, F8]:
    """(the clock of the host, begins, ends of all work) of a graph's run."""
    if graph.serial:
        clock = serial_clock(graph)
        rows = graph.links.device
        return clock, clock(graph.events.start_ns[rows]), clock(graph.events.end_ns[rows])
    ran = ran or run(graph)
    return host_clock(graph, ran), ran.begin, ran.end
