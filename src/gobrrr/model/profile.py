"""What a door observed: events of every rank, what the file says of itself, and what was wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from gobrrr.model.diagnosis import DeviceTotals
from gobrrr.model.events import EventTable
from gobrrr.model.live import Live
from gobrrr.model.recording import Recording


class DeviceProperties(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the trace's `deviceProperties`; None where the entry lacks it."""

    id: int
    name: str | None = None
    memory_bytes: int | None = None
    processors: int | None = None
    compute: tuple[int, int] | None = None


class TraceMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace file says of itself.

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
    """One process's events."""

    meta: TraceMeta
    events: EventTable
    python: bool = False  # Python frames were read
    whole: bool = True  # the file was neither cut off nor damaged
    live: Live | None = None  # of a live run: what it measured beside the events
    seen: Recording | None = None  # of a live run: one step's operations as they were dispatched
    devices: tuple[DeviceTotals, ...] = ()  # of the whole recording, where the events are a part of it
    ends: tuple[float, float] | None = None  # the timeline is unprofiled: least and most step time, as multiples of it

    @property
    def rank(self) -> int:
        """The rank that the file claims, 0 where it says nothing."""
        return self.meta.rank


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What every door returns and everything downstream reads."""

    target: str
    origin: Literal["trace", "live", "static"]
    ranks: tuple[RankProfile, ...]
    notes: tuple[str, ...] = field(default=())
