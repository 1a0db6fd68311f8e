"""The time of a step when its graph runs, and when a changed graph runs: by replay, never by adding up times.

The saving of a change is the step's time minus that of the changed graph, both replayed. Its interval has two sources:
the least and the most that the change may do, and the uncertainty of the host's time. In a trace, the latter is the
uncertainty of the recording cost that was subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gobrrr.analysis.events.observer import REPEATABLE
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.replay.graph import F8, StepGraph, host_needs
from gobrrr.analysis.replay.ranks import collectives, matched, run_together
from gobrrr.analysis.replay.simulator import GraphRun, host_clock, run, serial_clock
from gobrrr.analysis.replay.what_if import Change
from gobrrr.analysis.savings.touched import touched
from gobrrr.model.events import I8

Clock = Callable[[I8], F8]
Effect = Callable[[float], Change]
"""The change at a share of its possible effect: 0.0 the least, 0.5 the expected, 1.0 the most."""

MOST_REPLAYED_WORK = 6_000
"""How many pieces of work a replay for a saving runs: the whole steps that fit, else the front part of one. Chosen."""

LEAST_SHARE_OF_EFFECT, EXPECTED_SHARE_OF_EFFECT, MOST_SHARE_OF_EFFECT = 0.0, 0.5, 1.0
"""The shares of an effect at which the interval's ends and its middle are computed."""

FASTEST, SLOWEST, PACE_HALVINGS = 0.25, 2.5, 10
"""The search for the host's pace that explains a step's time: between these multiples of the host's time, by so many
bisections. Chosen."""


