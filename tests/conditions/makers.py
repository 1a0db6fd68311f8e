"""A step's body, three times, as the conditions receive it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.diagnosis import Finding
from gobrrr.model.recording import Dependence, RecordedCall, RecordedLoop, Recording, Site
from gobrrr.model.work import OpCall
from tests.analysis.tables import evidence
from tests.conftest import H100, H100_EXTRA
from tests.evidence import evidence_from, watched
from tests.traces import Trace


def seen_of(folder: Path, body: Callable[[Trace], None], count: int = 3, **options: object) -> Evidence:
    """The evidence of `count` steps of `body`."""
    trace = Trace(**options)  # type: ignore[arg-type]
    for number in range(count):
        with trace.step(number):
            body(trace)
    return evidence_from(trace.write(folder))


def followed(
    evidence: Evidence,
    turns: int,
    names: Sequence[str],
    depends: Dependence = "no",
    within: str = "",
    again: int = 0,
    free: Sequence[int] = (),
) -> Evidence:
    """The same as a live run saw it: a loop of so many turns, each of these operations, at train.py:12; `again` bytes
    are read by turns after others; `free`: the operations of each turn, by position, that need no other turn."""
    calls = tuple(RecordedCall(OpCall(name=one), "forward", 0) for _ in range(turns) for one in names)
    begins = tuple(range(0, len(calls) + 1, len(names)))
    products = tuple(begin + one for begin in begins[:-1] for one in free)
    read = turns * names.count("aten::_local_scalar_dense")
    carried = names[0] if depends in ("yes", "layers") else ""
    seen = Recording(
        target="", calls=calls, sites=(Site(user="train.py(13): step"),), peak_bytes=0, start_bytes=0, module_calls=0,
        on_cpu=False,
        loops=(RecordedLoop("train.py(12): step", begins, depends, carried, within, read, again, products),),
    )  # fmt: skip
    return watched(evidence, seen=seen)


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


def item_by_item(trace: Trace, items: int = 64, made_us: float = 0.0) -> None:
    """A loader's turn in this thread: `items` picked from a tensor and stacked; each takes `made_us` more to make."""
    with trace.annotated("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
        for _ in range(items):
            trace.view("aten::select", [4096, 32], ["0", "7"], 8.0)
            trace.now += made_us
        with trace.inside("aten::stack"):
            for _ in range(items):
                trace.view("aten::unsqueeze", [32], ["0"], 4.0)
            trace.view("aten::cat", [items, 32], ["0"], 20.0)


def indexing(folder: Path, items: int = 64, made_us: float = 0.0) -> Evidence:
    """Steps that load their batch so, and do little else."""
    trace = Trace()
    for number in range(4):
        with trace.step(number):
            item_by_item(trace, items, made_us)
            trace.copy_in(2_000_000, 50.0, pinned=True)
            trace.op("aten::mm", [[512, 512], [512, 512]], 20.0)
            trace.synchronize()
    return evidence_from(trace.write(folder))
