"""Detaches the profiler from the GPU after a recording.

CUPTI, which records on an NVIDIA GPU, stays attached to the process when torch's profiler has stopped. From then on
each launch takes longer: the steps of a training by a tenth to a third, to its end. With an environment variable set,
torch's profiler detaches CUPTI at the next CUDA call after it has stopped. Before CUDA 12.6 that crashed programs with
CUDA graphs, so there it is not done (pytorch#144455, pytorch#146604, kineto#1264).
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress

import torch

from gobrrr.observe.live.clock import wait

VARIABLE = "TEARDOWN_CUPTI"
SAFE = (12, 6)
"""The first CUDA with which detaching is safe in programs with CUDA graphs (pytorch#146604)."""
MOST_DETACHING_S = 0.5
"""Seconds to wait for detaching, which takes milliseconds; after that it goes on beside the program. Chosen."""
TASKS = "/proc/self/task"
"""Where Linux lists the threads of this process."""

STAYS = (
    "{why}: torch's profiler stays attached to the GPU in this process, so that each launch after the recording may "
    "take longer, to the end of the program (docs/live.md)"
)
"""The note on a profiler that stays attached."""


class Attachment:
    """Call `begin()` before torch's profiler starts, `stopping()` before it stops, and `end()` after that.

    `stays`: why the profiler stays attached; None where it does not, or never was. `end()` restores the variable.
    """

    def __init__(self, gpu: bool) -> None:
        self._before = os.environ.get(VARIABLE)
        self._threads: frozenset[str] = frozenset()
        self._wanted = gpu and torch.version.cuda is not None
        self.stays = _unsafe(self._before) if self._wanted else None

    def begin(self) -> None:
        """Make torch's profiler detach when it has stopped."""
        if self._detaches:
            os.environ[VARIABLE] = "1"

    def stopping(self) -> None:
        """The profiler is about to stop."""
        if self._detaches and os.environ.get(VARIABLE) != "1":
            self.stays = f"torch set {VARIABLE} to {os.environ.get(VARIABLE)}"
        self._threads = _threads()

    def end(self) -> None:
        """Wait until it is detached, and restore the variable."""
        if not self._wanted:
            return
        if self._detaches:
            self._detached()
        if self._before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = self._before

    @property
    def _detaches(self) -> bool:
        return self._wanted and self.stays is None

    def _detached(self) -> None:
        """Wait for the profiler's thread that detaches: a CUDA call starts it, and it reads the variable to its end."""
        until = time.perf_counter() + MOST_DETACHING_S
        wait()
        while _threads() - self._threads and time.perf_counter() < until:
            time.sleep(0.001)
            wait()


def _unsafe(variable: str | None) -> str | None:
    """Why the profiler must not be detached; None where it may be."""
    if variable not in (None, "1"):
        return f"{VARIABLE} is {variable}"
    version = str(torch.version.cuda)
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    return f"CUDA {version} is older than {SAFE[0]}.{SAFE[1]}" if numbers < SAFE else None


def _threads() -> frozenset[str]:
    """The threads of this process, native ones too; empty where the system does not list them."""
    with suppress(OSError):
        return frozenset(os.listdir(TASKS))
    return frozenset()
