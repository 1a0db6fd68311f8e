"""After a recording the GPU is let go of where that is safe; where it is not, the answer says so."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gobrrr.observe.live import attachment  # noqa: E402
from gobrrr.observe.live.attachment import VARIABLE, Attachment  # noqa: E402
from gobrrr.observe.live.options import WatchOptions  # noqa: E402
from gobrrr.observe.live.recorder import ProfilerRun  # noqa: E402
from gobrrr.observe.live.watcher import Watcher  # noqa: E402


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def cuda(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    monkeypatch.setattr(torch.version, "cuda", version)


@pytest.mark.parametrize("version", ["12.6", "12.8", "13.0"])
@pytest.mark.parametrize("before", [None, "1"])
def test_the_profiler_is_told_to_detach_and_the_variable_is_put_back(
    monkeypatch: pytest.MonkeyPatch, version: str, before: str | None
) -> None:
    cuda(monkeypatch, version)
    if before is not None:
        monkeypatch.setenv(VARIABLE, before)
    one = Attachment(gpu=True)
    one.begin()
    assert os.environ[VARIABLE] == "1"
    one.stopping()
    assert os.environ[VARIABLE] == "1"
    one.end()
    assert os.environ.get(VARIABLE) == before
    assert one.stays is None


@pytest.mark.parametrize(
    ("version", "before", "why"),
    [("12.4", None, "CUDA 12.4 is older than 12.6"), ("11.8", "1", "CUDA 11.8"), ("13.0", "0", f"{VARIABLE} is 0")],
)
def test_where_it_is_not_safe_or_not_wanted_it_stays_and_says_why(
    monkeypatch: pytest.MonkeyPatch, version: str, before: str | None, why: str
) -> None:
    cuda(monkeypatch, version)
    if before is not None:
        monkeypatch.setenv(VARIABLE, before)
    one = Attachment(gpu=True)
    one.begin()
    assert os.environ.get(VARIABLE) == before
    one.stopping()
    one.end()
    assert os.environ.get(VARIABLE) == before
    assert one.stays is not None
    assert why in one.stays


def test_torch_may_know_better(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda(monkeypatch, "13.0")
    one = Attachment(gpu=True)
    one.begin()
    os.environ[VARIABLE] = "0"  # as torch's profiler does where the program's compiler makes CUDA graphs
    one.stopping()
    one.end()
    assert one.stays == f"torch set {VARIABLE} to 0"
    assert VARIABLE not in os.environ


@pytest.mark.parametrize(("version", "gpu"), [(None, True), ("12.4", False)])
def test_without_cuda_there_is_nothing_to_detach(
    monkeypatch: pytest.MonkeyPatch, version: str | None, gpu: bool
) -> None:
    cuda(monkeypatch, version)
    one = Attachment(gpu=gpu)
    one.begin()
    assert VARIABLE not in os.environ
    one.stopping()
    one.end()
    assert one.stays is None


def test_its_thread_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda(monkeypatch, "13.0")
    lists = iter([{"1"}, {"1", "2"}, {"1", "2"}, {"1"}])
    waits: list[int] = []
    monkeypatch.setattr(attachment, "_threads", lambda: frozenset(next(lists)))
    monkeypatch.setattr(attachment, "wait", lambda: waits.append(1))
    one = Attachment(gpu=True)
    one.begin()
    one.stopping()
    one.end()
    assert len(waits) == 3  # a call of CUDA's each: at one of them it is detached


def test_an_answer_says_what_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda(monkeypatch, "12.4")
    made = ProfilerRun()
    made.begin()
    made.mark()
    torch.ones(1).add(1)
    made.end()
    made.attachment = Attachment(gpu=True)
    notes: list[str] = []
    made.read(notes)
    assert any("CUDA 12.4 is older than 12.6: torch's profiler stays attached" in one for one in notes)


# -- on a GPU: nothing stays behind

MOST_SLOWER = 1.10
"""Without detaching launches are a third slower; blocks of the same step differ by some per cent."""
BLOCKS, LAUNCHES = 15, 2_000


def launches_us(one: Any) -> float:
    """What a launch takes the host: the fastest of some blocks."""

    def block() -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(LAUNCHES):
            one.add_(1)
        took = time.perf_counter() - begin
        torch.cuda.synchronize()
        return took / LAUNCHES * 1e6

    return min(block() for _ in range(BLOCKS))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="a GPU is detached from")
def test_nothing_stays_behind() -> None:
    one = torch.ones(1, device="cuda")
    launches_us(one)
    before, after = launches_us(one), []
    for _ in range(3):
        watcher = Watcher(options=WatchOptions(warmup=1, window=2, profiled=1, look=False))
        watcher.open()
        while not watcher.done:
            for _ in range(20):
                one.add_(1)
            watcher.boundary()
        watcher.close()
        assert VARIABLE not in os.environ
        after.append(launches_us(one))
    if Attachment(gpu=True).stays is None:
        assert min(after) < MOST_SLOWER * before, (before, after)  # hosts have slow phases; what stays is always there
