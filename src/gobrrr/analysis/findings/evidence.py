"""What a condition may look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.budget.device import DeviceBudget
from gobrrr.analysis.budget.lead import loading
from gobrrr.analysis.events.intervals import Spans
from gobrrr.analysis.events.links import Links
from gobrrr.analysis.events.observer import ObserverCost
from gobrrr.analysis.events.steps import StepWindow, find_steps, without_first
from gobrrr.analysis.findings.module_paths import FramePaths, ModulePaths
from gobrrr.analysis.findings.origins import forward_ops
from gobrrr.analysis.findings.sites import dispatched_of
from gobrrr.analysis.pricing.fusion import Fusion
from gobrrr.analysis.pricing.price import CallGroup, Priced, WorkClass
from gobrrr.analysis.pricing.texts import shapes_text
from gobrrr.analysis.replay.graph import StepGraph, graph_of, recosted, serial_graph
from gobrrr.analysis.replay.simulator import replayed
from gobrrr.model.device import DeviceModel
from gobrrr.model.diagnosis import Place, Wall
from gobrrr.model.events import ABSENT, I8, EventKind, EventTable
from gobrrr.model.frame_names import is_users
from gobrrr.model.machine import Machine
from gobrrr.model.profile import RankProfile
from gobrrr.model.tree import parents

if TYPE_CHECKING:
    from gobrrr.analysis.host.host_loops import CostlyLoop
    from gobrrr.analysis.host.optimizers import Updates
    from gobrrr.analysis.places.where import PlaceTimes


@dataclass(frozen=True)
class Calls:
    """Calls with device work in the analysed window of one device, in the order in which the device ran them.

    Parallel arrays, one entry per call. `group`: index into `priced.groups`; `op`: row of its operation, -1 if it has
    none; `first`: index (into `priced.links.device`) of its first piece of device work; `ns`: device time that counts
    as its own; `floor_ns`: NaN if not priced; `start_ns`, `stop_ns`: on the timeline of the budget.
    """

    group: I8
    op: I8
    first: I8
    ns: NDArray[np.float64]
    floor_ns: NDArray[np.float64]
    start_ns: I8
    stop_ns: I8
    stream: I8
    kernels: I8  # pieces of device work

    def __len__(self) -> int:
        return len(self.group)


@dataclass(frozen=True)
class Unprofiled:
    """The steps without the profiler, derived from the recorded steps.

    `replayed`: the recorded events at their times without the profiler; `steps`: the steps of that timeline.
    """

    recorded_steps: StepWindow
    replayed: EventTable
    steps: StepWindow
    cost: ObserverCost  # the profiler's part of the recorded times
    wall: Wall | None = None  # the estimate with its interval; value None where there is none
    cost_ends: tuple[ObserverCost, ObserverCost] | None = None  # at the low and the high end of the wall's interval
    base: StepGraph | None = None  # the steps' graph without floors, where it was made already


@dataclass(frozen=True)
class Evidence:
    """One rank's device over the analysed steps.

    It rests on three things: `profile`, what was observed of the rank; `unprofiled`, its steps without the profiler;
    `machine`, what the machine can do, None where it is not known. The rest follows from them: `priced` is the work of
    the recorded events; `budget`, `calls` and `fusion` describe the replayed timeline. Divide by `steps.count` for the
    mean of one step.
    """

    profile: RankProfile
    unprofiled: Unprofiled
    machine: Machine | None
    priced: Priced
    budget: DeviceBudget
    calls: Calls
    fusion: Fusion

    @property
    def events(self) -> EventTable:
        """The events as they were recorded."""
        return self.profile.events

    @property
    def recorded_steps(self) -> StepWindow:
        """The steps as they were recorded."""
        return self.unprofiled.recorded_steps

    @property
    def replayed(self) -> EventTable:
        """The events with the times that they have without the profiler."""
        return self.unprofiled.replayed

    @property
    def steps(self) -> StepWindow:
        """The steps without the profiler."""
        return self.unprofiled.steps

    @property
    def recorded_window(self) -> tuple[int, int]:
        """(begin, end) of the analysed steps on the recorded clock. Work launched earlier does not belong to them."""
        steps = self.recorded_steps
        return (steps.begins[steps.count - self.steps.count] if steps.begins else steps.start), steps.stop

    @property
    def wall_ns(self) -> float:
        """Wall time of one step, which the budget sums to."""
        return self.steps.wall_ns

    def line(self, line: str, cause: str | None = None) -> float:
        """Nanoseconds of a budget line in one step; the sum of all causes if `cause` is None."""
        lines = self.budget.lines
        chosen = (ns for (name, why), ns in lines.items() if name == line and (cause is None or why == cause))
        return sum(chosen) / self.steps.count

    def group_of(self, call: int) -> CallGroup:
        """The group of a call, given by its index."""
        return self.priced.groups[int(self.calls.group[call])]

    def per_step(self, values: NDArray[np.float64] | NDArray[np.int64]) -> float:
        """A sum over the window, as the mean of one step."""
        return float(np.nansum(values)) / self.steps.count

    def calls_where(self, wanted: NDArray[np.bool_]) -> I8:
        """Calls whose group is marked in `wanted` (one flag per group)."""
        return np.flatnonzero(wanted[self.calls.group])

    def calls_that(self, test: Callable[[CallGroup], bool]) -> I8:
        """Calls whose group passes a test."""
        return self.calls_where(np.array([test(group) for group in self.priced.groups], dtype=bool))

    def groups_where(self, *families: str) -> NDArray[np.bool_]:
        """One flag per group: whether its family is among `families`."""
        return np.array([group.work.family in families for group in self.priced.groups], dtype=bool)

    @cached_property
    def step_of_call(self) -> I8:
        """For each call the step that launched it, counted from 1."""
        return step_of(self.replayed, self.priced.links, self.steps, self.calls)

    @property
    def device(self) -> DeviceModel:
        """How the device that ran the step behaves."""
        return self.profile.device

    @cached_property
    def training(self) -> bool:
        """Whether a backward pass ran, for which outputs of the forward pass may be kept.

        Only operations count: a Python frame can have any name.
        """
        names = [self.events.names[name] for name in np.unique(self.events.name[self.events.of(EventKind.OP)]).tolist()]
        return any("Backward" in name or "autograd::engine" in name for name in names)

    @property
    def replayable(self) -> bool:
        """Whether the step's graph can be replayed: its wall time was estimated or measured."""
        return self.unprofiled.wall is None or self.unprofiled.wall.value is not None

    @cached_property
    def graph(self) -> StepGraph:
        """The step without the profiler as the simulator runs it: its replay gives `replayed`."""
        window, floors = self.recorded_steps, self.priced.floor_ns
        if not self.device.asynchronous:
            return serial_graph(self.events, self.priced.links, window.start, window.stop, floors)
        if self.unprofiled.base is not None:
            return replace(self.unprofiled.base, floor=floors)
        return graph_of(self.events, self.priced.links, self.unprofiled.cost, window.start, window.stop, floors)

    @cached_property
    def graphs(self) -> tuple[StepGraph, ...]:
        """The graph with the fastest host that the interval allows, with the expected one, and with the slowest.

        One graph where the host's time is known: it bounds a step that was measured, or the step is no estimate.
        """
        if self.unprofiled.cost_ends is None:
            return (self.graph,)
        low, high = self.unprofiled.cost_ends
        slow = recosted(self.graph, high)
        # the host counts as no slower than it was recorded, or than it is expected to be
        slow = replace(slow, left=np.minimum(slow.left, np.maximum(self.graph.left, np.diff(slow.at))))
        return recosted(self.graph, low), self.graph, slow

    def steps_of(self, events: EventTable) -> StepWindow:
        """The steps of a replayed timeline of this trace that correspond to `steps`: without the first where it is."""
        links = self.priced.links
        steps = find_steps(events, links)
        return without_first(events, links, steps) if self.steps.count < steps.count else steps

    def length(self, graph: StepGraph) -> float:
        """The time of one step when a graph of this trace runs, in ns."""
        return self.steps_of(replayed(graph)).wall_ns

    def without_waits(self, waits: I8 | None = None) -> float:
        """Wall time of one step, replayed without the host's `waits` for the device (rows; None: without any)."""
        graph = self.graph
        cut = np.ones(len(graph.waits), dtype=bool) if waits is None else np.isin(graph.waits, waits)
        return min(self.length(replace(graph, cut=cut)), self.wall_ns)

    def ancestors(self, row: int) -> Iterator[int]:
        """The operations around an operation, innermost first."""
        parent = self.priced.links.op_parent
        row = int(parent[row]) if row >= 0 else ABSENT
        while row >= 0:
            yield row
            row = int(parent[row])

    def outermost(self, row: int) -> int:
        """The outermost aten operation around an operation: what the program called; `row` where there is none."""
        return next((outer for outer in [*self.ancestors(row)][::-1] if self._is_aten(outer)), row)

    def _is_aten(self, row: int) -> bool:
        return self.events.name_of(row).startswith("aten::")

    def place(self, calls: I8) -> Place:
        """Where a set of calls is: the op, module and source line of the longest of them."""
        if not len(calls):
            return Place(op=None)
        ns = self.calls.ns[calls]
        longest = int(calls[int(np.argmax(ns))])
        group = self.group_of(longest)
        return Place(
            op=group.call.name or next(iter(group.call.kernels), None),
            module=self.module(int(self.calls.op[longest])),
            source=self.source(int(self.calls.op[longest])),
            shapes=shapes_text(group),
            count=len(calls) / self.steps.count,
            ns=float(ns.sum()) / self.steps.count,
        )

    def module(self, row: int) -> str | None:
        """The innermost nn.Module around a host event; None where there is none or it is not known.

        For an operation of the backward pass: the module around the forward operation that it differentiates.
        """
        path = self.modules.of(row)
        return path[-1] if path else None

    def module_kind(self, row: int) -> str | None:
        """The class of the innermost nn.Module around a host event: "MultiheadAttention"."""
        return self.modules.kind(row)

    @cached_property
    def modules(self) -> ModulePaths:
        """The nn.Modules around each host event."""
        frames = None
        if self.profile.frames and self.host_parents is not None:
            frames = FramePaths(self.events, self.host_parents, self.forward)
        sites = self.profile.seen.sites if self.profile.seen is not None else ()
        return ModulePaths(frames, self.sites, sites, np.unique(self.calls.op).tolist())

    @cached_property
    def loading(self) -> Spans:
        """When the host loads data, as recorded."""
        return loading(self.events)

    @cached_property
    def dispatched(self) -> I8:
        """For each row, the index of its operation in `seen.calls` (one step's operations); -1 where not known."""
        if self.profile.seen is None:
            return np.full(len(self.events), ABSENT, dtype=np.int64)
        return dispatched_of(self.events, self.priced.links.op_parent, self.recorded_steps, self.profile.seen)

    @cached_property
    def sites(self) -> I8:
        """For each row, the index of its site in `seen.sites`; -1 where not known."""
        if self.profile.seen is None or not self.profile.seen.calls:
            return np.full(len(self.events), ABSENT, dtype=np.int64)
        of_call = np.array([call.site for call in self.profile.seen.calls], dtype=np.int64)
        return np.where(self.dispatched >= 0, of_call[self.dispatched], ABSENT)

    def source(self, row: int) -> str | None:
        """The innermost line of the user's own code around a host event, "file.py(12): function"; None if not known.

        Where the step was observed while it ran, this is the line that runs or makes the call; else it is the first
        line of the function. For an operation of the backward pass: the line of the forward operation that it
        differentiates.
        """
        seen = self.profile.seen
        site = int(self.sites[row]) if row >= 0 and seen is not None else ABSENT
        if seen is not None and site >= 0 and (line := seen.sites[site].user) is not None:
            return line
        begin = self._users_frame(row)
        called = self.where.line_of(row) if begin and seen is not None and seen.lines else None
        return called or begin

    @cached_property
    def where(self) -> PlaceTimes:
        """The tree of places with its times."""
        from gobrrr.analysis.places.where import where_time_goes  # that module imports Evidence

        return where_time_goes(self)

    @cached_property
    def host_loops(self) -> list[CostlyLoop]:
        """Loops on the host that take longer than the work that they launch."""
        from gobrrr.analysis.host.host_loops import find_host_loops  # that module imports Evidence

        return find_host_loops(self)

    @cached_property
    def updates(self) -> Updates:
        """Device work that updates parameters."""
        from gobrrr.analysis.host.optimizers import find_updates  # that module imports Evidence

        return find_updates(self)

    def _users_frame(self, row: int) -> str | None:
        """The innermost Python frame of the user's own code around a host event."""
        if row < 0 or not self.profile.frames or self.host_parents is None:
            return None
        forward = int(self.forward[row])
        row = int(self.host_parents[forward if forward >= 0 else row])
        python = self._python
        while row >= 0:
            if python[row] and is_users(name := self.events.name_of(row)):
                return name
            row = int(self.host_parents[row])
        return None

    @cached_property
    def _python(self) -> NDArray[np.bool_]:
        python: NDArray[np.bool_] = self.events.kind == EventKind.PYTHON
        return python

    @cached_property
    def forward(self) -> I8:
        """For each row of the backward pass, the forward operation that it differentiates; -1 for other rows."""
        assert self.host_parents is not None
        return forward_ops(self.events, self.host_parents)

    @cached_property
    def host_parents(self) -> I8 | None:
        """For each row the host event around it, Python frames included; None where no frames were recorded."""
        return parents(self.events) if self._python.any() else None


