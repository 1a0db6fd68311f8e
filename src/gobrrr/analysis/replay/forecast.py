"""The timeline that a recorded step would have on a machine: host dispatch against device time.

The host issues one operation after the other, and waits where the program reads a value. The device runs queued work in
order; a stream holds `QUEUE_DEPTH` launches before the next launch blocks the host. The previous step is simulated as
well, because the device may still be busy with it when the step begins, as in a loop whose host runs ahead. The result
is a table of events like a trace's, for the same analysis.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from gobrrr.analysis.pricing.expected import Expected
from gobrrr.analysis.replay.simulator import QUEUE_DEPTH
from gobrrr.cost.shapes import write_bytes
from gobrrr.hardware.dispatch import Dispatch
from gobrrr.model.events import ABSENT, COLUMN_TYPES, EventKind, EventTable
from gobrrr.model.recording import RecordedCall, Recording
from gobrrr.model.work import Argument, OpCall, Tensor, TensorList

STREAM = 7
"""The number of the stream, as torch's traces usually have it."""
LAUNCH_CALL_NS = 2_000.0
"""The driver's part of an operation's host time, at its end. It only moves time between causes; the step's length does
not depend on it. Chosen, not measured."""
COPY_NAMES = {"HtoD": "Memcpy HtoD (Pageable -> Device)", "DtoH": "Memcpy DtoH (Device -> Pageable)"}
"""The names of copies, as in a trace."""


@dataclass(frozen=True)
class Timed:
    """One recorded call with its times: host ns to issue it, and ns of each of its pieces of device work."""

    call: RecordedCall
    host_ns: float
    device_ns: tuple[float, ...]


def timed(recording: Recording, expected: Sequence[Expected], dispatch: Dispatch) -> list[Timed]:
    """Each call of a recording with its times. `expected` is parallel to `recording.calls`."""
    modules = recording.module_calls / max(sum(call.phase == "forward" for call in recording.calls), 1)
    result = []
    for call, time in zip(recording.calls, expected, strict=True):
        work = () if call.place == "host" or not time.kernels else (time.ns / time.kernels,) * time.kernels
        result.append(Timed(call, dispatch.host_ns(call, len(work), modules), work))
    return result


@dataclass(frozen=True)
class Played:
    """The simulated times in ns: for each call its begin and end on the host, when each piece of its work was `issued`
    and `ran` (begin, end), and until when the host `waited`."""

    host_start: list[float]
    host_stop: list[float]
    issued: list[list[float]]
    ran: list[list[tuple[float, float]]]
    waited: list[float | None]


class Player:
    """The queue model of one host thread and one stream."""

    def __init__(self, dispatch: Dispatch) -> None:
        self.latency = dispatch.latency_ns
        self.launch = dispatch.launch_ns
        self.now = 0.0
        self.free = 0.0
        self.queue: deque[float] = deque()

    def play(self, steps: Sequence[Timed]) -> Played:
        """Issue the calls of one step after all earlier ones."""
        played = Played([], [], [], [], [])
        for step in steps:
            played.host_start.append(self.now)
            further = self.launch * max(len(step.device_ns) - 1, 0)
            self.now += max(step.host_ns - further - LAUNCH_CALL_NS * bool(step.device_ns), 0.0)
            issued, ran = [], []
            for place, ns in enumerate(step.device_ns):
                begin, end = self._issue(ns, self.launch if place else LAUNCH_CALL_NS)
                issued.append(begin)
                ran.append(end)
            played.issued.append(issued)
            played.ran.append(ran)
            played.waited.append(self._wait() if step.call.waits else None)
            played.host_stop.append(self.now)
        return played

    def _issue(self, ns: float, call_ns: float) -> tuple[float, tuple[float, float]]:
        while self.queue and self.queue[0] <= self.now:
            self.queue.popleft()
        if len(self.queue) >= QUEUE_DEPTH:
            self.now = self.queue.popleft()
        issued = self.now
        self.now += call_ns
        start = max(self.free, self.now + self.latency)
        self.free = start + ns
        self.queue.append(start)
        return issued, (start, self.free)

    def _wait(self) -> float:
        self.now = max(self.now, self.free)
        return self.now


