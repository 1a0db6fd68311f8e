"""A step's body, three times, as the conditions receive it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gobrrr.analysis.evidence import Evidence
from gobrrr.model.diagnosis import Finding
from tests.analysis.tables import evidence
from tests.conftest import H100, H100_EXTRA
from tests.evidence import evidence_from
from tests.traces import Trace


def seen_of(folder: Path, body: Callable[[Trace], None], count: int = 3, **options: object) -> Evidence:
    """The evidence of `count` steps of `body`."""
    trace = Trace(**options)  # type: ignore[arg-type]
    for number in range(count):
        with trace.step(number):
            body(trace)
    return evidence_from(trace.write(folder))


def shipped(name: str) -> Evidence:
    """A trace of the package's own data."""
    return evidence(H100 / f"{name}.json.gz")


def extra(name: str) -> Evidence:
    """A trace of the tests' data: held-out ("holdout/NAME") or of two ranks."""
    return evidence(H100_EXTRA / f"{name}.json.gz")


def what_its_calls_lose(finding: Finding) -> Any:
    """What a remedy saves of a step that nothing but its device bounds: the time that its calls lose, at both ends.

    Within 2 %: the replay knows what little of it the host hides, and the pauses between calls that become one.
    """
    return pytest.approx(finding.at_stake_ns, rel=0.02)


def blocking_copy(trace: Trace, bytes_: int, us: float) -> None:
    """A batch from pageable memory as a profiler records it: the call lasts as long as the copy, a wait follows."""
    with trace.inside("aten::to"):
        end = trace._launch("cudaMemcpyAsync", "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", us, {"bytes": bytes_})
        call = next(event for event in reversed(trace.events) if event["name"] == "cudaMemcpyAsync")
        call["dur"] = end - call["ts"]
        trace.now = end
        trace.synchronize("cudaStreamSynchronize")
