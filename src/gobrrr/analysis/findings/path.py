"""What a change is worth on the wall: a step is a path and not a sum (docs/design.md, section 7).

Without the waits a step takes as long as the slower of host and device: W = sum over the stretches between waits of
max(host, device). So W minus the host's time bounds what a shorter device can save, and W minus the device's busy time
bounds what a shorter host can save.

A CPU that is the device computes within the host's own time: there W = host + device, and what either saves counts.

W is an estimate. The device's times are as recorded, so that its interval is that of the overhead: what a shorter host
saves is as uncertain as W itself.

Where the device is the host's own processor nothing overlaps: W = dispatch + Python + computing, and each nanosecond
that one of them loses the step loses too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events import links
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.events import I8

HOST_SPREAD = 1.5
"""Host-bound times vary by half from run to run on the same machine (the README of the shipped H100 traces)."""

DEVICE_LEADS = 0.8
"""Share of the step for which the device is busy where host and device are about even, and it is not the host alone."""

QUEUED_NS = 3_000
"""A call that begins this soon after the one before it was waiting for the device and not for the host."""

KERNEL_GAP_NS = 1_000
"""Launch to launch of empty kernels inside a CUDA graph (`graph_kernel_us` in the shipped article.json, an H100)."""


@dataclass(frozen=True)
class Spread:
    """How far the step's wall may lie below and above its estimate, in ns (>= 0); 0 where no interval is known."""

    down: float
    up: float


@dataclass(frozen=True)
class Path:
    """One step, in nanoseconds: its wall, the device's busy time, the host's time to issue it without waiting.

    `launches`: pieces of device work (kernels, copies) a step that the host issued one by one; work replayed from a
    graph counts not. `spread`: the interval of `wall`. `serial`: host and device are one processor, and `host` is what
    it does beside computing.
    """

    wall: float
    busy: float
    host: float
    launches: float
    spread: Spread = Spread(0.0, 0.0)
    serial: bool = False

    @property
    def host_per_launch(self) -> float:
        """Host nanoseconds for each launch; 0 without launches."""
        return self.host / self.launches if self.launches else 0.0

    @property
    def idle(self) -> float:
        """Nanoseconds in which the device has nothing to do: what a faster host can save at most."""
        return max(self.wall - self.busy, 0.0)

    def host_saving(self, low: float, high: float) -> tuple[float, float]:
        """What the estimated wall loses if the host's path gets shorter by `low` to `high`.

        The low end is what is left of it where the wall is at the low end of its interval.
        """
        return max(min(low, self.idle) - self.spread.down, 0.0), min(high, self.idle)

    def at_most(self, high: float) -> float:
        """The high end `high` of an overhead saving where the wall is at the high end of its interval.

        The overhead is then (idle + up) / idle times the estimated one, and the saving's part of it as well: at most
        the wall's high end minus the busy time.
        """
        return high * (self.idle + self.spread.up) / self.idle if self.idle else 0.0

    def device_saving(self, low: float, high: float, host_less: float = 0.0) -> tuple[float, float]:
        """What the wall loses if the device's path gets shorter by `low` to `high`.

        W' is at least the host's time, so that the saving is at most W - host; the low end allows for a host that is
        slower by `HOST_SPREAD`, unless host and device are one. `host_less`: what the same change takes from the host,
        which counts in the high end where the device is busy for most of the step (`DEVICE_LEADS`): elsewhere a
        shorter device waits for the host's other work.
        """
        leads = self.busy >= DEVICE_LEADS * self.wall
        upper = min(high, max(self.wall - max(self.host - (host_less if leads else 0.0), 0.0), 0.0))
        if self.serial:
            return min(low, upper), upper
        return min(low, max(self.wall - HOST_SPREAD * self.host, 0.0), upper), upper


def path_of(evidence: Evidence) -> Path:
    """The path of one step of the replayed timeline."""
    links, steps, recorded = evidence.priced.links, evidence.steps, evidence.recorded_steps
    events = evidence.events
    busy = evidence.budget.busy_ns / steps.count
    begin = recorded.begins[recorded.count - steps.count] if recorded.begins else recorded.start
    known = links.launch >= 0
    called = np.where(known, events.start_ns[np.maximum(links.launch, 0)], 0)
    every = known & (called >= begin) & (called < recorded.stop)
    serial = not evidence.device.asynchronous
    return Path(
        wall=evidence.wall_ns,
        busy=busy,
        host=max(evidence.wall_ns - busy, 0.0) if serial else _host(evidence, begin, links.launch[every]) / steps.count,
        launches=float((every & ~links.in_graph).sum()) / steps.count,
        spread=spread_of(evidence),
        serial=serial,
    )


def _host(evidence: Evidence, begin: int, launches: I8) -> float:
    """What the host needs from `begin` to its last launch, neither waiting nor held up by a full queue, in ns."""
    if not len(launches):
        return 0.0
    last = int(evidence.events.end_ns[launches].max())
    return max(float(np.diff(evidence.graph.passed(np.array([begin, last])))[0]), 0.0)


def launch_call_ns(evidence: Evidence) -> float | None:
    """The median duration of the calls that launch kernels, as recorded; None where there are none."""
    launch = evidence.priced.links.launch
    return links.launch_call_ns(evidence.events, launch[launch >= 0])


def spread_of(evidence: Evidence) -> Spread:
    """The interval of the step's wall as distances from its estimate."""
    wall = evidence.unprofiled.wall
    if wall is None or wall.value is None:
        return Spread(0.0, 0.0)
    low, high = (wall.value if one is None else one for one in (wall.low, wall.high))
    return Spread(max(wall.value - low, 0.0), max(high - wall.value, 0.0))


def queued(evidence: Evidence) -> NDArray[np.bool_]:
    """One flag a call: whether the device went over to the next call at once, so that the step ends earlier with it.

    Behind the last call there is only the end of the step. A CPU never waits for itself: all are.
    """
    calls = evidence.calls
    result = np.ones(len(calls), dtype=bool)
    if len(calls) > 1 and evidence.device.asynchronous:
        reach = np.maximum.accumulate(calls.stop_ns)
        result[:-1] = calls.start_ns[1:] - reach[:-1] <= QUEUED_NS
    return result


def step_saving(
    evidence: Evidence, calls: I8, low: NDArray[np.float64], high: NDArray[np.float64], launches: float = 0.0
) -> tuple[float, float]:
    """What one step loses if each of `calls` gets shorter by `low` to `high` (ns).

    Where the host lets the device wait behind a call, the call's own saving is hidden: it counts in the high end only.
    `launches`: how many of them a step no longer has.
    """
    behind = queued(evidence)[calls]
    count = evidence.steps.count
    path = path_of(evidence)
    less = launches * path.host_per_launch
    return path.device_saving(float(low[behind].sum()) / count, float(high.sum()) / count, less)
