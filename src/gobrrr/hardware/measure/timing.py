"""Timing a call: warmed up, repeated until enough time is spent, a median with quartiles.

On a CPU each sample is a loop that is long enough for the clock. On a GPU each sample lies between two events on the
stream; the host queues them all and waits once, after the last: nothing synchronises inside a timed region. Before each
sample a fill that is larger than the last cache empties it and keeps the device busy while the host queues the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gobrrr.hardware.measure.device import Device
from gobrrr.hardware.measure.stats import quantity
from gobrrr.model.measured import Quantity

Call = Callable[[], object]

MIN_RUNS, MAX_RUNS = 5, 100
TICK_S = 1e-3
"""A sample on the host's clock lasts at least this long."""
FLUSH_BYTES = 512 * 2**20
"""Larger than any last-level cache in the datasheet table (256 MiB)."""
PIPELINE_S = 0.1
"""A pipelined sample lasts about this long, or GRAPH_CALLS calls."""
QUEUED_SAMPLES = 20
"""Samples on a GPU that are queued before the host looks at the clock."""
GRAPH_CALLS = 20
"""Calls in a captured graph, and at most in a pipelined sample."""


@dataclass
class CallTimer:
    """Times calls on one device. `now` is the host's clock in seconds: a test passes its own."""

    device: Device
    now: Callable[[], float] = time.perf_counter
    _flush: Any = field(default=None, repr=False)

    def time(self, call: Call, *, budget_s: float = 0.3, cold: bool = True) -> Quantity:
        """Seconds of one call on the device. `cold`: a GPU's caches are emptied before each sample."""
        if self.device.is_cpu:
            return self.host(call, budget_s=budget_s)
        return self._device(call, budget_s, cold)

    def host(self, call: Call, *, budget_s: float = 0.3) -> Quantity:
        """Seconds that one call keeps the host; on a GPU what is queued is waited for between samples, untimed."""
        started = self.now()
        for _ in range(2):
            call()
        self.device.wait()
        loops = self._loops(call)
        samples: list[float] = []
        while len(samples) < MIN_RUNS or (len(samples) < MAX_RUNS and self.now() - started < budget_s):
            samples.append(self._host_sample(call, loops))
            if self.now() - started > 4 * budget_s and len(samples) >= 3:
                break
        return quantity(samples)

    def wall(self, call: Call, *, budget_s: float = 0.3) -> Quantity:
        """Seconds a call from the first one's issue to the device's having done the last: a loop, one wait after it."""
        if self.device.is_cpu:
            return self.host(call, budget_s=budget_s)

        calls = 1

        def done() -> None:
            for _ in range(calls):
                call()
            self.device.wait()

        done()
        start = self.now()
        done()
        calls = max(1, min(GRAPH_CALLS, int(PIPELINE_S / max(self.now() - start, 1e-9))))
        return self.host(done, budget_s=budget_s).scaled(1 / calls)

    def issue(self, call: Call, *, runs: int = 20) -> Quantity:
        """Seconds that the host needs for one call while the device has nothing to do."""
        call()
        return quantity([self._host_sample(call, 1) for _ in range(runs)])

    def graph(self, call: Call, *, calls: int = GRAPH_CALLS, budget_s: float = 0.3) -> Quantity:
        """Seconds of one call on the device when a CUDA graph replays `calls` of them: no host in between."""
        graph = self.capture(call, calls)
        return self._device(graph.replay, budget_s, cold=False).scaled(1 / calls)

    def capture(self, call: Call, calls: int) -> Any:
        """A CUDA graph of `calls` calls, captured after a warm-up on a stream of its own."""
        torch = self.device.torch
        side = torch.cuda.Stream(self.device.index)
        side.wait_stream(torch.cuda.current_stream(self.device.index))
        with torch.cuda.stream(side):
            for _ in range(3):
                call()
        torch.cuda.current_stream(self.device.index).wait_stream(side)
        self.device.wait()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            for _ in range(calls):
                call()
        return graph

    def _loops(self, call: Call) -> int:
        """How many calls make a sample of TICK_S; on a GPU few enough that its queue of launches never fills."""
        most = 1_000_000 if self.device.is_cpu else 100
        loops = 1
        while loops < most:
            took = self._host_sample(call, loops) * loops
            if took >= TICK_S:
                break
            loops = min(most, loops * max(2, min(10, int(TICK_S / max(took, 1e-9)) + 1)))
        return loops

    def _host_sample(self, call: Call, loops: int) -> float:
        self.device.wait()
        start = self.now()
        for _ in range(loops):
            call()
        took = self.now() - start
        self.device.wait()
        return took / loops

    def _device(self, call: Call, budget_s: float, cold: bool) -> Quantity:
        started = self.now()
        for _ in range(3):
            call()
        self.device.wait()
        samples: list[float] = []
        while len(samples) < MIN_RUNS or (len(samples) < MAX_RUNS and self.now() - started < budget_s):
            batch = MIN_RUNS if not samples else QUEUED_SAMPLES
            samples += self._batch(call, batch, cold)
        return quantity(samples)

    def _batch(self, call: Call, count: int, cold: bool) -> list[float]:
        """Seconds of `count` samples, each between two events, waited for once."""
        cuda = self.device.torch.cuda
        pairs = [(cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)) for _ in range(count)]
        stream = cuda.current_stream(self.device.index)
        for start, end in pairs:
            if cold:
                self._empty_caches()
            start.record(stream)
            call()
            end.record(stream)
        self.device.wait()
        return [start.elapsed_time(end) * 1e-3 for start, end in pairs]

    def _empty_caches(self) -> None:
        if self._flush is None:
            size = min(FLUSH_BYTES, self.device.free_bytes() // 8)
            self._flush = self.device.torch.empty(size, dtype=self.device.torch.int8, device=self.device.spec)
        self._flush.fill_(1)
