"""Parents by containment, against trees whose parents are known and against a search over all events."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.model.events import EventKind, EventTable
from gobrrr.model.tree import NESTING_SLACK_NS, ancestors, depths, outermost, parents, sums_below
from tests.analysis.tables import Row, one, table
from tests.spread import examples


def grow(rng: random.Random, start: int, stop: int, depth: int, thread: int, above: str, rows: list[Row],
         known: dict[str, str]) -> None:  # fmt: skip
    """Children of random length between `start` and `stop`; some touch, some are empty, some fill their parent."""
    at = start
    for _ in range(rng.randint(1, 4)):
        if at >= stop:
            return
        begin = rng.choice([at, min(stop, at + rng.randint(1, 20_000))])
        end = rng.choice([begin, stop, rng.randint(begin, stop)])
        name = f"{thread}:{len(rows)}"
        rows.append(
            Row(
                rng.choice([EventKind.OP, EventKind.ANNOTATION, EventKind.PYTHON]),
                name,
                begin,
                end - begin,
                thread=thread,
            )
        )
        known[name] = above
        # a zero-length event has no inside; with slack, one that is as short as the slack may not have one either
        if depth and end - begin > 2 * NESTING_SLACK_NS:
            grow(rng, begin, end, depth - 1, thread, name, rows, known)
        # siblings in one instant would enclose each other
        at = end if end > begin else end + NESTING_SLACK_NS


def named(events: EventTable) -> dict[str, str]:
    found = parents(events)
    return {
        events.name_of(row): events.name_of(int(found[row])) if found[row] >= 0 else "" for row in range(len(events))
    }


def searched(rows: list[Row]) -> list[int]:
    """For each row, in the order of the sweep: the latest event before it that has not ended before the row ends."""
    order = sorted(range(len(rows)), key=lambda index: (rows[index].thread, rows[index].start, -rows[index].duration))
    result = [-1] * len(rows)
    for position, index in enumerate(order):
        row = rows[index]
        reach = max(row.start, row.stop - NESTING_SLACK_NS) if row.duration else row.stop
        for candidate in reversed(order[:position]):
            other = rows[candidate]
            touches = other.stop <= row.start and row.duration > 0
            if other.thread == row.thread and other.stop >= reach and not touches:
                result[index] = candidate
                break
    return result


@pytest.mark.parametrize("seed", range(40))
def test_known_trees_on_several_threads(seed: int):
    """Parents are what the tree was grown by; equal spans are told apart by the order in the trace."""
    rng = random.Random(seed)
    rows: list[Row] = []
    known: dict[str, str] = {}
    for thread in range(3):
        grow(rng, 0, 1_000_000, 5, thread, "", rows, known)
    # an empty event at its elder sibling's end lies in both; the table can't tell, so it is not asked
    unclear = {row.name for row in rows if row.duration <= 2 * NESTING_SLACK_NS}
    found = named(table(rows))
    assert {name: above for name, above in found.items() if name not in unclear} == {
        name: above for name, above in known.items() if name not in unclear
    }


@settings(max_examples=examples(150))
@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(0, 8), st.integers(0, 1)).map(
            lambda drawn: Row(EventKind.OP, "op", drawn[0] * 500, drawn[1] * 500, thread=drawn[2])
        ),
        max_size=14,
    )
)
def test_any_events_against_a_search_over_all_before(rows: list[Row]):
    """Overlapping, touching, empty, equal, on half-microsecond edges: jumping gives the sweep's answer."""
    ordered = sorted(rows, key=lambda row: (row.start, -row.duration))
    assert parents(table(ordered)).tolist() == searched(ordered)


@pytest.mark.parametrize("seed", range(20))
def test_one_microsecond_beyond_the_parent_is_inside(seed: int):
    """Dialects with whole microseconds round each end on its own."""
    rng = random.Random(seed)
    rows = [Row(EventKind.OP, "outer", 0, 100_000)]
    for number in range(8):
        start = 1_000 + number * 12_000
        rows.append(Row(EventKind.OP, f"child {number}", start, 9_000))
        rows.append(Row(EventKind.RUNTIME, f"call {number}", start + 4_000, 5_000 + rng.randint(0, NESTING_SLACK_NS)))
    last = 99_000
    rows.append(Row(EventKind.RUNTIME, "last", last, 1_000 + rng.randint(0, NESTING_SLACK_NS)))
    found = named(table(rows))
    assert found["last"] == "outer"
    for number in range(8):
        assert found[f"child {number}"] == "outer"
        assert found[f"call {number}"] == f"child {number}"


def test_more_than_the_slack_beyond_is_outside():
    found = named(table([Row(EventKind.OP, "first", 0, 10_000), Row(EventKind.OP, "second", 8_000, 3_002)]))
    assert found["second"] == ""


def test_touching_siblings_are_not_nested():
    found = named(
        table(
            [Row(EventKind.OP, "a", 0, 10_000), Row(EventKind.OP, "b", 10_000, 500), Row(EventKind.OP, "c", 10_500, 9)]
        )
    )
    assert found == {"a": "", "b": "", "c": ""}


