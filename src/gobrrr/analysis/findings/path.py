"""How much of the wall time a change saves: a step is a path and not a sum (docs/design.md, section 7).

Between two waits, a step takes as long as the slower of host and device: W = sum over the stretches between waits of
max(host, device). So less device time saves at most W minus the host's time, and less host time saves at most W minus
the device's busy time.

W is an estimate. The device's times are as recorded, so the uncertainty of W lies in the overhead: a saving of host
time is as uncertain as W itself.

Where the host's processor is the device, nothing overlaps: W = dispatch + Python + computing, and each nanosecond less
in one of them makes the step a nanosecond shorter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events import links
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.events import I8

HOST_SPREAD = 1.5
"""How much slower the host may be: host-bound times vary by half from run to run on the same machine (the README of the
shipped H100 traces)."""

DEVICE_LEADS = 0.8
"""Where the device is busy for this share of the step, host and device are about even. Chosen, not measured."""

QUEUED_NS = 3_000
"""A call that begins within this time after the one before it was waiting for the device and not for the host.
Chosen, not measured."""

KERNEL_GAP_NS = 1_000
"""Launch to launch of empty kernels inside a CUDA graph (`graph_kernel_us` in the shipped article.json, an H100)."""


@dataclass(frozen=True)
class WallSpread:
    """How far the step's wall time may lie below and above its estimate, in ns (>= 0); 0 where no interval is known."""

    down: float
    up: float


@dataclass(frozen=True)
class StepPath:
    """One step, in nanoseconds: its wall time, the device's busy time, the host's time to launch it without waiting.

    `launches`: pieces of device work (kernels, copies) per step that the host launched one by one, without work
    replayed from a graph. `spread`: the interval of `wall`. `serial`: host and device are one processor, and `host` is
    its time beside computing.
    """

    wall: float
    busy: float
    host: float
    launches: float
    spread: WallSpread = WallSpread(0.0, 0.0)
    serial: bool = False

    @property
    def host_per_launch(self) -> float:
        """Host nanoseconds per launch; 0 without launches."""
        return self.host / self.launches if self.launches else 0.0

    @property
    def idle(self) -> float:
        """Nanoseconds in which the device has nothing to do: the most that a faster host can save."""
        return max(self.wall - self.busy, 0.0)

    def host_saving(self, low: float, high: float) -> tuple[float, float]:
        """(low, high): what the step saves if the host's path gets shorter by `low` to `high`.

        The low end allows for a wall time at the low end of its interval.
        """
        return max(min(low, self.idle) - self.spread.down, 0.0), min(high, self.idle)

    def at_most(self, high: float) -> float:
        """The saving `high` of overhead where the wall time is at the high end of its interval.

        All overhead, this saving included, is then (idle + up) / idle times what is estimated.
        """
        return high * (self.idle + self.spread.up) / self.idle if self.idle else 0.0

    def device_saving(self, low: float, high: float, host_less: float = 0.0) -> tuple[float, float]:
        """(low, high): what the step saves if the device's path gets shorter by `low` to `high`.

        The new step takes at least the host's time, so the saving is at most W - host. The low end allows for a host
        that is slower by `HOST_SPREAD`, unless host and device are one. `host_less`: the host time that the same change
        saves; it raises the high end where the device is busy for most of the step (`DEVICE_LEADS`). Elsewhere the
        device waits for the host's other work.
        """
        leads = self.busy >= DEVICE_LEADS * self.wall
        upper = min(high, max(self.wall - max(self.host - (host_less if leads else 0.0), 0.0), 0.0))
        if self.serial:
            return min(low, upper), upper
        return min(low, max(self.wall - HOST_SPREAD * self.host, 0.0), upper), upper


def path_of(evidence: Evidence) -> StepPath:
    """The path of one step of the replayed timeline."""
    links, steps = evidence.priced.links, evidence.steps
    busy = evidence.budget.busy_ns / steps.count
    begin, stop = evidence.recorded_window
    known = links.launch >= 0
    called = np.where(known, evidence.events.start_ns[np.maximum(links.launch, 0)], 0)
    every = known & (called >= begin) & (called < stop)
    serial = not evidence.device.asynchronous
    return StepPath(
        wall=evidence.wall_ns,
        busy=busy,
        host=max(evidence.wall_ns - busy, 0.0) if serial else _host(evidence, begin, links.launch[every]) / steps.count,
        launches=float((every & ~links.in_graph).sum()) / steps.count,
        spread=spread_of(evidence),
        serial=serial,
    )


def _host(evidence: Evidence, begin: int, launches: I8) -> float:
    """The host's time from `begin` to its last launch, without waits and without a full queue, in ns."""
    if not len(launches):
        return 0.0
    last = int(evidence.events.end_ns[launches].max())
    return max(float(np.diff(evidence.graph.passed(np.array([begin, last])))[0]), 0.0)


def launch_call_ns(evidence: Evidence) -> float | None:
    """The median recorded duration of the calls that launch kernels; None where there are none."""
    launch = evidence.priced.links.launch
    return links.launch_call_ns(evidence.events, launch[launch >= 0])


def spread_of(evidence: Evidence) -> WallSpread:
    """The interval of the step's wall time as distances from its estimate."""
    wall = evidence.unprofiled.wall
    if wall is None or wall.value is None:
        return WallSpread(0.0, 0.0)
    low, high = (wall.value if end is None else end for end in (wall.low, wall.high))
    return WallSpread(max(wall.value - low, 0.0), max(high - wall.value, 0.0))


def queued(evidence: Evidence) -> NDArray[np.bool_]:
    """One flag per call: whether the device went on at once after it, so that a shorter call makes a shorter step.

    Always so for the last call, and for all calls of a CPU, which never waits for itself.
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
    """(low, high): what one step saves if each of `calls` gets shorter by `low` to `high` (ns).

    Where the device waits for the host after a call, the call's saving is hidden and counts in the high end only.
    `launches`: how many launches a step no longer has.
    """
    at_once = queued(evidence)[calls]
    count = evidence.steps.count
    path = path_of(evidence)
    host_less = launches * path.host_per_launch
    return path.device_saving(float(low[at_once].sum()) / count, float(high.sum()) / count, host_less)
