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
from types import CodeType, FrameType
from typing import Any

import torch

from gobrrr.model.recording import CallLine, OwnTime
from gobrrr.observe.installed import is_users
from gobrrr.observe.live.watches.line_times import LineTimes
from gobrrr.observe.live.watches.lines import function, spelled

MOST_CALLS = 2_000_000
"""Calls that are looked at, those within libraries too: a step with more is not followed further."""

MOST_LINES = 200_000
"""Calls that are written down."""

LONGEST = 160
"""Characters of a source line that are kept."""

STREAMS = frozenset(("write", "writelines", "flush", "read", "read1", "readinto", "readline", "readlines"))
"""Methods of file objects of which it is looked at what the file is connected to."""


TO_HOST = frozenset(("tolist", "numpy", "data_ptr"))
"""Methods of tensors with which the program reads their memory, or shares it, without an operation."""

TO_OTHERS = frozenset(("_to_dlpack", "_to_dlpack_versioned", "_cuda_toDLPack"))
"""The same for functions, of which the tensor is not known."""

KERNELS = f"triton{os.sep}runtime{os.sep}jit.py"
"""Where kernels are launched that no operation is dispatched for (`run`)."""


class CallWatch:
    """From `open()` to `close()` it writes down what the program's own functions call on this thread, and which file
    objects are pipes and sockets (`streams`, by address). `entered` and `called` tell one run of a function from the
    next: an address may be that of another frame before. `functions` is told of each call ("call") and each return
    ("return", with the result) of a function of the program. `reading` is told of each tensor whose memory is read
    without an operation, and how; None: of one that is not known.

    It uses the interpreter's profile function. Where the program has one of its own, nothing is written down.
    """

    def __init__(self) -> None:
        self.streams: dict[str, str] = {}
        self.entered: dict[int, int] = {}  # by the address of a running frame: a number of its own
        self.called: dict[int, tuple[int, int]] = {}  # and of its last call of C: a number, and the instruction
        self.following = False  # every call so far was told of
        self.reading: Callable[[Any, str], None] | None = None
        self.functions: Callable[[FrameType, str, Any], None] | None = None
        self._made: list[tuple[CodeType, str, int]] = []
        self._own: dict[CodeType, bool] = {}
        self._times = LineTimes(self._mine)
        self._yields: dict[CodeType, int] = {}
        self._left = MOST_CALLS
        self._thread: int | None = None

    def open(self) -> None:
        """Begin."""
        if self._thread is None and sys.getprofile() is None:
            self._thread = threading.get_ident()
            self.following = True
            self._times.open()
            sys.setprofile(self._see)

    def close(self) -> None:
        """Stop; the interpreter's profile function is what it was, where the program has not changed it since."""
        if self._thread == threading.get_ident():
            self._unfollow()
        self._thread = self.reading = self.functions = None

    def pause(self) -> bool:
        """What is called from now on is none of the program's; whether it was listened to until now."""
        if sys.getprofile() != self._see:
            return False
        sys.setprofile(None)
        self._times.stop()
        return True

    def resume(self) -> None:
        """The program's calls go on."""
        sys.setprofile(self._see)

    def found(self) -> tuple[CallLine, ...]:
        """The calls, in order."""
        spelt: dict[tuple[CodeType, int], str] = {}
        result = []
        for code, callee, line in self._made:
            for number in (code.co_firstlineno, line):
                if (code, number) not in spelt:
                    spelt[code, number] = spelled(code.co_filename, number, code.co_name)
            result.append(CallLine(caller=spelt[code, code.co_firstlineno], callee=callee, source=spelt[code, line]))
        return tuple(result)

    def own(self) -> tuple[OwnTime, ...]:
        """The functions with much time of their own."""
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
            if callee == "run" and self.reading is not None and frame.f_code.co_filename.endswith(KERNELS):
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
        """This thread has no function of ours."""
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
        """Whether a generator goes on behind a `yield`, and does not begin."""
        code = frame.f_code
        if code not in self._yields:
            offsets = [
                instruction.offset for instruction in dis.get_instructions(code) if instruction.opname == "YIELD_VALUE"
            ]
            self._yields[code] = min(offsets, default=sys.maxsize)
        return id(frame) in self.entered and frame.f_lasti >= self._yields[code]


def other_end(stream: object) -> str:
    """ "pipe" or "socket" where a file object is one; "" for all else, the program's own output and errors included."""
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
    """What stands on each line, "path/file.py(28): function"; lines that can't be read are left out."""
    found = {}
    for source in sources:
        head, _, _ = source.rpartition("): ")
        file, _, line = head.rpartition("(")
        text = linecache.getline(file, int(line)).strip() if line.isdigit() else ""
        if text:
            found[source] = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return found
