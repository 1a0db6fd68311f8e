"""Every nanosecond in exactly one line, against a sweep over every nanosecond of small traces."""

from __future__ import annotations

import time
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.analysis.budget.device import DeviceBudget, device_budget
from gobrrr.analysis.budget.idle import host_time
from gobrrr.analysis.events.links import link
from gobrrr.analysis.events.steps import StepWindow
from gobrrr.analysis.pricing.price import CallGroup, Priced, price_all
from gobrrr.analysis.pricing.roofline import Bound, Floor
from gobrrr.model.events import EventKind, EventTable
from gobrrr.model.work import OpCall, Work
from tests.analysis.tables import Row, launched, table
from tests.spread import examples

KERNEL, NCCL, COPY, PEER, INSIDE = "sgemm", "ncclDevKernel_AllReduce", "Memcpy HtoD", "Memcpy PtoP", "Memcpy DtoD"
LINE = {NCCL: "communication", COPY: "transfer", PEER: "transfer"}
FLOORS: list[tuple[Bound, float] | None] = [None, ("compute", 3.0), ("memory", 5.0), ("memory", 40.0)]
"""What a kernel's floor may be in a generated trace: not priced, below the kernel's time, or above it."""

work = st.lists(
    st.tuples(
        st.sampled_from([KERNEL, KERNEL, KERNEL, NCCL, COPY, PEER, INSIDE]),
        st.integers(0, 60),
        st.integers(0, 20),
        st.integers(1, 4),
        st.sampled_from(FLOORS),
    ),
    min_size=1,
    max_size=14,
)
Drawn = list[tuple[str, int, int, int, "tuple[Bound, float] | None"]]


def kind_of(name: str) -> EventKind:
    return EventKind.MEMCPY if name.startswith("Memcpy") else EventKind.KERNEL


def priced(drawn: Drawn, device: int = 0) -> tuple[EventTable, Priced, list[tuple[Bound, float] | None]]:
    """A trace of the drawn work and its price, one group a piece; the floors in the order of the table."""
    rows = [
        Row(kind_of(name), name, start, length, stream=stream, device=device)
        for name, start, length, stream, _ in drawn
    ]
    order = sorted(range(len(rows)), key=lambda index: (rows[index].start, -rows[index].duration))
    floors = [drawn[index][4] for index in order]
    events = table(rows)
    found = price_all(events, link(events), None)
    groups = tuple(
        CallGroup(
            OpCall(name="op"), Work(count="exact" if one else "unknown"), Floor(one[1], one[0], "roof") if one else None
        )
        for one in floors
    )
    own = np.array([one[1] if one else np.nan for one in floors], dtype=np.float64)
    number = np.arange(len(floors), dtype=np.int64)
    return events, Priced(found.links, groups, number, number, own, found.kind), floors


def swept(events: EventTable, floors: list[tuple[Bound, float] | None], start: int, stop: int) -> dict[str, float]:
    """The lines by walking over every nanosecond: compute over communication over transfer over nothing."""
    lines: dict[str, float] = defaultdict(float)
    owned = [0] * len(events)
    for instant in range(start, stop):
        active = [row for row in range(len(events)) if events.start_ns[row] <= instant < events.end_ns[row]]
        classes = [LINE.get(events.name_of(row), "kernel") for row in active]
        if "kernel" in classes:
            owned[active[classes.index("kernel")]] += 1  # rows are sorted by start: the first to begin owns it
        elif "communication" in classes:
            lines["communication"] += 1
        elif classes:
            lines["transfer"] += 1
        else:
            lines["overhead"] += 1
    for row, own in enumerate(owned):
        floor = floors[row]
        if floor is None:
            lines["unpriced"] += own
        elif own:
            bound, least = floor
            at_roof = min(least * own / int(events.duration_ns[row]), own)
            lines[bound] += at_roof
            lines[f"below_roof {bound}"] += own - at_roof
    return {line: ns for line, ns in lines.items() if ns}


def summed(budget: DeviceBudget) -> dict[str, float]:
    lines: dict[str, float] = defaultdict(float)
    for (line, cause), ns in budget.lines.items():
        lines[f"{line} {cause}" if line == "below_roof" else line] += ns
    return {line: ns for line, ns in lines.items() if ns}


def window(start: int, stop: int) -> StepWindow:
    return StepWindow(start, stop, 1, "by hand")


