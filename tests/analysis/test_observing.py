"""What the code around a live step takes between two steps belongs to none of them."""

from __future__ import annotations

import numpy as np
import pytest

from gobrrr.analysis.host_record import host_record
from gobrrr.analysis.links import link
from gobrrr.analysis.observer import NO_COST
from gobrrr.analysis.observing import observing
from gobrrr.model.events import Kind
from tests.analysis.tables import Row, table

PULL, EXIT = "gobrrr/observe/live/pull.py(65): pull", "site-packages/contextlib.py(141): __exit__"


def stretches(inner: str, kind: Kind = Kind.PYTHON) -> list[bool]:
    """By hand: a frame of the program from 0 to 100, one of ours from 10 to 90, `inner` in it from 20 to 40."""
    events = table(
        [Row(Kind.PYTHON, "train.py(3): main", 0, 100), Row(Kind.PYTHON, PULL, 10, 80), Row(kind, inner, 20, 20)]
    )
    at = np.unique(np.concatenate([events.start_ns, events.end_ns]))
    return observing(events, at).tolist()


@pytest.mark.parametrize("inner", [EXIT, "torch/profiler/profiler.py(3): step", "<built-in function next>", PULL])
def test_what_our_own_frames_call_for_themselves_is_ours(inner: str) -> None:
    assert stretches(inner) == [False, True, True, True, False]


@pytest.mark.parametrize(
    ("inner", "kind"),
    [
        ("train.py(9): step", Kind.PYTHON),
        ("nn.Module: Net_0", Kind.PYTHON),
        ("site-packages/some/library.py(9): step", Kind.PYTHON),
        ("gobrrr/lab/example.py(9): step", Kind.PYTHON),
        ("aten::mm", Kind.OP),
    ],
)
def test_the_step_that_our_frames_call_is_the_programs(inner: str, kind: Kind) -> None:
    assert stretches(inner, kind) == [False, True, False, True, False]


def test_where_none_of_our_frames_was_recorded_nothing_is_ours() -> None:
    events = table([Row(Kind.PYTHON, "train.py(3): main", 0, 100), Row(Kind.PYTHON, EXIT, 20, 20)])
    assert not observing(events, np.array([0, 20, 40, 100])).any()


def test_the_host_needs_no_time_for_it() -> None:
    rows = [Row(Kind.PYTHON, PULL, 0, 100), Row(Kind.PYTHON, "train.py(9): step", 20, 60)]
    record = host_record(table(rows), link(table(rows)), 0, 100)
    assert record.left(NO_COST).tolist() == [0, 60, 0]
