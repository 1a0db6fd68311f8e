from __future__ import annotations

import gc
from collections.abc import Iterator
from time import perf_counter_ns

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gobrrr.observe.live.watches.collector import CollectorWatch  # noqa: E402


@pytest.fixture
def watch() -> Iterator[CollectorWatch]:
    one = CollectorWatch()
    one.open()
    gc.disable()
    yield one
    gc.enable()
    one.close()


def test_each_run_falls_into_its_step(watch: CollectorWatch) -> None:
    before = sum(one["collections"] for one in gc.get_stats())
    watch.window_begins()
    for at in range(6):
        if at in (2, 5):
            gc.collect()
        if at == 3:
            gc.collect(0)
        watch.step(at)
    watch.window_ends(6)
    made = sum(one["collections"] for one in gc.get_stats()) - before

    found = watch.found()
    assert found is not None
    assert len(found.runs) == made == 3
    assert [(one.step, one.generation) for one in found.runs] == [(2, 2), (3, 0), (5, 2)]
    assert found.steps == 6


def test_the_time_is_that_of_the_pause(watch: CollectorWatch) -> None:
    kept = [[at] for at in range(300_000)]
    watch.window_begins()
    began = perf_counter_ns()
    gc.collect()
    outside = perf_counter_ns() - began
    watch.window_ends(1)

    found = watch.found()
    assert found is not None
    assert 0.5 * outside <= found.ns_per_step <= outside
    assert found.tracked is not None
    assert len(kept) <= found.tracked <= len(gc.get_objects()) * 1.1


def test_a_collector_that_is_off_and_did_not_run(watch: CollectorWatch) -> None:
    gc.collect()  # before the window
    watch.window_begins()
    watch.step(0)
    watch.window_ends(1)
    gc.collect()  # after it

    found = watch.found()
    assert found is not None
    assert found.runs == ()
    assert not found.enabled
    assert found.ns_per_step == 0


def test_frozen_objects_are_counted(watch: CollectorWatch) -> None:
    gc.freeze()
    try:
        watch.window_begins()
        watch.window_ends(1)
        found = watch.found()
        assert found is not None
        assert found.frozen == gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_the_callbacks_are_the_programs_again() -> None:
    before = list(gc.callbacks)
    watch = CollectorWatch()
    watch.open()
    watch.open()
    assert len(gc.callbacks) == len(before) + 1
    watch.close()
    watch.close()
    assert gc.callbacks == before


def test_nothing_is_found_without_a_window() -> None:
    watch = CollectorWatch()
    watch.open()
    watch.close()
    assert watch.found() is None