def step_of(events: EventTable, links: Links, steps: StepWindow, calls: Calls) -> I8:
    """For each call the step that launched it, counted from 1: the device may run a step behind the host."""
    launch = links.launch[calls.first]
    when = np.where(launch >= 0, events.start_ns[np.maximum(launch, 0)], calls.start_ns)
    return np.searchsorted(np.array(steps.begins, dtype=np.int64), when, side="right")


def calls_on_device(events: EventTable, priced: Priced, budget: DeviceBudget, steps: StepWindow) -> Calls:
    """The calls with compute work on the budget's device within the window."""
    device = priced.links.device
    start, stop = events.start_ns[device], events.end_ns[device]
    inside = (events.device[device] == budget.device) & (start < steps.stop) & (stop > steps.start)
    inside &= priced.kind == WorkClass.COMPUTE
    index = np.flatnonzero(inside)
    key = np.where(priced.instance[index] >= 0, priced.instance[index], -2 - index)
    unique, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    inverse = np.asarray(inverse).reshape(-1)
    count = len(unique)
    begins = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(begins, inverse, start[index])
    ends = np.zeros(count, dtype=np.int64)
    np.maximum.at(ends, inverse, stop[index])
    ns = np.bincount(inverse, weights=budget.owned_ns[index], minlength=count)
    floor = np.bincount(inverse, weights=priced.floor_ns[index], minlength=count)
    order = np.argsort(begins, kind="stable")
    lead = index[first]
    return Calls(
        group=priced.group[lead][order],
        op=priced.links.op[lead][order],
        first=lead[order],
        ns=ns[order].astype(np.float64),
        floor_ns=floor[order].astype(np.float64),
        start_ns=begins[order],
        stop_ns=ends[order],
        stream=events.stream[device[lead]][order],
        kernels=np.bincount(inverse, minlength=count)[order],
    )
