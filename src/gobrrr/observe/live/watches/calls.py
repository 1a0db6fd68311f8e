"""Calls that the program's own functions make in one step, each with the line that makes it."""

from __future__ import annotations

import dis
import inspect
import linecache
import os
import stat
import sys
import threading
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType
from typing import Any

import torch

from gobrrr.model.recording import CallLine, OwnTime
from gobrrr.observe.installed import is_users
from gobrrr.observe.live.watches.line_times import LineTimes
from gobrrr.observe.live.watches.lines import function, spelled

MOST_FOLLOWED_CALLS = 2_000_000
"""Calls of one step that are looked at, those within libraries included; later ones are not. Chosen."""

MOST_LINES = 200_000
"""Calls of one step that are recorded; chosen."""

LONGEST_CODE_LINE = 160
"""Characters of a source line that are kept; chosen."""

STREAMS = frozenset(("write", "writelines", "flush", "read", "read1", "readinto", "readline", "readlines"))
"""Methods of file objects: when one is called, what the file is connected to is looked up."""

TO_HOST = frozenset(("tolist", "numpy", "data_ptr"))
"""Methods of tensors with which the program reads or shares their memory without an operation."""

TO_OTHERS = frozenset(("_to_dlpack", "_to_dlpack_versioned", "_cuda_toDLPack"))
"""Functions that share a tensor's memory without an operation. Which tensor it is, is not known."""

TRITON_LAUNCHER = f"triton{os.sep}runtime{os.sep}jit.py"
"""The file whose function `run` launches kernels without dispatching an operation."""


class CallWatch:
    """Records what the program's own functions call on this thread, from `open()` to `close()`.

    `streams`: the file objects that are pipes or sockets, by address. `entered` and `called` tell one run of a function
    from the next, since a later frame may get the same address. `functions` is called at each call ("call") and each
    return ("return", with the result) of a function of the program. `reading` is called with each tensor whose memory
    is read without an operation (None where the tensor is not known), and with the name of the call that reads it.

    Uses the interpreter's profile function. Records nothing where the program has set one itself.
    """

    def __init__(self) -> None:
        self.streams: dict[str, str] = {}
        self.entered: dict[int, int] = {}  # by the address of a running frame: a number for this run of it
        self.called: dict[int, tuple[int, int]] = {}  # by the same: its last call of C, as a number and an instruction
        self.following = False  # whether every call so far was reported
        self.reading: Callable[[Any, str], None] | None = None
        self.functions: Callable[[FrameType, str, Any], None] | None = None
        self._made: list[tuple[CodeType, str, int]] = []
        self._own: dict[CodeType, bool] = {}
        self._times = LineTimes(self._mine)
        self._yields: dict[CodeType, int] = {}
        self._left = MOST_FOLLOWED_CALLS
        self._thread: int | None = None

    def open(self) -> None:
        """Begin."""
        if self._thread is None and sys.getprofile() is None:
            self._thread = threading.get_ident()
            self.following = True
            self._times.open()
            sys.setprofile(self._see)

    def close(self) -> None:
        """Stop, and remove the profile function, unless the program has changed it since."""
        if self._thread == threading.get_ident():
            self._unfollow()
        self._thread = self.reading = self.functions = None

    def pause(self) -> bool:
        """Calls from now on are not the program's. Returns whether calls were being recorded."""
        if sys.getprofile() != self._see:
            return False
        sys.setprofile(None)
        self._times.stop()
        return True

    def resume(self) -> None:
        """Calls from now on are the program's again."""
        sys.setprofile(self._see)

    def found(self) -> tuple[CallLine, ...]:
        """The calls, in order."""

        @cache
        def text(code: CodeType, line: int) -> str:
            return spelled(code.co_filename, line, code.co_name)

        return tuple(
            CallLine(caller=text(code, code.co_firstlineno), callee=callee, source=text(code, line))
            for code, callee, line in self._made
        )

    def own(self) -> tuple[OwnTime, ...]:
        """The functions with much own time."""
        return self._times.found({(code, line, callee) for code, callee, line in self._made})

    def _see(self, frame: FrameType, event: str, argument: Any) -> None:
        self._times.stop()
        self._note(frame, event, argument)
        if event != "c_call":
            self._times.go(frame.f_back if event == "return" else frame)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        self._left -= 1
        if self._thread is None:  # it was closed from another thread, which can't take this thread's function away
            self._unfollow()
            return
        if self.functions is not None and event in ("call", "return") and self._mine(frame.f_code):
            self.functions(frame, event, argument)
        if event == "call":
            caller, callee = frame.f_back, frame.f_code.co_name
            if not (frame.f_code.co_flags & inspect.CO_GENERATOR and self._resumes(frame)):
                self.entered[id(frame)] = self._left
            if callee == "run" and self.reading is not None and frame.f_code.co_filename.endswith(TRITON_LAUNCHER):
                self.reading(None, callee)
        elif event == "c_call":
            caller, callee = frame, getattr(argument, "__name__", "")
            self.called[id(frame)] = self._left, frame.f_lasti
            if callee in STREAMS and (other := other_end(argument.__self__)):
                self.streams[hex(id(argument.__self__))] = other
            if self.reading is not None:
                if callee in TO_OTHERS:
                    self.reading(None, callee)
                elif callee in TO_HOST and isinstance(argument.__self__, torch.Tensor):
                    self.reading(argument.__self__, callee)
        else:
            return
        if caller is None:
            return
        if self._mine(caller.f_code) and len(self._made) < MOST_LINES:
            self._made.append((caller.f_code, function(callee), caller.f_lineno))
        if self._left <= 0:
            self.following = False
            self._unfollow()

    def _unfollow(self) -> None:
        """Remove our functions from this thread."""
        self._times.close()
        if sys.getprofile() == self._see:
            sys.setprofile(None)

    def _mine(self, code: CodeType) -> bool:
        """Whether a function is the program's."""
        mine = self._own.get(code)
        if mine is None:
            mine = self._own[code] = is_users(code.co_filename)
        return mine

    def _resumes(self, frame: FrameType) -> bool:
        """Whether a generator resumes after a `yield`, and does not start."""
        code = frame.f_code
        if code not in self._yields:
            yields = (step.offset for step in dis.get_instructions(code) if step.opname == "YIELD_VALUE")
            self._yields[code] = min(yields, default=sys.maxsize)
        return id(frame) in self.entered and frame.f_lasti >= self._yields[code]


def other_end(stream: object) -> str:
    """ "pipe" or "socket" where a file object is one; else "", also for standard output and standard error."""
    if type(stream).__module__ != "_io":
        return ""
    try:
        number = stream.fileno()  # type: ignore[attr-defined]
        mode = os.fstat(number).st_mode
    except (AttributeError, OSError, ValueError):
        return ""
    if number in (1, 2):
        return ""
    return "pipe" if stat.S_ISFIFO(mode) else "socket" if stat.S_ISSOCK(mode) else ""


def code_of(sources: set[str]) -> dict[str, str]:
    """The text of each line, given as "path/file.py(28): function"; lines that can't be read are left out."""
    found = {}
    for source in sources:
        head, _, _ = source.rpartition("): ")
        file, _, line = head.rpartition("(")
        text = linecache.getline(file, int(line)).strip() if line.isdigit() else ""
        if text:
            found[source] = text if len(text) <= LONGEST_CODE_LINE else f"{text[: LONGEST_CODE_LINE - 1]}…"
    return found
