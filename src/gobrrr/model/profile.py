"""What a door observed: the events of every rank, and what else is known of the recording."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from gobrrr.model.device import DeviceModel, model_of
from gobrrr.model.diagnosis import DeviceTotals
from gobrrr.model.events import EventTable
from gobrrr.model.live import (
    Collector,
    Compiled,
    DeviceMemory,
    DispatchedCounts,
    HostSync,
    Live,
    ProfilerCost,
    Scaling,
    StepTimes,
    Switches,
    TensorUse,
    Threads,
)
from gobrrr.model.program import Program
from gobrrr.model.recording import Recording


class DeviceProperties(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the trace's `deviceProperties`; None where the entry lacks a value."""

    id: int
    name: str | None = None
    memory_bytes: int | None = None
    processors: int | None = None
    compute: tuple[int, int] | None = None


class TraceMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace file says about itself.

    `recorded`: the profiler's switches that were on ("record_shapes", ...); "replayed" where gobrrr wrote the timeline.
    """

    source: str
    rank: int = 0
    world_size: int | None = None
    devices: tuple[DeviceProperties, ...] = ()
    recorded: frozenset[str] = frozenset()
    versions: dict[str, str] = {}
    origin_ns: int = 0  # the absolute time of the table's 0, in the trace's own clock


@dataclass(frozen=True, kw_only=True)
class RankProfile:
    """One process's events, and what else was observed.

    Everything beside the events is a property of its own, None where this profile does not have it.
    """

    meta: TraceMeta
    events: EventTable
    frames: bool = False  # all Python frames were read, not only the long ones
    whole: bool = True  # the file was neither cut off nor damaged
    live: Live | None = None  # of a live run: what it measured beside the events
    seen: Recording | None = None  # of a live run: one step's operations as they were dispatched
    devices: tuple[DeviceTotals, ...] = ()  # of the whole recording, where the events are a part of it
    ends: tuple[float, float] | None = None  # of an unprofiled timeline: least and most step time, as multiples of it

    @property
    def rank(self) -> int:
        """The rank that the file names; 0 where it names none."""
        return self.meta.rank

    @property
    def device(self) -> DeviceModel:
        """How the device that ran the steps behaves."""
        return model_of(self.live.kind if self.live is not None else None)

    def run_record(self, counted: DispatchedCounts | None) -> Live | None:
        """What a live run observed beside the events, with the sums over a step as it was dispatched."""
        if self.live is None or counted is None:
            return self.live
        return msgspec.structs.replace(self.live, counted=counted)

    @property
    def times(self) -> StepTimes | None:
        """Each step's time without the profiler; None where no step was timed."""
        return self.live.times if self.live is not None else None

    @property
    def observer(self) -> ProfilerCost | None:
        """The measured cost of recording; None where it was not measured."""
        return self.live.observer if self.live is not None else None

    @property
    def syncs(self) -> tuple[HostSync, ...] | None:
        """The program's lines that wait for the device; None where this was not observed."""
        return self.live.syncs if self.live is not None else None

    @property
    def issue_ns(self) -> float | None:
        """How long issuing a step to an idle device takes; None where it was not measured."""
        return self.live.issue_ns if self.live is not None else None

    @property
    def dispatch_ns(self) -> float | None:
        """How long an operation on one element takes without the profiler; None where it was not measured."""
        return self.live.dispatch_ns if self.live is not None else None

    @property
    def ended_after(self) -> int | None:
        """The number of steps after which the loop ended, where that was before all was measured; else None."""
        return self.live.ended_after if self.live is not None else None

    @property
    def compiled(self) -> Compiled | None:
        """What torch.compile did while the steps ran; None where this was not observed."""
        return self.live.compiled if self.live is not None else None

    @property
    def collector(self) -> Collector | None:
        """What the garbage collector did while the steps ran; None where this was not observed."""
        return self.live.collector if self.live is not None else None

    @property
    def switches(self) -> Switches | None:
        """The program's settings of torch and Python; None where they are not known."""
        return self.live.switches if self.live is not None else None

    @property
    def threads(self) -> Threads | None:
        """The program's threads and processors; None where they were not observed."""
        return self.live.threads if self.live is not None else None

    @property
    def memory(self) -> DeviceMemory | None:
        """The allocator's counters; None where they were not read."""
        return self.live.memory if self.live is not None else None

    @property
    def scaling(self) -> Scaling | None:
        """The step with larger batches; None where they were not tried."""
        return self.live.scaling if self.live is not None else None

    @property
    def uses(self) -> tuple[TensorUse, ...] | None:
        """Findings from the values of tensors; None where these were not observed."""
        return self.live.uses if self.live is not None else None

    @property
    def program(self) -> Program | None:
        """The program's own objects; None where they were not observed."""
        return self.live.program if self.live is not None else None


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What every door returns and everything downstream reads."""

    target: str
    origin: Literal["trace", "live", "static"]
    ranks: tuple[RankProfile, ...]
    notes: tuple[str, ...] = field(default=())
