"""A loop that runs ahead, against the loop itself performed for many steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.analysis.budget.lead import running
from gobrrr.analysis.events.intervals import union
from gobrrr.analysis.events.links import Links, link
from gobrrr.analysis.events.steps import StepWindow, find_steps
from gobrrr.model.events import EventKind, EventTable
from tests.analysis.tables import Row, launched, table
from tests.spread import examples

CALL_NS, LATENCY_NS, PAUSE_NS = 2_000, 4_000, 1_000
Work = list[tuple[int, int]]
"""(host ns before the launch, kernel ns) of each operation of a step."""


def perform(work: Work, steps: int, *, waits: bool = False) -> EventTable:
    """The loop, with an idle device in front; `waits`: each step ends with the device done."""
    rows, host, free, number = [], 0, -PAUSE_NS, 0
    for step in range(steps):
        began = host
        for before, kernel in work:
            number += 1
            host += before
            start = max(host + LATENCY_NS, free + PAUSE_NS)
            rows += launched("k", host, start, kernel, number, call_ns=CALL_NS)
            host, free = host + CALL_NS, start + kernel
        if waits:
            rows.append(Row(EventKind.RUNTIME, "cudaDeviceSynchronize", host, max(free - host, 1)))
            host = max(host + 1, free)
        rows.append(Row(EventKind.ANNOTATION, f"ProfilerStep#{step}", began, host - began))
    return table(rows)


def whole(events: EventTable) -> tuple[EventTable, Links, StepWindow]:
    links = link(events)
    return events, links, find_steps(events, links)


def period(work: Work, steps: int = 60) -> float:
    """A step of the loop once it is under way: from the end of one step's last kernel to that of another's."""
    events, links, _ = whole(perform(work, steps))
    ends = np.sort(events.end_ns[links.device])
    return float(ends[-1] - ends[len(work) * (steps // 2) - 1]) / (steps - steps // 2)


operation = st.tuples(st.integers(3_000, 60_000), st.integers(2_000, 80_000))


@settings(max_examples=examples(60), deadline=None)
@given(work=st.lists(operation, min_size=2, max_size=12), steps=st.integers(1, 3))
def test_few_steps_give_the_loop(work: Work, steps: int):
    """Within the pause that a gap may have had of its own."""
    events, links, found = whole(perform(work, steps))
    _, window = running(events, links, found)
    slack = (PAUSE_NS + LATENCY_NS) * (len(work) + 1)
    assert window.wall_ns == pytest.approx(period(work), abs=slack)
    assert window.wall_ns <= found.wall_ns


def test_a_lead_that_the_device_hides_by_hand():
    """The first kernel begins at 54 us, then the device works for 5 x 100 us and pauses 4 times."""
    events, links, steps = whole(perform([(50_000, 100_000)] + [(5_000, 100_000)] * 4, 1))
    moved, window = running(events, links, steps)
    assert steps.wall_ns == 54_000 + 504_000
    assert window.wall_ns == 504_000
    assert (window.stop, window.count, window.host_stop) == (steps.stop, steps.count, steps.host_stop)
    assert moved is not events


def test_a_step_that_waits_for_its_end_stays():
    events, links, steps = whole(perform([(50_000, 100_000)] * 4, 1, waits=True))
    assert running(events, links, steps) == (events, steps)


def test_a_host_that_is_the_bound_stays():
    """Work of 1 us behind the last launch hides no more than it lasts."""
    events, links, steps = whole(perform([(50_000, 1_000)] * 4, 1))
    _, window = running(events, links, steps)
    assert steps.wall_ns - window.wall_ns == LATENCY_NS + 1_000 - CALL_NS


def test_unmarked_steps_stay():
    marked = perform([(50_000, 100_000)] * 4, 1)
    events, links, steps = whole(marked.take(np.flatnonzero(marked.kind != EventKind.ANNOTATION)))
    assert running(events, links, steps) == (events, steps)


def test_without_device_work_nothing_moves():
    events, links, steps = whole(table([Row(EventKind.ANNOTATION, "ProfilerStep#0", 0, 10_000)]))
    assert running(events, links, steps) == (events, steps)


@settings(max_examples=examples(40), deadline=None)
@given(work=st.lists(operation, min_size=2, max_size=12))
def test_work_keeps_its_length_its_order_and_its_place_in_the_window(work: Work):
    events, links, steps = whole(perform(work, 2))
    moved, window = running(events, links, steps)
    rows = links.device
    assert (moved.duration_ns == events.duration_ns).all()
    assert (np.diff(moved.start_ns[rows]) >= 0).all()
    assert (moved.start_ns[rows] >= events.start_ns[rows]).all()
    assert moved.start_ns[rows].min() >= window.start
    assert moved.end_ns[rows].max() == events.end_ns[rows].max()
    busy = union(moved.start_ns[rows], moved.end_ns[rows]).length
    assert busy == union(events.start_ns[rows], events.end_ns[rows]).length
    host = np.setdiff1d(np.arange(len(events)), rows)
    assert (moved.start_ns[host] == events.start_ns[host]).all()
