"""Set arithmetic against sets of integers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.analysis.events import intervals
from gobrrr.analysis.events.intervals import Spans

GRID = 40
pairs = st.lists(st.tuples(st.integers(0, GRID), st.integers(-3, 12)), max_size=12)


def arrays(drawn: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    start = np.array([at for at, _ in drawn], dtype=np.int64)
    return start, start + np.array([length for _, length in drawn], dtype=np.int64)


def points(drawn: list[tuple[int, int]]) -> set[int]:
    return {instant for at, length in drawn for instant in range(at, at + length)}


def spans(drawn: list[tuple[int, int]]) -> Spans:
    return intervals.union(*arrays(drawn))


def covers(found: Spans) -> set[int]:
    return {instant for start, stop in zip(found.start.tolist(), found.stop.tolist(), strict=True)
            for instant in range(start, stop)}  # fmt: skip


def is_well_formed(found: Spans) -> bool:
    """Sorted, none empty, none touching the next one."""
    return bool((found.stop > found.start).all() and (found.start[1:] > found.stop[:-1]).all())


@given(pairs)
def test_union_covers_what_any_covers(drawn):
    found = spans(drawn)
    assert covers(found) == points(drawn)
    assert is_well_formed(found)
    assert found.length == len(points(drawn))


@given(pairs, st.integers(0, GRID), st.integers(0, GRID))
def test_clip_and_complement_split_a_window(drawn, left, right):
    low, high = min(left, right), max(left, right)
    window = set(range(low, high))
    assert covers(intervals.clip(spans(drawn), low, high)) == points(drawn) & window
    outside = intervals.complement(spans(drawn), low, high)
    assert covers(outside) == window - points(drawn)
    assert is_well_formed(outside)


@given(pairs, pairs)
def test_intersection_and_subtraction(left, right):
    assert covers(intervals.intersection(spans(left), spans(right))) == points(left) & points(right)
    assert covers(intervals.subtract(spans(left), spans(right))) == points(left) - points(right)
    assert is_well_formed(intervals.intersection(spans(left), spans(right)))
    assert is_well_formed(intervals.subtract(spans(left), spans(right)))


@given(pairs, st.lists(st.tuples(st.integers(-5, GRID + 20), st.integers(0, 15)), min_size=1, max_size=8))
def test_covered_and_until_count_nanoseconds(drawn, asked):
    start, stop = arrays(asked)
    found = intervals.covered(spans(drawn), start, stop).tolist()
    assert found == [len(points(drawn) & set(range(at, at + length))) for at, length in asked]
    before = intervals.until(spans(drawn), start).tolist()
    assert before == [sum(instant < at for instant in points(drawn)) for at, _ in asked]


@given(st.lists(st.tuples(st.integers(0, GRID), st.integers(0, 12)), max_size=12))
def test_exclusive_gives_each_instant_to_the_first(drawn):
    drawn = sorted(drawn, key=lambda pair: pair[0])
    taken: set[int] = set()
    expected = []
    for pair in drawn:
        fresh = points([pair]) - taken
        taken |= fresh
        expected.append(len(fresh))
    start, stop = arrays(drawn)
    assert intervals.exclusive(start, stop).tolist() == expected


def test_no_interval_is_nothing():
    none = np.empty(0, dtype=np.int64)
    assert intervals.union(none, none).length == 0
    assert intervals.intersection(intervals.NO_SPANS, spans([(0, 5)])).length == 0
    assert covers(intervals.subtract(spans([(0, 5)]), intervals.NO_SPANS)) == set(range(5))
    assert covers(intervals.complement(intervals.NO_SPANS, 2, 5)) == {2, 3, 4}
    assert intervals.complement(intervals.NO_SPANS, 5, 5).length == 0
    assert intervals.until(intervals.NO_SPANS, np.array([3])).tolist() == [0]
    assert intervals.exclusive(none, none).tolist() == []


def test_nanoseconds_of_a_day_stay_exact():
    day = 86_400 * 10**9
    found = intervals.union(np.array([0, day]), np.array([day + 1, 2 * day + 1]))
    assert found.length == 2 * day + 1
