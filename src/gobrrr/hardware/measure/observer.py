"""What the profiler adds to the host's time, by kind of recorded event: the same loops with and without it.

Each loop repeats one tiny call, so that the host is the bound. A round times a turn of each loop without the profiler
and under each of its modes, and rounds are repeated: differences are taken within a round, so that the host was equally
fast. A turn of a loop holds known numbers of events, which gives one unknown a loop:

    frames:       python                                 a call of an empty Python function
    views:        op + frames x python                   an operation that launches nothing
    annotations:  annotation + frames x python           an empty `record_function`
    kernels:      op + runtime + frames x python         an operation that launches one kernel (GPUs only)

Frames are recorded only with stacks. Python's own profile hook counts how many a turn has; like the profiler, it also
sees calls of C functions.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr.hardware.measure.device import Device
from gobrrr.hardware.measure.stats import quantity
from gobrrr.hardware.measure.timing import Call, CallTimer
from gobrrr.model.machine import RECORDING_MODES
from gobrrr.model.measured import MeasuredFigure, Quantity, Skipped

OBSERVER_GROUP = "observer"
LOOP_TURNS = 200
"""Turns of a loop: a GPU's queue takes five times as many launches before one blocks the host."""
TRIES = 3
OBSERVER_ROUNDS, LEAST_OBSERVER_ROUNDS = 7, 3
OFF = "off"
CHATTER = (b"USDT:", b"ERROR: External init callback must run in same thread")
"""How the lines begin that torch's profiler itself writes to standard error."""
EMPTY_ANNOTATION = "gobrrr calibration"
"""The name of the empty annotation."""
LAUNCH_CALL = re.compile(r"^(cuda|hip|cu)\w*Launch\w*Kernel", re.I)
"""Calls of a driver that launch a kernel."""
OBSERVER_LOOP = f"{LOOP_TURNS} turns of a tiny call"
"""What the figures were measured at."""

Loops = Mapping[str, Call]
Samples = Mapping[str, Mapping[str, Sequence[float]]]
"""Seconds of a turn: by mode (`OFF`: without the profiler), by loop, one a round."""


class NoEventsError(GobrrrError):
    """The profiler did not record what the loops do; the text says what."""


def _nothing() -> None:
    return None


def loops(device: Device) -> dict[str, Call]:
    """The loops of a device by name, each of one turn."""
    torch = device.torch
    annotate = torch.profiler.record_function
    here = torch.rand(16, device=device.spec)

    def annotation() -> None:
        with annotate(EMPTY_ANNOTATION):
            pass

    found: dict[str, Call] = {"frames": _nothing, "views": lambda: here.view(4, 4), "annotations": annotation}
    if not device.is_cpu:
        found["kernels"] = lambda: here.add_(1.0)
    return found


def measure_observer(bench: CallTimer, end_s: float) -> list[MeasuredFigure | Skipped]:
    """Seconds that recording one event adds to the host's time, by kind and mode ("op, record_shapes").

    What did not come out above zero, and a mode of which fewer than `LEAST_OBSERVER_ROUNDS` rounds fitted in before
    `end_s`, is reported as skipped. Raises NoEventsError where the profiler does not record.
    """
    calls = loops(bench.device)
    for call in calls.values():
        call()  # the first one imports what it needs
    frames = {name: frames_of(call) for name, call in calls.items()}
    samples = sampled(bench, calls, end_s)
    found: list[MeasuredFigure | Skipped] = []
    unknown: dict[str, list[str]] = {}
    for mode in RECORDING_MODES:
        if len(samples[mode]["views"]) < LEAST_OBSERVER_ROUNDS:
            found.append(Skipped(what=f"the profiler's cost, {mode}", why="too few rounds fitted into the time"))
            continue
        for kind, amount in costs(mode, samples, frames).items():
            if amount.value > 0:
                found.append(
                    MeasuredFigure(
                        group=OBSERVER_GROUP, name=f"{kind}, {mode}", unit="s", amount=amount, at=OBSERVER_LOOP
                    )
                )
            else:
                unknown.setdefault(kind, []).append(mode)
    for kind, modes in unknown.items():
        what = f"the profiler's cost of one {kind} ({', '.join(modes)})"
        found.append(Skipped(what=what, why="less than the noise of this host"))
    return found