def step_ns(steps: Sequence[Timed], dispatch: Dispatch) -> float:
    """Wall time of one step in a loop whose host runs ahead as far as the queue allows."""
    player = Player(dispatch)
    player.play(steps)
    before = max(player.free, player.now)
    player.play(steps)
    return max(player.free, player.now) - before


def table(recording: Recording, steps: Sequence[Timed], dispatch: Dispatch) -> EventTable:
    """The events of one step, and the last work of the previous step."""
    player = Player(dispatch)
    first = player.play(steps)
    second = player.play(steps)
    build = _Builder(recording)
    build.backlog(first)
    build.step(steps, second, player)
    return build.finish()


class _Builder:
    """Builds the table row by row. The first row begins at 0."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.rows: list[tuple[Any, ...]] = []
        self.names: dict[str, int] = {}
        self.texts: dict[bytes, int] = {}
        self.encoded: dict[tuple[OpCall, bool, float], tuple[int, int, int, int, int]] = {}
        self.correlation = 0

    def backlog(self, played: Played) -> None:
        """The last work of the previous step: the step begins on the device after it."""
        pairs = zip(reversed(played.issued), reversed(played.ran), strict=True)
        last = next(((at, works) for at, works in pairs if works), None)
        if last is not None:
            issued, ran = last
            self._launch("cudaLaunchKernel", issued[-1], issued[-1] + 1)
            self._device(EventKind.KERNEL, "predicted", *ran[-1])

    def step(self, steps: Sequence[Timed], played: Played, player: Player) -> None:
        """The step: its annotation, the modules and lines around each call, the calls, and their work."""
        begin, end = played.host_start[0], played.host_stop[-1]
        self._row(EventKind.ANNOTATION, "ProfilerStep#0", begin, end)
        self._modules(steps, played)
        for index, step in enumerate(steps):
            start, stop = played.host_start[index], played.host_stop[index]
            site = self.recording.sites[step.call.site]
            if site.user or site.source:
                self._row(EventKind.PYTHON, site.user or site.source or "", start, stop)
            if step.call.node:
                self._row(EventKind.OP, f"autograd::engine::evaluate_function: {step.call.node}", start, stop)
            self._op(step.call, start, stop)
            waited = played.waited[index]
            for issued, ran in zip(played.issued[index], played.ran[index], strict=True):
                copy = step.call.host_copy
                self._launch("cudaMemcpyAsync" if copy else "cudaLaunchKernel", issued, issued + LAUNCH_CALL_NS)
                kind = EventKind.MEMCPY if copy else EventKind.KERNEL
                self._device(kind, COPY_NAMES.get(copy) or kernel_name(step.call), *ran, moved=_moved(step.call))
            if waited is not None:
                begin_wait = max(start, min(stop, stop - 1))
                self._row(EventKind.RUNTIME, "cudaStreamSynchronize", min(begin_wait, start), stop)

    def _modules(self, steps: Sequence[Timed], played: Played) -> None:
        """A frame for each run of consecutive calls in the same module, outer modules first."""
        sites = self.recording.sites
        open_: list[tuple[str, float]] = []
        frames: list[tuple[int, str, float, float]] = []
        stop = 0.0
        for index, step in enumerate(steps):
            path = sites[step.call.site].modules
            common = 0
            while common < min(len(path), len(open_)) and open_[common][0] == path[common]:
                common += 1
            while len(open_) > common:
                name, start = open_.pop()
                frames.append((len(open_), name, start, stop))
            for name in path[common:]:
                open_.append((name, played.host_start[index]))
            stop = played.host_stop[index]
        while open_:
            name, start = open_.pop()
            frames.append((len(open_), name, start, stop))
        for _, name, start, end in sorted(frames, key=lambda frame: frame[0]):
            self._row(EventKind.PYTHON, f"nn.Module: {name}", start, end)

    def _op(self, recorded: RecordedCall, start: float, stop: float) -> None:
        key = (recorded.call, recorded.recomputed, recorded.needed)
        encoded = self.encoded.get(key)
        if encoded is None:
            encoded = self.encoded[key] = self._encode(*key)
        self._row(EventKind.OP, recorded.call.name, start, stop, encoded=encoded)

    def _launch(self, name: str, start: float, stop: float) -> None:
        self.correlation += 1
        self._row(EventKind.RUNTIME, name, start, stop, correlation=self.correlation)

    def _device(self, kind: EventKind, name: str, start: float, stop: float, moved: int = ABSENT) -> None:
        self._row(kind, name, start, stop, correlation=self.correlation, device=0, stream=STREAM, moved=moved)

    def _row(
        self,
        kind: EventKind,
        name: str,
        start: float,
        stop: float,
        *,
        correlation: int = ABSENT,
        device: int = ABSENT,
        stream: int = ABSENT,
        moved: int = ABSENT,
        encoded: tuple[int, int, int, int, int] = (ABSENT,) * 5,
    ) -> None:
        index = self.names.setdefault(name, len(self.names))
        begin = round(start)
        length = max(round(stop) - begin, 1)
        self.rows.append((int(kind), index, begin, length, device, stream, correlation, moved, *encoded))

    def _encode(self, call: OpCall, recomputed: bool, needed: float) -> tuple[int, int, int, int, int]:
        dims, types, strides, concrete = zip(*map(_columns, call.inputs), strict=True) if call.inputs else ((),) * 4
        extra: dict[str, Any] = {"recomputed": True} if recomputed else {}
        if needed < 1.0:
            extra["needed"] = needed
        if call.outputs is not None:
            extra["outputs"] = [[list(output.shape), output.dtype, _steps(output)] for output in call.outputs]
        return (
            self._text(dims), self._text(types), self._text(strides), self._text(concrete),
            self._text(extra) if extra else ABSENT,
        )  # fmt: skip

    def _text(self, value: Any) -> int:
        return self.texts.setdefault(msgspec.json.encode(value), len(self.texts))

    def finish(self) -> EventTable:
        """The table, sorted by start, longest first."""
        columns = list(zip(*self.rows, strict=True))
        names = (
            "kind", "name", "start_ns", "duration_ns", "device", "stream", "correlation", "bytes",
            "dims", "types", "strides", "concrete", "extra",
        )  # fmt: skip
        arrays = {key: np.array(column, dtype=COLUMN_TYPES[key]) for key, column in zip(names, columns, strict=True)}
        order = np.lexsort((np.arange(len(self.rows)), -arrays["duration_ns"], arrays["start_ns"]))
        arrays = {key: column[order] for key, column in arrays.items()}
        arrays["start_ns"] = arrays["start_ns"] - arrays["start_ns"].min()
        count = len(order)
        missing = {
            key: np.full(count, ABSENT, dtype=COLUMN_TYPES[key]) for key in ("external_id", "sequence", "blocks")
        }
        return EventTable(
            **arrays,
            **missing,
            thread=np.zeros(count, dtype=COLUMN_TYPES["thread"]),
            names=tuple(self.names),
            threads=("host/1",),
            texts=tuple(self.texts),
        )


def kernel_name(call: RecordedCall) -> str:
    """The name of a predicted kernel: its operation, and the unit where the user's switches decide it."""
    return f"{call.call.name} (predicted)" + "".join(f" [{kernel}]" for kernel in call.call.kernels)


def _columns(value: Argument) -> tuple[Any, Any, Any, Any]:
    """(sizes, type, strides, printed value) of one argument, as in a trace; list items keep their types."""
    if isinstance(value, Tensor):
        return list(value.shape), value.dtype, _steps(value), ""
    if isinstance(value, TensorList):
        items = value.items
        return [list(item.shape) for item in items], [item.dtype for item in items], list(map(_steps, items)), ""
    return [], "Scalar", [], value.text


def _steps(tensor: Tensor) -> list[int]:
    return list(tensor.strides or ())


def _moved(call: RecordedCall) -> int:
    if not call.host_copy or not call.call.outputs:
        return ABSENT
    return int(write_bytes(call.call.outputs[0].shape, call.call.outputs[0].dtype))