@settings(max_examples=examples(150))
@given(work, st.integers(0, 30), st.integers(31, 90))
def test_every_line_is_what_a_sweep_counts(drawn: Drawn, start: int, stop: int):
    events, price, floors = priced(drawn)
    budget = device_budget(events, price, window(start, stop), 0)
    assert summed(budget) == pytest.approx(swept(events, floors, start, stop))
    assert sum(budget.lines.values()) == pytest.approx(stop - start, abs=1e-9)
    assert min(budget.lines.values(), default=0) >= 0


@settings(max_examples=examples(60))
@given(work, st.integers(0, 30), st.integers(31, 90))
def test_without_floors_the_lines_are_whole_nanoseconds(drawn: Drawn, start: int, stop: int):
    events, price, floors = priced([(name, at, length, stream, None) for name, at, length, stream, _ in drawn])
    budget = device_budget(events, price, window(start, stop), 0)
    assert sum(budget.lines.values()) == stop - start
    assert summed(budget) == swept(events, floors, start, stop)


@settings(max_examples=examples(60))
@given(work)
def test_what_each_piece_owns_sums_to_the_busy_time(drawn: Drawn):
    events, price, _ = priced(drawn)
    budget = device_budget(events, price, window(0, 100), 0)
    active = {instant for row in range(len(events)) for instant in range(events.start_ns[row], events.end_ns[row])}
    assert budget.owned_ns.sum() == budget.busy_ns == len(active)
    assert (budget.owned_ns <= events.duration_ns[price.links.device]).all()
    assert (budget.owned_ns >= 0).all()


@settings(max_examples=examples(40))
@given(work)
def test_gaps_are_the_idle_time_and_their_causes_sum_to_it(drawn: Drawn):
    events, price, _ = priced(drawn)
    budget = device_budget(events, price, window(0, 100), 0)
    assert sum(gap.stop - gap.start for gap in budget.gaps) == 100 - budget.busy_ns
    for gap in budget.gaps:
        assert sum(ns for _, ns in gap.causes) == gap.stop - gap.start


def test_another_device_s_work_is_not_counted():
    rows = [Row(EventKind.KERNEL, KERNEL, 0, 50, device=0), Row(EventKind.KERNEL, KERNEL, 20, 60, device=1)]
    events = table(rows)
    price = price_all(events, link(events), None)
    assert summed(device_budget(events, price, window(0, 100), 0)) == {"unpriced": 50, "overhead": 50}
    assert summed(device_budget(events, price, window(0, 100), 1)) == {"unpriced": 60, "overhead": 40}


def test_an_exposed_and_a_hidden_collective():
    """100 ns of all-reduce, of which 60 run beside a kernel: 40 are exposed."""
    rows = [Row(EventKind.KERNEL, KERNEL, 0, 60, stream=7), Row(EventKind.KERNEL, NCCL, 0, 100, stream=9)]
    rows.append(Row(EventKind.MEMCPY, COPY, 50, 60, stream=11))
    events = table(rows)
    price = price_all(events, link(events), None)
    budget = device_budget(events, price, window(0, 120), 0)
    assert summed(budget) == {"unpriced": 60, "communication": 40, "transfer": 10, "overhead": 10}


def test_a_copy_within_the_device_is_work_of_the_device():
    events = table(
        [
            Row(EventKind.MEMCPY, "Memcpy DtoD (Device -> Device)", 0, 50),
            Row(EventKind.MEMSET, "Memset (Device)", 60, 9),
        ]
    )
    price = price_all(events, link(events), None)
    assert summed(device_budget(events, price, window(0, 100), 0)) == {"unpriced": 59, "overhead": 41}


def test_thousands_of_devices_take_no_more_than_their_own_work():
    """Each device has 10 kernels; what the host did is worked out once for all."""
    rows = [Row(EventKind.OP, "aten::mm", 0, 5)]
    for number in range(10_000):
        rows += launched("k", 10 * number + 1, 10 * number + 5, 4, number + 1, call_ns=2)
        rows[-1].device = number % 1_000
    events = table(rows)
    price = price_all(events, link(events), None)
    begin = time.perf_counter()
    host = host_time(events, price.links)
    budgets = [device_budget(events, price, window(0, 100_010), device, host) for device in range(1_000)]
    assert time.perf_counter() - begin < 5
    assert all(sum(one.lines.values()) == pytest.approx(100_010) for one in budgets)
    assert sum(len(one.own_ns) for one in budgets) == 10_000
    assert sum(one.owned_ns for one in budgets).tolist() == [4] * 10_000
    alone = device_budget(events, price, window(0, 100_010), 7)
    assert alone.lines == budgets[7].lines
