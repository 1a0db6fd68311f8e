"""A step that is timed while other processes have the processors: the answer says so first, and is less certain."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gobrrr.analysis.answer import caveats  # noqa: E402
from gobrrr.model.contention import Contention  # noqa: E402
from gobrrr.model.device import ACCELERATOR, PROCESSOR  # noqa: E402
from gobrrr.model.live import Threads  # noqa: E402
from gobrrr.observe.live.watches import threads  # noqa: E402
from gobrrr.report.html import render as html  # noqa: E402
from gobrrr.report.terminal import render  # noqa: E402
from gobrrr.system.reading import ProcessorReading, System  # noqa: E402
from tests.live.look import diagnosed  # noqa: E402

BUSY = Contention(seconds=2.0, processors=2, others=1.4, waited=0.35)
QUIET = Contention(seconds=2.0, processors=2, others=0.02, waited=0.01)
FEW = {"window": 3, "profiled": 2, "warmup": 1}


def step() -> None:
    x = torch.ones(200, 200)
    for _ in range(20):
        x = (x @ x).relu() * 1e-3


class Told(System):
    """A system that says of the window what a test wants."""

    def __init__(self, contention: Contention) -> None:
        super().__init__()
        object.__setattr__(self, "contention", contention)

    def since(self, before: ProcessorReading) -> Contention:
        return self.contention  # type: ignore[attr-defined, no-any-return]


def test_the_first_lines_say_that_others_had_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "System", lambda: Told(BUSY))
    found = diagnosed(step, **FEW)
    assert found.live is not None
    assert found.live.threads is not None
    assert found.live.threads.contention == BUSY
    assert found.certainty == "low"
    said = " ".join(" ".join(render(found).splitlines()[:7]).split())
    assert "! The machine was busy while the step was timed: other processes had 1.4 of the 2 processors, and" in said
    assert (
        "waited 35 % of the time for a processor. On a quiet machine the step takes less time and may have another "
        "bottleneck." in said
    )
    assert "The machine was busy while the step was timed" in html(found)


def test_a_quiet_machine_is_not_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "System", lambda: Told(QUIET))
    found = diagnosed(step, **FEW)
    assert "busy" not in render(found)
    assert not [one for one in found.caveats if "busy" in one]


def test_a_step_that_takes_longer_without_the_profiler_than_with_it_is_remarked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It sleeps only where nobody records it: the timed steps are 20 ms longer than those that the budget is of, and at
    least three times as long, however slow the machine."""
    monkeypatch.setattr(threads, "System", lambda: Told(QUIET))

    def other_work() -> None:
        began = time.perf_counter()
        step()
        if not torch.autograd._profiler_enabled():
            time.sleep(max(0.02, 2 * (time.perf_counter() - began)))

    found = diagnosed(other_work, **FEW)
    assert found.certainty == "low"
    [said] = [one for one in found.caveats if "longer without the profiler" in one]
    assert "the two ran different work" in said
    assert " ! The step took longer" in render(found)


def threads_of(contention: Contention | None, intra: int = 2) -> Threads:
    return Threads(intra=intra, inter=1, usable=2, contention=contention)


@pytest.mark.parametrize(
    ("contention", "intra", "lost"),
    [
        (BUSY, 2, 0.35),
        (QUIET, 2, 0.01),
        (None, 2, 0.0),
        (Contention(seconds=0.01, processors=2, waited=0.4), 2, 0.4),  # too short to tell what others had
        (Contention(seconds=0.01, processors=2, waited=0.4), 8, 0.0),  # its own threads take turns
        (Contention(seconds=2.0, processors=2, others=0.05, waited=0.8), 8, 0.05),
    ],
)
def test_what_a_program_lost_to_others(contention: Contention | None, intra: int, lost: float) -> None:
    found = threads_of(contention, intra)
    assert caveats.lost(found) == lost
    assert bool(caveats.of_step(found, PROCESSOR)) == (lost >= 0.1)


def test_a_host_is_slower_where_a_gpu_computes() -> None:
    [said] = caveats.of_step(threads_of(BUSY), ACCELERATOR)
    assert said.endswith("The host's work took longer because of that.")
    assert caveats.of_step(None, ACCELERATOR) == []


SPIN = "import time; end = time.time() + 60\nwhile time.time() < end: pass"


@contextmanager
def a_stranger_on_one_processor() -> Iterator[None]:
    """This process and a busy one that it did not start share one processor."""
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(usable)})
    started = subprocess.run(
        ["sh", "-c", '"$0" -c "$1" >/dev/null 2>&1 & echo $!', sys.executable, SPIN], capture_output=True, check=True
    )
    try:
        yield
    finally:
        os.kill(int(started.stdout), signal.SIGKILL)
        os.sched_setaffinity(0, usable)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="needs Linux's own numbers")
def test_a_real_rival_is_in_the_verdict() -> None:
    def longer(x: Any = torch.ones(400, 400)) -> None:  # noqa: B008
        for _ in range(30):
            x = (x @ x).relu() * 1e-4

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with a_stranger_on_one_processor():
            found = diagnosed(longer)
    finally:
        torch.set_num_threads(before)
    assert found.certainty in ("medium", "low")
    assert "other processes had" in found.caveats[0] or "waited" in found.caveats[0]
