"""Everything that a condition may look at, and how to ask for it."""

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
from gobrrr.analysis.events.observer import ObserverCost
from gobrrr.analysis.events.steps import Steps, find_steps, without_first
from gobrrr.analysis.findings.module_paths import FramePaths, ModulePaths
from gobrrr.analysis.findings.origins import forward_ops
from gobrrr.analysis.findings.sites import dispatched_of
from gobrrr.analysis.pricing.fusion import Fusion
from gobrrr.analysis.pricing.price import Class, Group, Priced
from gobrrr.analysis.pricing.texts import shapes_text
from gobrrr.analysis.replay.graph import StepGraph, graph_of, recosted, serial_graph
from gobrrr.analysis.replay.simulator import replayed
from gobrrr.model.device import DeviceModel
from gobrrr.model.diagnosis import Place, Wall
from gobrrr.model.events import ABSENT, I8, EventTable, Kind
from gobrrr.model.frame_names import is_users
from gobrrr.model.machine import Machine
from gobrrr.model.profile import RankProfile
from gobrrr.model.tree import parents

if TYPE_CHECKING:
    from gobrrr.analysis.host.host_loops import HostLoop
    from gobrrr.analysis.host.optimizers import Updates
    from gobrrr.analysis.places.where import Where


@dataclass(frozen=True)
class Calls:
    """Calls with device work in the analysed window of one device, in the order in which the device ran them.

    Parallel arrays, one entry a call: `group` into `priced.groups`; `op`: row of its operation, -1 if none owns it;
    `first`: index (into `priced.links.device`) of its first piece of device work; `ns`: device time counted as its own;
    `floor_ns`: NaN if not priced; `start_ns`, `stop_ns`: on the timeline of the budget.
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
    """The steps as they run without the profiler, derived from those that were recorded.

    `replayed` are the recorded events with the times that they have then, `steps` the steps of that timeline.
    """

    recorded_steps: Steps
    replayed: EventTable
    steps: Steps
    cost: ObserverCost  # what of the recorded times is the profiler's
    wall: Wall | None = None  # the estimate with its interval; value None where there is none
    cost_ends: tuple[ObserverCost, ObserverCost] | None = None  # at the low and the high end of the wall's interval
    base: StepGraph | None = None  # the steps' graph without floors, where it was made already


@dataclass(frozen=True)
class Evidence:
    """One rank's device over the analysed steps.

    It rests on three things: `profile`, what was observed of the rank; `unprofiled`, its steps without the profiler;
    `machine`, what the machine can do, None where it is not known. The rest follows from them: `priced` is the work of
    the recorded events; `budget`, `calls` and `fusion` are of the replayed timeline. Divide by `steps.count` for one
    step.
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
    def recorded_steps(self) -> Steps:
        """The steps as they were recorded."""
        return self.unprofiled.recorded_steps

    @property
    def replayed(self) -> EventTable:
        """The events with the times that they have without the profiler."""
        return self.unprofiled.replayed

    @property
    def steps(self) -> Steps:
        """The steps without the profiler."""
        return self.unprofiled.steps

    @property
    def wall_ns(self) -> float:
        """Wall time of one step, the one that the budget sums to."""
        return self.steps.wall_ns

    def line(self, line: str, cause: str | None = None) -> float:
        """Nanoseconds of a budget line in one step; all causes together if `cause` is None."""
        lines = self.budget.lines
        chosen = (ns for (name, why), ns in lines.items() if name == line and (cause is None or why == cause))
        return sum(chosen) / self.steps.count

    def group_of(self, call: int) -> Group:
        """The group of a call, given by its index."""
        return self.priced.groups[int(self.calls.group[call])]

    def per_step(self, values: NDArray[np.float64] | NDArray[np.int64]) -> float:
        """A sum over the window as the mean of one step."""
        return float(np.nansum(values)) / self.steps.count

    def calls_where(self, wanted: NDArray[np.bool_]) -> I8:
        """Calls whose group is marked in `wanted` (one flag a group)."""
        return np.flatnonzero(wanted[self.calls.group])

    def groups_where(self, *families: str) -> NDArray[np.bool_]:
        """One flag a group: whether its family is among `families`."""
        return np.array([group.work.family in families for group in self.priced.groups], dtype=bool)

    @property
    def device(self) -> DeviceModel:
        """How the device that ran the step behaves."""
        return self.profile.device

    @cached_property
    def training(self) -> bool:
        """Whether a backward pass ran: outputs of the forward pass may be kept for it.

        Operations tell; a Python frame may be called anything.
        """
        used = np.unique(self.events.name[self.events.of(Kind.OP)]).tolist()
        return any("Backward" in one or "autograd::engine" in one for one in map(self.events.names.__getitem__, used))

    @property
    def replayable(self) -> bool:
        """Whether the step's graph runs as the step did: there is an estimate or a measurement of its wall."""
        return self.unprofiled.wall is None or self.unprofiled.wall.value is not None

    @cached_property
    def graph(self) -> StepGraph:
        """The step as the simulator runs it, without the profiler: what replays to `replayed`."""
        window, floors = self.recorded_steps, self.priced.floor_ns
        if not self.device.asynchronous:
            return serial_graph(self.events, self.priced.links, window.start, window.stop, floors)
        if self.unprofiled.base is not None:
            return replace(self.unprofiled.base, floor=floors)
        return graph_of(self.events, self.priced.links, self.unprofiled.cost, window.start, window.stop, floors)

    @cached_property
    def graphs(self) -> tuple[StepGraph, ...]:
        """The same with the host at the low end of what is known of it, as expected, and at the high end.

        One graph where the host is known: it bounds a step that was measured, or the step is no estimate.
        """
        if self.unprofiled.cost_ends is None:
            return (self.graph,)
        low, high = self.unprofiled.cost_ends
        slow = recosted(self.graph, high)
        # the host is taken for no slower than it was recorded, or than it is expected to be
        slow = replace(slow, left=np.minimum(slow.left, np.maximum(self.graph.left, np.diff(slow.at))))
        return recosted(self.graph, low), self.graph, slow

    def steps_of(self, events: EventTable) -> Steps:
        """The steps of a replayed timeline of this trace that stand for `steps`: without the first where it is."""
        links = self.priced.links
        found = find_steps(events, links)
        return without_first(events, links, found) if self.steps.count < found.count else found

    def length(self, graph: StepGraph) -> float:
        """What one step takes when a graph of this trace runs, in ns."""
        return self.steps_of(replayed(graph)).wall_ns

    def without_waits(self, waits: I8 | None = None) -> float:
        """Wall time of one step, replayed with the host not waiting for the device in `waits` (rows; None: never)."""
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

    def place(self, calls: I8) -> Place:
        """Where a set of calls is: the op, module and source line that most of its time is in."""
        if not len(calls):
            return Place(op=None)
        ns = self.calls.ns[calls]
        heaviest = int(calls[int(np.argmax(ns))])
        group = self.group_of(heaviest)
        return Place(
            op=group.call.name or _short(group.call.kernels),
            module=self.module(int(self.calls.op[heaviest])),
            source=self.source(int(self.calls.op[heaviest])),
            shapes=shapes_text(group),
            count=len(calls) / self.steps.count,
            ns=float(ns.sum()) / self.steps.count,
        )

    def module(self, row: int) -> str | None:
        """The innermost nn.Module around a host event; None where it is in none, or that is not known.

        For an operation of the backward pass, that around the forward operation that it differentiates.
        """
        path = self.modules.of(row)
        return path[-1] if path else None

    def module_kind(self, row: int) -> str | None:
        """The class of that module: "MultiheadAttention"."""
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
        """For each row, the index of its operation in `seen.calls`; -1 where it is not known."""
        if self.profile.seen is None:
            return np.full(len(self.events), ABSENT, dtype=np.int64)
        return dispatched_of(self.events, self.priced.links.op_parent, self.recorded_steps, self.profile.seen)

    @cached_property
    def sites(self) -> I8:
        """For each row, the index of its site in `seen.sites`; -1 where it is not known."""
        if self.profile.seen is None or not self.profile.seen.calls:
            return np.full(len(self.events), ABSENT, dtype=np.int64)
        of_call = np.array([call.site for call in self.profile.seen.calls], dtype=np.int64)
        return np.where(self.dispatched >= 0, of_call[self.dispatched], ABSENT)

    def source(self, row: int) -> str | None:
        """The innermost line of the user's own code around a host event, "file.py(12): function"; None if not known.

        Where a step was looked at as it ran, the line that runs or that makes the call; else the one that the function
        begins at.

        For an operation of the backward pass, that of the forward operation that it differentiates.
        """
        site = int(self.sites[row]) if row >= 0 and self.profile.seen is not None else ABSENT
        if self.profile.seen is not None and site >= 0 and (line := self.profile.seen.sites[site].user) is not None:
            return line
        begin = self._frame(row, is_users)
        seen = self.profile.seen
        called = self.where.line_of(row) if begin and seen is not None and seen.lines else None
        return called or begin

    @cached_property
    def where(self) -> Where:
        """The tree of places with its times."""
        from gobrrr.analysis.places.where import where_time_goes  # it takes evidence itself

        return where_time_goes(self)

    @cached_property
    def host_loops(self) -> list[HostLoop]:
        """Loops on the host that cost more than what they compute."""
        from gobrrr.analysis.host.host_loops import find_host_loops  # it takes evidence itself

        return find_host_loops(self)

    @cached_property
    def updates(self) -> Updates:
        """Device work that updates parameters."""
        from gobrrr.analysis.host.optimizers import find_updates  # it takes evidence itself

        return find_updates(self)

    def _frame(self, row: int, wanted: Callable[[str], bool]) -> str | None:
        if row < 0 or not self.profile.frames or self.host_parents is None:
            return None
        forward = int(self.forward[row])
        row = int(self.host_parents[forward if forward >= 0 else row])
        python = self._python
        while row >= 0:
            if python[row]:
                name = self.events.name_of(row)
                if wanted(name):
                    return name
            row = int(self.host_parents[row])
        return None

    @cached_property
    def _python(self) -> NDArray[np.bool_]:
        python: NDArray[np.bool_] = self.events.kind == Kind.PYTHON
        return python

    @cached_property
    def forward(self) -> I8:
        """For each row of the backward pass, the operation of the forward pass that it differentiates; else -1."""
        assert self.host_parents is not None
        return forward_ops(self.events, self.host_parents)

    @cached_property
    def host_parents(self) -> I8 | None:
        """For each row the host event around it, Python frames included; None where no frame was read."""
        return parents(self.events) if self._python.any() else None


def _short(kernels: tuple[str, ...]) -> str | None:
    return kernels[0] if kernels else None


def calls_of(events: EventTable, priced: Priced, budget: DeviceBudget, steps: Steps) -> Calls:
    """The calls with compute work of the budget's device within the window."""
    device = priced.links.device
    start, stop = events.start_ns[device], events.end_ns[device]
    here = (events.device[device] == budget.device) & (start < steps.stop) & (stop > steps.start)
    here &= priced.kind == Class.COMPUTE
    index = np.flatnonzero(here)
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