@dataclass(frozen=True)
class TreatmentPlan:
    """How a treatment changes the step. `effect` None: it applies and changes nothing.

    `beyond`, `beyond_low`: the high and low end of what it saves outside the analysed steps, in ns per step.
    `least_ns`: the least time of the new step for a reason that is not in the graph (loaders that need this long for a
    batch), at the most and at the least effect. `work`: how many times the present work a new step does; the saving is
    for the present work. `once`: if several findings have a plan for the treatment, one of them stands for all. `last`:
    applied after the treatment's other plans; sets the host's time outright.
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
        """The least time of the step at a share of the effect, in ns."""
        return self.least_ns[1] + share * (self.least_ns[0] - self.least_ns[1])

    def at(self, times: float) -> TreatmentPlan:
        """The plan for the same step when it takes `times` as long: times outside the graph scale with it."""
        fast, slow = self.least_ns
        return replace(
            self,
            beyond=times * self.beyond,
            beyond_low=times * self.beyond_low,
            least_ns=(times * fast, times * slow),
        )


class Stopwatch:
    """Replays a step with and without changes.

    It has three "ends": the fastest host that the interval allows, the expected and the slowest host. It has one end
    where the host's time is known. `evidences`: one per rank; several ranks run together, and the step is that of the
    slowest. `wall_ns`: the time of a step (None: the longest of the evidences'). `pace`: the host takes this many times
    as long as it did.
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
        """The time of the replayed part of the step at each end."""
        self.middle = self.ends // 2
        expected = self.lengths[self.middle]
        wall = max(evidence.wall_ns for evidence in evidences) if wall_ns is None else wall_ns
        self.scale = wall / expected if expected > 0 else 1.0
        """The time of the step over that of its replayed part."""

    def of_step(self, step_ns: float) -> Stopwatch:
        """The same step when it took `step_ns`, explained by a faster or slower host.

        Itself where no pace of the host explains that time, or the device hides the host.
        """
        pace = self._pace_of(step_ns)
        return self if pace == 1.0 else Stopwatch(*self.evidences, wall_ns=step_ns, pace=pace)

    def _pace_of(self, step_ns: float) -> float:
        now = self.before(self.middle)
        known = len(self.evidences) == self.ends == 1 and self.evidences[0].device.asynchronous
        if not known or abs(step_ns - now) <= REPEATABLE * now:
            return 1.0  # where the device hides the host, the step's time says nothing about it

        def step(pace: float) -> float:
            return self.scale * self._length([_paced(self.graphs[self.middle][0], pace)])

        # no host makes a step shorter than its device's work
        wanted = max(step_ns, (1 + REPEATABLE) * step(FASTEST))
        low, high = (FASTEST, 1.0) if wanted < now else (1.0, SLOWEST)
        if not step(low) < wanted < step(high):
            return 1.0
        for _ in range(PACE_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if step(middle) > wanted else (middle, high)
        return high

    def before(self, end: int) -> float:
        """The present time of the step at one of the ends, in ns."""
        return self.lengths[end] * self.scale

    def after(self, changes: Sequence[Change], end: int | None = None) -> float:
        """The time of the step with a change for each rank, in ns, at one of the ends (None: the expected)."""
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
        """The time of work and host that the changes take away, in ns: the step saves no more than that."""
        return max(
            _taken(self.evidences, graphs, [change(graph) for change, graph in zip(changes, graphs, strict=True)])
            for graphs in self.graphs
        )

    def runs(self, graphs: Sequence[StepGraph]) -> list[GraphRun]:
        """The runs of the ranks' graphs, together where they reduce together."""
        return run_together(graphs, self.meets) if self.joined else [run(graph) for graph in graphs]

    @property
    def _in_part(self) -> bool:
        """Whether the replays stop within a step."""
        return self.until is not None and self.until not in self.evidences[0].recorded_steps.begins

    def _of_all(self, graph: StepGraph, changed: StepGraph, saved: float) -> float:
        """The saving of a whole step whose front part saves `saved`, in proportion to what the change takes away."""
        evidence, until = self.evidences[0], self.until
        assert until is not None
        in_front = touched(graph, changed).between(graph, evidence.recorded_window[0], until)
        in_all = _taken(self.evidences, [graph], [changed])
        if in_front > 0:
            return saved * in_all / in_front
        return length(evidence, graph) - length(evidence, changed) if in_all > 0 else saved * self.scale

    def _length(self, graphs: Sequence[StepGraph]) -> float:
        if len(graphs) == 1:
            return length(self.evidences[0], _front_of(graphs[0], self.until))
        each = zip(self.evidences, graphs, self.runs(graphs), strict=True)
        return max(length(evidence, graph, ran) for evidence, graph, ran in each)


def _taken(evidences: Sequence[Evidence], graphs: Sequence[StepGraph], changed: Sequence[StepGraph]) -> float:
    """The time that changed graphs no longer have, in one step of all ranks, in ns."""
    return sum(
        touched(graph, after).between(graph, *evidence.recorded_window) / evidence.steps.count
        for evidence, graph, after in zip(evidences, graphs, changed, strict=True)
    )


def _at(graphs: Sequence[StepGraph], end: int, ends: int) -> StepGraph:
    """The graph at one of `ends` ends; the expected one of a rank that has more ends."""
    return graphs[end if len(graphs) == ends else len(graphs) // 2]


def _paced(graph: StepGraph, pace: float) -> StepGraph:
    """The graph with a host that takes `pace` times as long."""
    return graph if pace == 1.0 else replace(graph, left=graph.left * pace, pace=pace)


def _front_of(graph: StepGraph, until: int | None) -> StepGraph:
    """The graph up to `until` on the recorded clock."""
    if until is None:
        return graph
    last = int(np.searchsorted(graph.at, until, side="right")) + 1
    return replace(graph, until=until, at=graph.at[:last], left=graph.left[: last - 1])


def _until(evidence: Evidence) -> int | None:
    """Where the replays for savings stop, on the recorded clock; None: at the end.

    They stop after the last step that fits in `MOST_REPLAYED_WORK` pieces of work; within the first step if that does
    not fit.
    """
    graph, steps = evidence.graph, evidence.recorded_steps
    first, _ = evidence.recorded_window
    called = np.sort(graph.called[graph.called >= first])
    if len(called) <= MOST_REPLAYED_WORK or graph.serial:
        return None
    later = called[called > called[0]]  # all work of a captured graph is called at once: keep at least one launch
    if not len(later):
        return None
    most = max(int(called[MOST_REPLAYED_WORK]), int(later[0]))
    ends = [begin for begin in steps.begins if first < begin <= most]
    return ends[-1] if ends else most


def length(evidence: Evidence, graph: StepGraph, ran: GraphRun | None = None) -> float:
    """The time of one of the analysed steps when the graph runs, in ns. `ran`: the run, if made with other ranks."""
    clock, begin, end = timed(graph, ran)
    if not len(begin):
        return evidence.wall_ns
    if graph.until is not None:
        return _front(evidence, graph, graph.until, clock, end)
    steps, count = evidence.recorded_steps, evidence.steps.count
    opens, _ = evidence.recorded_window
    if steps.marked and steps.host_stop is not None:
        on_host, host_stop = map(float, clock(np.array([opens, steps.host_stop])))
        inside = (graph.called >= steps.begins[0]) & (graph.called < steps.host_stop) & ~graph.ahead
        start = _opening(graph, opens, on_host, end)
        stop = max(host_stop, float(end[inside].max(initial=0.0)))
        if graph.serial:
            return (stop - start) / count
        loads = clock(evidence.loading.start), clock(evidence.loading.stop)
        hidden = _hidden(begin, end, clock(graph.called), loads, start, stop, host_stop)
        return max(stop - start - hidden, host_needs(graph, steps, count)) / count
    start = float(begin.min())
    if count < steps.count:
        start = _opening(graph, opens, float(clock(np.array([opens]))[0]), end)
    return (float(end.max()) - start) / count


def _hidden(begin: F8, end: F8, called: F8, loads: tuple[F8, F8], start: float, stop: float, host_stop: float) -> float:
    """How much of a window a loop that runs ahead hides: as gobrrr.analysis.budget.lead, on the times of a run.

    `loads`: when the host loads data, (begins, ends); idle time of the device is not hidden there.
    """
    inside = np.flatnonzero((begin >= start) & (begin < stop))
    if not len(inside) or stop <= host_stop:
        return 0.0
    order = inside[np.argsort(begin[inside], kind="stable")]
    reach = np.maximum.accumulate(end[order])
    before = np.concatenate([[start], np.maximum(reach[:-1], start)])
    idle = begin[order] - before
    queued = called[order] <= before
    queued[0] = False
    pauses = idle[queued & (idle >= 0)]
    pause = np.full(len(order), float(np.median(pauses)) if len(pauses) else 0.0)
    pause[0] = 0.0
    late = np.flatnonzero(~queued & (idle > pause))
    first, last = before[late], begin[order][late] - pause[late]
    return min(stop - host_stop, max(float((last - first).sum()) - _shared(first, last, *loads), 0.0))


def _shared(first: F8, last: F8, begin: F8, end: F8) -> float:
    """How long disjoint spans overlap with other disjoint spans, both sorted."""
    if not len(begin) or not len(first):
        return 0.0
    edges = np.column_stack([begin, end]).reshape(-1)
    lengths = np.cumsum(end - begin)
    reached = np.column_stack([np.concatenate([[0.0], lengths[:-1]]), lengths]).reshape(-1)
    return float((np.interp(last, edges, reached) - np.interp(first, edges, reached)).sum())


def _front(evidence: Evidence, graph: StepGraph, until: int, clock: Clock, end: F8) -> float:
    """The time of the replayed part: from the begin of its first step until host and device have finished it."""
    inside = graph.called < until
    opens, _ = evidence.recorded_window
    marks = clock(np.array([opens, until], dtype=np.int64))
    start = _opening(graph, opens, float(marks[0]), np.where(inside, end, 0.0))
    return max(float(marks[1]), float(end[inside].max(initial=0.0))) - start


def _opening(graph: StepGraph, at: int, on_host: float, end: F8) -> float:
    """When a step begins: when the host begins it, but not before all work launched earlier is done."""
    earlier = (graph.called < at) | graph.ahead
    return max(on_host, float(end[earlier].max(initial=on_host)))


def timed(graph: StepGraph, ran: GraphRun | None = None) -> tuple[Clock, F8, F8]:
    """(the clock of the host, begins, ends of all work) of a graph's run."""
    if graph.serial:
        clock = serial_clock(graph)
        rows = graph.links.device
        return clock, clock(graph.events.start_ns[rows]), clock(graph.events.end_ns[rows])
    ran = ran or run(graph)
    return host_clock(graph, ran), ran.begin, ran.end