def sampled(bench: CallTimer, calls: Loops, end_s: float) -> Samples:
    """The host's seconds of a turn: by mode, by loop, one a round. The first round warms up and is dropped.

    The profiler itself is set up within the warm-up: on a GPU that can take seconds. Raises NoEventsError where it does
    not record.
    """
    found: dict[str, dict[str, list[float]]] = {mode: {name: [] for name in calls} for mode in (OFF, *RECORDING_MODES)}
    for number in range(OBSERVER_ROUNDS + 1):
        began = bench.now()
        for mode, by_loop in found.items():
            with nullcontext() if mode == OFF else recording(bench.device, mode) as profiler:
                for name, call in calls.items():
                    took = _turn(bench, call)
                    if number:
                        by_loop[name].append(took)
            if number == 0 and mode != OFF:
                _must_hold(profiler, calls)
        if number and bench.now() + (bench.now() - began) > end_s:
            break
    return found


@contextmanager
def recording(device: Device, mode: str) -> Iterator[Any]:
    """torch's profiler in one of the modes; the thread's profile function is given back, which stacks take away."""
    torch, switches = device.torch, mode.split("+")
    activities = [torch.profiler.ProfilerActivity.CPU]
    if not device.is_cpu:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    profiler = torch.profiler.profile(
        activities=activities, record_shapes="record_shapes" in switches, with_stack="with_stack" in switches
    )
    hook = sys.getprofile()
    device.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one cycle, its events cleared at its end, no schedule: all as wanted
        with _without_chatter():
            profiler.__enter__()
        try:
            yield profiler
            device.wait()
        finally:
            with _without_chatter():
                profiler.__exit__(None, None, None)
            if callable(hook) and sys.getprofile() is not hook:
                sys.setprofile(hook)


@contextmanager
def _without_chatter() -> Iterator[None]:
    """Lines that the profiler writes to standard error about itself are left out; all others come through."""
    with ExitStack() as stack:
        try:
            held = stack.enter_context(tempfile.TemporaryFile())
            saved = os.dup(2)
        except OSError:  # no room for a file, or standard error is closed
            yield
            return
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            held.seek(0)
            for line in held.read().splitlines(keepends=True):
                if not line.startswith(CHATTER):
                    with suppress(OSError):  # its reader is gone
                        os.write(2, line)


def _turn(bench: CallTimer, call: Call) -> float:
    """The host's seconds of one turn, the least of `TRIES` loops: what else the host does only makes one longer.

    The device is idle before a loop and waited for after it, untimed.
    """
    least = float("inf")
    for _ in range(TRIES):
        bench.device.wait()
        began = bench.now()
        for _ in range(LOOP_TURNS):
            call()
        least = min(least, bench.now() - began)
        bench.device.wait()
    return least / LOOP_TURNS


def _must_hold(profiler: Any, calls: Loops) -> None:
    """The events that the arithmetic counts on are there, one a turn."""
    wanted = {"views": "aten::view", "annotations": EMPTY_ANNOTATION, "kernels": "aten::add_"}
    seen = {str(average.key): int(average.count) for average in profiler.key_averages()}
    missing = [event for name, event in wanted.items() if name in calls and seen.get(event, 0) < LOOP_TURNS]
    if "kernels" in calls and sum(count for key, count in seen.items() if LAUNCH_CALL.search(key)) < LOOP_TURNS:
        missing.append("launches of kernels")
    if missing:
        raise NoEventsError(f"the profiler does not record all {' and '.join(missing)} here")


def frames_of(call: Call) -> int:
    """Calls of Python and C functions in one turn, as Python's profile hook sees them."""
    count = 0

    def hook(_: Any, what: str, __: Any) -> None:
        nonlocal count
        count += what in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(hook)
    try:
        call()
    finally:
        sys.setprofile(before)
    return count - 1  # the last one is of `sys.setprofile` itself


def costs(mode: str, samples: Samples, frames: Mapping[str, int]) -> dict[str, Quantity]:
    """Seconds an event by kind, solved in the order in which each needs those before it; noise may be below zero. Pure.

    `frames`: calls of functions in one turn of each loop. Raises ValueError where there are no samples.
    """
    off, on = samples[OFF], samples[mode]
    added = {name: [b - a for a, b in zip(off[name], on[name], strict=False)] for name in on}
    found: dict[str, Quantity] = {}
    python = 0.0
    if "with_stack" in mode.split("+"):
        found["python"] = quantity([sample / frames["frames"] for sample in added["frames"]])
        python = max(found["python"].value, 0.0)
    op = quantity([sample - frames["views"] * python for sample in added["views"]])
    found["op"] = op
    found["annotation"] = quantity([sample - frames["annotations"] * python for sample in added["annotations"]])
    if "kernels" in added:
        less = frames["kernels"] * python + max(op.value, 0.0)
        found["runtime"] = quantity([sample - less for sample in added["kernels"]])
    return found
