"""Evidence of a live run without a run: a trace made by hand, and the record that an observer would give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.doors.pipeline import evidence_of
from gobrrr.model.live import Live, StepTimes
from gobrrr.observe.trace import read_trace
from tests.evidence import certain, watched
from tests.traces import Trace


def live_of(*, ns: tuple[float, ...] = (1e6,) * 10, **observed: Any) -> Live:
    """A record with steps of `ns`, and what `observed` names."""
    middle, mean = sorted(ns)[len(ns) // 2], sum(ns) / len(ns)
    times = StepTimes(wall_ns=middle, low_ns=middle, high_ns=middle, ns=ns, median_ns=middle, mean_ns=mean)
    return Live(kind="cuda", times=times, warmup_steps=3, profiled_steps=3, **observed)


def ran(folder: Path, body: Callable[[Trace], None], *, count: int = 3, **observed: Any) -> Evidence:
    """`count` steps of `body` as read with their Python frames, and a live run's record; the wall is certain."""
    trace = Trace()
    for number in range(count):
        with trace.step(number):
            body(trace)
    seen = certain(evidence_of(read_trace(str(trace.write(folder)), python=True).ranks[0])[0])
    return watched(seen, live=live_of(**observed))


def framed(trace: Trace, name: str, body: Callable[[], None]) -> None:
    """What `body` issues, under a Python frame of this name."""
    begin = trace.now
    trace.now += 1
    body()
    trace.now += 1
    trace._add("python_function", name, begin, trace.now - begin)
