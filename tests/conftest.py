"""Where the data of the tests is, and what is skipped where."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from msgspec import structs

from gobrrr.analysis.replay import predictive
from gobrrr.analysis.replay.fitted import fitted
from gobrrr.guarded import STRICT
from tests.once import SHARED
from tests.spread import examples

settings.register_profile(
    "any machine", deadline=None, max_examples=examples(100)
)  # a shared one stalls for longer than any example takes
settings.load_profile("any machine")

ROOT = Path(__file__).resolve().parent.parent
H100 = ROOT / "src" / "gobrrr" / "data" / "h100"
"""The shipped H100 traces, with truth.json, labels.json, ddp_truth.json and article.json."""
H100_EXTRA = ROOT / "tests" / "data" / "h100"
"""ncu.csv and the traces of two ranks."""
PUBLIC_TRACES = ROOT.parent / "shared" / "public_traces"
"""Traces of public repositories; never part of this one."""
INDEXES = ("execution_details.json",)
"""Files among them that list traces and are none."""


def public_files() -> list[Path]:
    """The public traces that are beside this checkout; none where they are not."""
    found = [*PUBLIC_TRACES.rglob("*.json"), *PUBLIC_TRACES.rglob("*.json.gz")]
    return sorted(path for path in found if path.is_file() and path.name not in INDEXES)


def pytest_configure() -> None:
    """A part of an answer that fails, fails the test: here and in every process that a test starts."""
    os.environ[STRICT] = "1"


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def h100() -> Path:
    """The folder of the shipped H100 traces."""
    return H100


@pytest.fixture(scope="session")
def h100_extra() -> Path:
    """The folder of ncu.csv and the DDP traces."""
    return H100_EXTRA


@pytest.fixture(scope="session")
def public_traces() -> Path:
    """The folder of public traces; skips the test where it is absent."""
    if not PUBLIC_TRACES.is_dir():
        pytest.skip("the public traces are not beside this checkout (../shared/public_traces)")
    return PUBLIC_TRACES


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What was collected is not visited again: neither by the garbage collector nor by what looks for objects."""
    gc.disable()  # nothing of it is garbage
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a device where there is none; torch is imported only when such a test was collected."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not _device():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs torch and a CUDA or ROCm device"))


def _device() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


@pytest.fixture(scope="session", autouse=True)
def no_measured_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ceilings that were measured on the developer's own machine don't change the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_by_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where the tests run in several processes, what one makes for all is in a folder beside theirs."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    folder = tmp_path_factory.getbasetemp().parent / "shared"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SHARED, str(folder))
        yield


@pytest.fixture
def replay_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predictions are the replay's own, without what was fitted beside it: for figures that follow from a timeline."""
    monkeypatch.setattr(predictive, "fitted", lambda: structs.replace(fitted(), spreads=[]))
