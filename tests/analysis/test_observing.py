"""What the code around a live step takes between two steps belongs to none of them."""

from __future__ import annotations

import numpy as np
import pytest

from gobrrr.analysis.budget.anchor import anchor_processor
from gobrrr.analysis.budget.observing import observing
from gobrrr.analysis.events.links import link
from gobrrr.analysis.events.observer import NO_COST
from gobrrr.analysis.events.steps import find_steps
from gobrrr.model.events import EventKind
from tests.analysis.tables import Row, table

PULL, EXIT = "gobrrr/observe/live/pull.py(65): pull", "site-packages/contextlib.py(141): __exit__"


def stretches(inner: str, kind: EventKind = EventKind.PYTHON) -> list[bool]:
    """By hand: a frame of the program from 0 to 100, one of ours from 10 to 90, `inner` in it from 20 to 40."""
    events = table(
        [
            Row(EventKind.PYTHON, "train.py(3): main", 0, 100),
            Row(EventKind.PYTHON, PULL, 10, 80),
            Row(kind, inner, 20, 20),
        ]
    )
    at = np.unique(np.concatenate([events.start_ns, events.end_ns]))
    return observing(events, at).tolist()


@pytest.mark.parametrize("inner", [EXIT, "torch/profiler/profiler.py(3): step", "<built-in function next>", PULL])
def test_what_our_own_frames_call_for_themselves_is_ours(inner: str) -> None:
    assert stretches(inner) == [False, True, True, True, False]


@pytest.mark.parametrize(
    ("inner", "kind"),
    [
        ("train.py(9): step", EventKind.PYTHON),
        ("nn.Module: Net_0", EventKind.PYTHON),
        ("site-packages/some/library.py(9): step", EventKind.PYTHON),
        ("gobrrr/lab/example.py(9): step", EventKind.PYTHON),
        ("aten::mm", EventKind.OP),
    ],
)
def test_the_step_that_our_frames_call_is_the_programs(inner: str, kind: EventKind) -> None:
    assert stretches(inner, kind) == [False, True, False, True, False]


def test_where_none_of_our_frames_was_recorded_nothing_is_ours() -> None:
    events = table([Row(EventKind.PYTHON, "train.py(3): main", 0, 100), Row(EventKind.PYTHON, EXIT, 20, 20)])
    assert not observing(events, np.array([0, 20, 40, 100])).any()


def test_on_a_processor_a_step_has_no_time_for_it() -> None:
    """Steps of a kernel of 50 us and 10 us beside it, and 40 us of ours: the measured 60 us are all theirs."""
    rows = []
    for number in range(2):
        at = 100_000 * number
        rows += [
            Row(EventKind.ANNOTATION, f"ProfilerStep#{number}", at, 100_000),
            Row(EventKind.OP, "aten::mm", at + 10_000, 50_000),
            Row(EventKind.RUNTIME, "cpuLaunch", at + 10_000, 0, correlation=number + 1),
            Row(EventKind.KERNEL, "CPU aten::mm", at + 10_000, 50_000, stream=0, correlation=number + 1),
            Row(EventKind.PYTHON, PULL, at + 60_000, 40_000),
        ]
    events = table(rows)
    links = link(events)
    found = anchor_processor(events, links, find_steps(events, links), NO_COST, 60_000.0)
    assert found.steps.wall_ns == pytest.approx(60_000, rel=1e-3)
    assert np.allclose(found.events.duration_ns[links.device], 50_000, rtol=1e-3)
