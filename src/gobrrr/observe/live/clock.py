"""When steps begin, without the profiler: by the host's clock, and on a GPU also by events on the device."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch

from gobrrr.model.live import StepTimes

NS_PER_MS = 1e6
LEAST_FOR_DRIFT = 6
"""Steps that are needed to say how their time drifts: two in each third."""


def on_gpu() -> bool:
    """Whether this process uses a GPU now; one that torch could use but has not touched is left alone."""
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())


def wait() -> None:
    """Return when the device has done all that was queued."""
    if on_gpu():
        torch.cuda.synchronize()


class Clock:
    """Times the steps of a window: call `mark()` at its start and at the end of each step.

    On a GPU a mark is an event on the current stream, so that marking never drains the queue. The first step starts on
    an empty queue, so its time is left out.
    """

    def __init__(self) -> None:
        self._gpu = on_gpu()
        self._events: list[Any] = []
        self._host: list[int] = []

    def mark(self) -> None:
        """Mark this moment."""
        if self._gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)
        self._host.append(time.perf_counter_ns())

    def times(self) -> StepTimes | None:
        """The steps between the marks; None for fewer than one that counts."""
        if self._gpu:
            wait()
        ns = self._device() if self._gpu else [float(b - a) for a, b in zip(self._host, self._host[1:], strict=False)]
        ns = ns[1:] if len(ns) > 2 else ns
        return step_times(ns, "device" if self._gpu else "host") if ns else None

    def _device(self) -> list[float]:
        pairs = zip(self._events, self._events[1:], strict=False)
        return [float(begin.elapsed_time(end)) * NS_PER_MS for begin, end in pairs]


def step_times(
    ns: list[float], clock: str = "host", *, low: float | None = None, high: float | None = None
) -> StepTimes:
    """The record of some steps: their median, with the quartiles as its interval (of few steps the extremes).

    `low`, `high`: another interval in place of that.
    """
    ordered = sorted(ns)
    cut = len(ordered) // 4
    middle = median(ordered)
    return StepTimes(
        wall_ns=middle,
        low_ns=ordered[cut] if low is None else low,
        high_ns=ordered[len(ordered) - 1 - cut] if high is None else high,
        ns=tuple(ns),
        median_ns=middle,
        mean_ns=sum(ns) / len(ns),
        drift=_drift(ns),
        clock="device" if clock == "device" else "host",
    )


def _drift(ns: list[float]) -> float | None:
    if len(ns) < LEAST_FOR_DRIFT:
        return None
    third = len(ns) // 3
    first = median(ns[:third])
    return (median(ns[-third:]) - first) / first if first else None