def test_a_call_as_long_as_its_operation_is_inside_it():
    rows = [Row(EventKind.RUNTIME, "call", 0, 5_000), Row(EventKind.OP, "op", 0, 5_000)]
    assert named(table(rows)) == {"call": "op", "op": ""}


def test_other_kinds_are_no_parents_and_have_none():
    rows = [
        Row(EventKind.OP, "op", 0, 100),
        Row(EventKind.ANNOTATION, "mark", 10, 50),
        Row(EventKind.RUNTIME, "call", 20, 10),
    ]
    rows.append(Row(EventKind.KERNEL, "kernel", 25, 5))
    events = table(rows)
    found = parents(events, EventKind.OP, EventKind.RUNTIME)
    assert found[one(events, "call")] == one(events, "op")
    assert found[one(events, "mark")] == found[one(events, "kernel")] == -1


def test_ten_thousand_siblings_are_quick():
    """Every sibling's first guess is wrong: jumping one step at a time would be quadratic."""
    rows = [Row(EventKind.OP, "outer", 0, 10_000 * 10_000 + 1)]
    rows += [Row(EventKind.OP, "sibling", number * 10_000, 9_000) for number in range(10_000)]
    begin = time.perf_counter()
    events = table(rows)
    built = time.perf_counter()
    found = parents(events)
    assert time.perf_counter() - built < 1.0, f"built in {built - begin:.2f} s"
    assert found[0] == -1
    assert set(found[1:].tolist()) == {0}


def test_deep_nests_in_a_row():
    """Siblings of which each holds a nest of 1,000: the next sibling has to climb all of it."""
    deep, width = 1_000, 5
    rows = []
    for number in range(width):
        base = number * 20_000_000
        rows += [
            Row(EventKind.PYTHON, f"{number}", base + level * 5_000, 15_000_000 - level * 10_000)
            for level in range(deep)
        ]
    events = table(rows)
    found = parents(events)
    for number in range(width):
        mine = found[number * deep : (number + 1) * deep].tolist()
        assert mine == [-1, *range(number * deep, (number + 1) * deep - 1)]


def test_outermost_and_ancestors():
    rows = [
        Row(EventKind.OP, "a", 0, 90_000),
        Row(EventKind.OP, "b", 5_000, 60_000),
        Row(EventKind.OP, "c", 9_000, 30_000),
    ]
    found = parents(table(rows))
    assert ancestors(found, 2) == [1, 0]
    assert ancestors(found, 0) == []
    assert outermost(found, np.array([False, True, True])).tolist() == [-1, 1, 1]
    assert outermost(found, np.array([True, True, True])).tolist() == [0, 0, 0]


forests = st.lists(st.integers(0, 1 << 16), max_size=40).map(
    lambda drawn: np.array([value % (row + 1) - 1 for row, value in enumerate(drawn)], dtype=np.int64)
)


@given(forests, st.randoms(use_true_random=False))
def test_depths_sums_and_outermost_are_what_a_walk_finds(parent: np.ndarray, rng: random.Random):
    values = np.array([rng.randint(-5, 5) for _ in parent], dtype=np.int64)
    mask = np.array([rng.random() < 0.5 for _ in parent], dtype=bool)
    above = [ancestors(parent, row) for row in range(len(parent))]
    assert depths(parent).tolist() == [len(one) for one in above]
    below = [sum(int(values[row]) for row in range(len(parent)) if top in above[row]) for top in range(len(parent))]
    assert sums_below(parent, values).tolist() == below
    tops = [([-1] + [one for one in [row, *above[row]] if mask[one]])[-1] for row in range(len(parent))]
    assert outermost(parent, mask).tolist() == tops


def test_a_chain_of_many_thousands_is_not_walked_link_by_link():
    parent = np.arange(-1, 49_999)
    begin = time.perf_counter()
    assert depths(parent)[-1] == 49_999
    assert sums_below(parent, np.ones(50_000, dtype=np.int64))[0] == 49_999
    assert (outermost(parent, np.ones(50_000, dtype=bool)) == 0).all()
    assert time.perf_counter() - begin < 2


def test_a_call_that_a_step_begins_in_is_around_what_it_calls() -> None:
    """The mark of a step begins within one call of a module and ends within the next."""
    rows = [
        Row(EventKind.PYTHON, "loop", 0, 100_000),
        Row(EventKind.PYTHON, "first call", 10_000, 20_000),
        Row(EventKind.ANNOTATION, "ProfilerStep#0", 12_000, 45_000),
        Row(EventKind.OP, "in the first", 15_000, 5_000),
        Row(EventKind.PYTHON, "second call", 50_000, 20_000),
        Row(EventKind.OP, "in the second", 60_000, 5_000),
    ]
    found = named(table(rows))
    assert found["in the first"] == "first call"
    assert found["in the second"] == "second call"
    assert found["first call"] == found["second call"] == "loop"
