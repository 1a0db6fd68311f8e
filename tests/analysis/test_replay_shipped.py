"""The replay of real traces: with no recording cost it gives back what was recorded; it never touches a kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gobrrr.analysis.events.intervals import union
from gobrrr.analysis.events.observer import DEFAULT_COST, NO_COST, ObserverCost
from gobrrr.analysis.events.steps import find_steps
from gobrrr.analysis.replay.simulator import replay
from gobrrr.model.events import EventTable
from tests.analysis.tables import DDP, HOLDOUT, NO_DEVICE, PUBLIC, SHIPPED, Read, read, short
from tests.spread import spread

REAL = [*SHIPPED, *DDP, *HOLDOUT, *(path for path in PUBLIC if not path.name.startswith(NO_DEVICE))]
TOLERANCE = 0.02
ROUNDING_NS = 1


def again(seen: Read, cost: ObserverCost) -> EventTable:
    return replay(seen.events, seen.links, cost, seen.steps.start, seen.steps.stop)


@pytest.mark.parametrize("path", spread(REAL), ids=short)
def test_without_a_cost_the_step_takes_as_long_as_recorded(path: Path):
    seen = read(path)
    steps = find_steps(again(seen, NO_COST), seen.links)
    assert steps.count == seen.steps.count
    assert steps.wall_ns == pytest.approx(seen.steps.wall_ns, rel=TOLERANCE)


@pytest.mark.parametrize("path", spread(REAL), ids=short)
def test_kernels_keep_their_length_and_streams_their_order(path: Path):
    seen = read(path)
    moved = again(seen, DEFAULT_COST)
    device = seen.links.device
    assert (moved.duration_ns[device] == seen.events.duration_ns[device]).all()
    assert (moved.duration_ns >= 0).all()
    for rows in streams(seen):
        before, after = overlap(seen.events, rows), overlap(moved, rows)
        assert (np.diff(moved.start_ns[rows]) >= -ROUNDING_NS).all()
        assert (after <= before + 2 * ROUNDING_NS).all()


def streams(seen: Read) -> list[np.ndarray]:
    """Rows of each stream of each device, in the order in which they began."""
    device = seen.links.device
    key = np.stack([seen.events.device[device], seen.events.stream[device]])
    _, which = np.unique(key, axis=1, return_inverse=True)
    which = np.asarray(which).reshape(-1)
    return [device[which == number] for number in range(int(which.max()) + 1)]


def overlap(events: EventTable, rows: np.ndarray) -> np.ndarray:
    """Nanoseconds by which each piece of work begins before an earlier one of its stream has ended."""
    reach = np.maximum.accumulate(events.end_ns[rows])[:-1]
    return np.maximum(reach - events.start_ns[rows][1:], 0)


@pytest.mark.parametrize("path", spread(REAL), ids=short)
def test_the_device_s_busy_time_stays_where_there_is_one_stream(path: Path):
    seen = read(path)
    if len(streams(seen)) > 1 or any(overlap(seen.events, rows).any() for rows in streams(seen)):
        pytest.skip("several streams, or work that overlaps in one")
    moved, rows = again(seen, DEFAULT_COST), seen.links.device
    after = union(moved.start_ns[rows], moved.end_ns[rows]).length
    before = union(seen.events.start_ns[rows], seen.events.end_ns[rows]).length
    # starts are rounded to whole nanoseconds
    assert after == pytest.approx(before, abs=len(rows) * ROUNDING_NS)


@pytest.mark.parametrize("path", spread([*SHIPPED[:6], *DDP[:1]]), ids=short)
def test_the_replay_is_deterministic(path: Path):
    seen = read(path)
    first, second = again(seen, DEFAULT_COST), again(seen, DEFAULT_COST)
    assert (first.start_ns == second.start_ns).all()
    assert (first.duration_ns == second.duration_ns).all()


@pytest.mark.parametrize("path", spread([*SHIPPED, *DDP]), ids=short)
def test_the_input_is_left_alone(path: Path):
    seen = read(path)
    start, duration = seen.events.start_ns.copy(), seen.events.duration_ns.copy()
    again(seen, DEFAULT_COST)
    assert (seen.events.start_ns == start).all()
    assert (seen.events.duration_ns == duration).all()
