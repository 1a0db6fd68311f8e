"""A few steps under torch's profiler: marked, with shapes and stacks, and read back as a trace is."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, record_function
from torch.profiler import profile as torch_profile

from gobrrr.errors import InputError
from gobrrr.model.live import ProfilerCost
from gobrrr.model.profile import RankProfile
from gobrrr.model.tree import STEP_MARK
from gobrrr.observe.file import read_file
from gobrrr.observe.live.apart import apart
from gobrrr.observe.live.attachment import STAYS, Attachment
from gobrrr.observe.live.clock import on_gpu, wait

CALIBRATION = "gobrrr calibration"
"""The annotation around operations on one element: what recording an operation adds to its own duration."""

MEMORY_FOLDER = "/dev/shm"
"""Linux's folder of files in memory: for a profile that can't be written to the folder for temporary files."""

TIMED_CALLS = 200
"""Calls in a timed loop; chosen."""
PROFILER_CHATTER = (b"USDT:", b"ERROR: External init callback must run in same thread")
"""How the lines begin that torch's profiler writes to standard error about itself."""


@dataclass(frozen=True, kw_only=True)
class Loops:
    """The time of an operation on one element, and of an empty Python function, called from Python, in ns."""

    op_ns: float
    python_ns: float


class ProfilerRun:
    """Runs the profiler over some steps: `begin`, then `mark` at the start of each step that counts, then `end`."""

    def __init__(self) -> None:
        self._profiler: Any = None
        self._open: Any = None
        self._count = 0
        self._hook: Any = None
        self.gpu = False
        self.attachment: Attachment | None = None
        self.loops: Loops | None = None

    def begin(self) -> None:
        """Start recording. The steps that follow are not marked yet: the profiler's own start falls into the first."""
        self.gpu = on_gpu()
        activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if self.gpu else [])
        self._hook = sys.getprofile()
        wait()
        self.attachment = Attachment(self.gpu)
        self.attachment.begin()
        self._profiler = torch_profile(activities=activities, record_shapes=True, with_stack=True)
        with apart(), record_function("gobrrr"):
            pass  # the first annotation imports what it needs: not in a step that counts
        with _without_chatter(), warnings.catch_warnings():
            # there is one cycle only; `acc_events`, which torch advises, would read all events in Python at once
            warnings.filterwarnings("ignore", message=".*Profiler clears events")
            self._profiler.__enter__()

    def mark(self) -> None:
        """A step that counts begins; the one before it ends."""
        self._close_step()
        self._open = record_function(f"{STEP_MARK}#{self._count}")
        with apart():
            self._open.__enter__()
        self._count += 1

    def end(self) -> None:
        """Stop recording; the last step ends."""
        self._close_step()
        if self._profiler is None:
            return
        profiler, self._profiler = self._profiler, None
        wait()
        with apart(), record_function(CALIBRATION):
            self.loops = time_loops()
        self._stop(profiler)
        self._kept = profiler

    def abandon(self) -> None:
        """Stop recording, also after an exception of the step, and drop what was recorded."""
        self._close_step()
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            self._stop(profiler)

    def read(self, notes: list[str]) -> RankProfile:
        """What was recorded. Raises InputError where the profiler could not write it."""
        if self.attachment is not None and self.attachment.stays is not None:
            notes.append(STAYS.format(why=self.attachment.stays))
        before = len(notes)
        try:
            return self._read(notes, None)
        except (OSError, InputError) as error:
            del notes[before:]
            with suppress(OSError, InputError, RuntimeError):  # the folder is full, or the program has removed it
                return self._read(notes, MEMORY_FOLDER)
            where = tempfile.gettempdir() if tempfile.tempdir else "a temporary folder"
            raise InputError(f"the profile can't be written to {where} and read back (no room?): {error}") from None

    def _read(self, notes: list[str], folder: str | None) -> RankProfile:
        with tempfile.TemporaryDirectory(prefix="gobrrr-", dir=folder) as within:
            path = Path(within) / "trace.json"
            with _without_chatter():
                self._kept.export_chrome_trace(os.fspath(path))
            return read_file(os.fspath(path), notes, python=True, progress=None)

    def _close_step(self) -> None:
        if self._open is not None:
            with apart():
                self._open.__exit__(None, None, None)
            self._open = None

    def _stop(self, profiler: Any) -> None:
        """Stop recording. Errors in torch's own tables of the events do not matter here."""
        hook, self._hook = self._hook, None
        assert self.attachment is not None  # it began with the profiler
        self.attachment.stopping()
        try:
            with _without_chatter(), suppress(UnicodeDecodeError):  # a name is not UTF-8; the results exist by then
                profiler.__exit__(None, None, None)
        finally:
            self.attachment.end()
            _hooked(hook)


def _hooked(hook: Any) -> None:
    """Give the program its profile function back: torch's profiler replaces the thread's, and leaves none."""
    if hook is None or sys.getprofile() is not None:
        return
    if callable(hook):
        sys.setprofile(hook)
    elif hasattr(hook, "enable"):
        hook.enable()  # cProfile's, which Python can't call


def _tiny_ops() -> None:
    tensor = torch.ones(1, device="cpu")  # whatever the program's default device is
    for _ in range(TIMED_CALLS):
        torch.add(tensor, tensor)


def _nothing() -> None:
    return None


def _tiny_calls() -> None:
    for _ in range(TIMED_CALLS):
        _nothing()


def time_loops() -> Loops:
    """The medians of five loops each, with the profiler where it is on."""
    with apart(), torch.no_grad():
        _tiny_ops()
        _tiny_calls()
        return Loops(
            op_ns=median(_timed(_tiny_ops) for _ in range(5)), python_ns=median(_timed(_tiny_calls) for _ in range(5))
        )


def _timed(loop: Callable[[], None]) -> float:
    begin = time.perf_counter_ns()
    loop()
    return (time.perf_counter_ns() - begin) / TIMED_CALLS


@contextmanager
def _without_chatter() -> Iterator[None]:
    """Leaves out the lines that the profiler writes to standard error about itself; all others are written."""
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
                if not line.startswith(PROFILER_CHATTER):
                    with suppress(OSError):  # the reader of a pipe is gone
                        os.write(2, line)


def profiler_cost(without: Loops | None, with_it: Loops | None) -> ProfilerCost | None:
    """What the profiler adds to a Python call, and to an operation beyond the Python call that makes it."""
    if without is None or with_it is None:
        return None
    python = max(with_it.python_ns - without.python_ns, 0.0)
    return ProfilerCost(op_ns=max(with_it.op_ns - without.op_ns - python, 0.0), python_ns=python)
