"""The queue simulator, on hand-made traces whose time without the change is known: performed without it, or by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gobrrr.analysis.events.calls import HostCall, classify
from gobrrr.analysis.events.links import Links, link
from gobrrr.analysis.events.observer import DEFAULT_COST, NO_COST, STACKS_COST, ObserverCost
from gobrrr.analysis.events.steps import StepWindow, find_steps
from gobrrr.analysis.replay.graph import graph_of
from gobrrr.analysis.replay.simulator import replay
from gobrrr.analysis.replay.simulator import replayed as run
from gobrrr.model.events import I8, EventKind, EventTable
from gobrrr.observe.trace import read_trace
from tests.analysis.tables import Row, launched, table
from tests.spread import examples
from tests.traces import Trace

COSTS = [NO_COST, DEFAULT_COST.scaled(0.4), DEFAULT_COST, STACKS_COST]
MATRIX = [[64, 64], [64, 64]]
Program = list[tuple[float, float, bool]]
"""(host us, kernel us, whether the host waits for the device afterwards) of each operation of a step."""


def perform(
    program: Program, folder: Path, *, steps: int = 3, waits: bool = True
) -> tuple[EventTable, Links, StepWindow]:
    """The trace of a loop over `program`; `waits` False leaves the waits out."""
    trace = Trace(shapes=False)
    for number in range(steps):
        with trace.step(number):
            for host, kernel, wait in program:
                trace.op("aten::mm", MATRIX, kernel, host_us=host)
                if wait and waits:
                    trace.synchronize()
    events = read_trace(str(trace.write(folder))).ranks[0].events
    links = link(events)
    return events, links, find_steps(events, links)


def wall(events: EventTable, links: Links) -> float:
    """Microseconds of a step."""
    return find_steps(events, links).wall_ns / 1e3


def replayed(made: tuple[EventTable, Links, StepWindow], cost: ObserverCost, *, cut: bool = False) -> float:
    events, links, steps = made
    window = (steps.start, steps.stop)
    moved = without(events, links, cost, *window) if cut else replay(events, links, cost, *window)
    return wall(moved, links)


def without(
    events: EventTable, links: Links, cost: ObserverCost, start: int, stop: int, waits: I8 | None = None
) -> EventTable:
    """Replayed with the host not waiting in `waits` (rows; None: in none)."""
    graph = graph_of(events, links, cost, start, stop)
    cut = np.ones(len(graph.waits), dtype=bool) if waits is None else np.isin(graph.waits, waits)
    return run(replace(graph, cut=cut))


# -- the recorder's cost ------------------------------------------------------------


@pytest.mark.parametrize("cost", COSTS, ids=["none", "low", "default", "stacks"])
def test_a_device_bound_step_keeps_its_time(cost: ObserverCost, tmp_path: Path):
    made = perform([(40.0, 600.0, False)] * 10, tmp_path)
    # 10 kernels of 600 us and the 1 us between them, and 40 us for the first launch of all
    assert replayed(made, cost) == pytest.approx(6_010, rel=0.005)


def test_a_host_bound_step_shrinks_with_the_cost(tmp_path: Path):
    """Each operation is recorded twice (itself and its launch): 8 and 4 us a piece of its 100 us, 50 times a step."""
    made = perform([(100.0, 5.0, False)] * 50, tmp_path)
    cost = ObserverCost(op_ns=8e3, runtime_ns=4e3, annotation_ns=0, python_ns=0, least_share=0.0)
    assert replayed(made, NO_COST) == pytest.approx(5_000, rel=0.005)
    # a launch of 5 us keeps at least nothing of the 6 us that are charged to it: 1 us of each piece stays unpaid
    assert replayed(made, cost) == pytest.approx(50 * (100 - 12), rel=0.02)
    assert replayed(made, cost.scaled(0.5)) == pytest.approx(50 * (100 - 6), rel=0.02)


def test_more_cost_is_never_slower(tmp_path: Path):
    made = perform([(100.0, 5.0, False), (30.0, 400.0, False), (60.0, 2.0, True)] * 8, tmp_path)
    walls = [replayed(made, DEFAULT_COST.scaled(factor)) for factor in (0.0, 0.3, 0.7, 1.0, 1.5)]
    assert walls == sorted(walls, reverse=True)


def test_a_share_of_the_host_s_time_always_stays(tmp_path: Path):
    made = perform([(100.0, 5.0, False)] * 50, tmp_path)
    cost = ObserverCost(op_ns=1e6, runtime_ns=1e6, annotation_ns=1e6, python_ns=1e6, least_share=0.3)
    assert replayed(made, cost) == pytest.approx(1_500, rel=0.02)


def test_the_profiler_s_own_work_is_taken_out():
    """It recorded 40 us of its own between two launches that are 100 us apart."""
    rows = [*launched("k", 0, 6_000, 2_000, 1), *launched("k", 100_000, 106_000, 2_000, 2)]
    rows.append(Row(EventKind.OVERHEAD, "Activity Buffer Request", 30_000, 40_000))
    events = table(rows)
    links = link(events)
    free = ObserverCost(op_ns=0, runtime_ns=0, annotation_ns=0, python_ns=0, least_share=0.0)
    moved = replay(events, links, free, 0, 200_000)
    starts = moved.start_ns[links.device]
    assert starts[1] - starts[0] == 60_000


def test_loading_data_is_the_program_s_own_time(tmp_path: Path):
    """While the host decodes, little of the time is the profiler's, however dense the events are: 400 in 20 ms."""
    trace = Trace()
    for number in range(3):
        with trace.step(number):
            with trace.inside("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
                for _ in range(400):
                    trace.host("aten::to", 50.0)
            trace.op("aten::mm", MATRIX, 50.0)
    events = read_trace(str(trace.write(tmp_path))).ranks[0].events
    links = link(events)
    steps = find_steps(events, links)
    assert 0.85 * 20_000 <= replayed((events, links, steps), DEFAULT_COST) <= 20_100


# -- waits ------------------------------------------------------------


def test_a_wait_whose_removal_gives_nothing_since_the_host_is_the_bound(tmp_path: Path):
    """100 launches of 50 us and kernels of 5 us: when the host waits, the device has all but finished."""
    made = perform([*[(50.0, 5.0, False)] * 99, (50.0, 5.0, True)], tmp_path)
    before, after = replayed(made, NO_COST), replayed(made, NO_COST, cut=True)
    assert before == pytest.approx(5_000, rel=0.01)
    assert after == pytest.approx(max(100 * 50, 100 * 6), rel=0.01)


def test_a_wait_that_blocks_most_of_a_step_and_gives_little(tmp_path: Path):
    """The host issues for 200 us and then waits for 4 ms: the device is the bound, all but for the refill."""
    made = perform([*[(50.0, 1_000.0, False)] * 3, (50.0, 1_000.0, True)], tmp_path)
    events, _, steps = made
    call = classify(events.names)[events.name]
    blocked = events.duration_ns[call == HostCall.WAIT].sum() / steps.count / 1e3
    before, after = replayed(made, NO_COST), replayed(made, NO_COST, cut=True)
    assert blocked / before > 0.9
    # 4 kernels and the pauses between them; the refill of some 50 us is all that there is to gain
    assert after == pytest.approx(4 * 1_001, rel=0.01)
    assert (before - after) / before < 0.02


def test_a_wait_whose_removal_gives_much(tmp_path: Path):
    """2 ms of launches, then a kernel of 2 ms that the host waits for: in turn they take 4 ms, at once 2 ms."""
    made = perform([*[(100.0, 5.0, False)] * 19, (100.0, 2_000.0, True)], tmp_path, steps=8)
    host, device = 20 * 100, 19 * 6 + 2_001
    before, after = replayed(made, NO_COST), replayed(made, NO_COST, cut=True)
    assert before == pytest.approx(host + 2_000, rel=0.01)
    # the first step's launches and the last step's kernel lie outside of the overlap: 2 ms over 8 steps
    assert after == pytest.approx(max(host, device) + 2_000 / 8, rel=0.02)


def test_only_the_named_waits_are_cut(tmp_path: Path):
    made = perform([*[(100.0, 5.0, False)] * 19, (100.0, 2_000.0, True)], tmp_path, steps=4)
    events, links, steps = made
    waits = np.flatnonzero(classify(events.names)[events.name] == HostCall.WAIT)
    walls = [
        wall(without(events, links, NO_COST, steps.start, steps.stop, waits[:count]), links)
        for count in range(len(waits) + 1)
    ]
    assert walls[0] == pytest.approx(4_000, rel=0.01)
    assert walls == sorted(walls, reverse=True)
    # each of the first three waits hides one step's launches behind the kernel before it; the last has none behind it
    assert walls[0] - walls[1] == pytest.approx(2_000 / 4, rel=0.15)
    assert walls[3] == pytest.approx(walls[4], rel=0.01)
    assert walls[-1] == pytest.approx(replayed(made, NO_COST, cut=True))


programs = st.lists(
    st.tuples(
        st.sampled_from([15.0, 40.0, 200.0]), st.sampled_from([3.0, 50.0, 700.0]), st.sampled_from([False, False, True])
    ),
    min_size=3,
    max_size=12,
)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(programs)
def test_cutting_all_waits_is_the_program_without_them(tmp_path: Path, program: Program):
    """The oracle is the builder: the same program performed without its waits."""
    made = perform(program, tmp_path)
    events, links, _ = perform(program, tmp_path, waits=False)
    assert replayed(made, NO_COST, cut=True) == pytest.approx(wall(events, links), rel=0.02, abs=8.0)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(programs)
def test_with_no_cost_the_program_takes_as_long_as_it_took(tmp_path: Path, program: Program):
    events, links, steps = perform(program, tmp_path)
    assert replayed((events, links, steps), NO_COST) == pytest.approx(wall(events, links), rel=0.01, abs=4.0)


def test_a_pageable_copy_from_the_device_blocks(tmp_path: Path):
    """The call returns when the data is there, so a shorter host does not make the step shorter than the device."""
    rows, now, free, number = [], 0, 0, 0
    for _ in range(6):
        rows += launched("big", now, max(now + 4_000, free), 900_000, number := number + 1)
        free = max(now + 4_000, free) + 900_000
        begin = free + 1_000
        call = now + 20_000
        rows += launched("Memcpy DtoH (Device -> Pageable)", call, begin, 5_000, number := number + 1,
                         kind=EventKind.MEMCPY, launch="cudaMemcpyAsync", call_ns=begin + 8_000 - call)  # fmt: skip
        free = begin + 5_000
        now = begin + 8_000 + 300_000
    events = table(rows)
    links = link(events)
    moved = replay(events, links, NO_COST, 0, now)
    assert moved.start_ns[links.device] == pytest.approx(events.start_ns[links.device], abs=6_000)
    cut = without(events, links, NO_COST, 0, now)
    # without it the host issues 6 times 320 us of its own; the device then has no pause at all
    assert cut.end_ns[links.device].max() == pytest.approx(6 * 906_000, rel=0.01)


def test_a_wait_while_another_thread_issues_is_not_on_the_path():
    rows = []
    for number in range(8):
        rows += launched("k", number * 100_000, number * 100_000 + 5_000, 90_000, number + 1, thread=1)
    rows.append(Row(EventKind.RUNTIME, "cudaDeviceSynchronize", 1_000, 700_000, thread=0))
    events = table(rows)
    links = link(events)
    moved = replay(events, links, NO_COST, 0, 900_000)
    assert moved.start_ns[links.device].tolist() == events.start_ns[links.device].tolist()


# -- streams ------------------------------------------------------------


def usual(count: int, *, begin: int = 0, number: int = 1_000) -> list[Row]:
    """Kernels that start 2 us behind their call: what an idle device needs from a call to its work."""
    rows = []
    for index in range(count):
        call = begin + index * 20_000
        rows += launched("usual", call, call + 7_000, 3_000, number + index)
    return rows


def test_work_that_waits_for_another_stream_still_does():
    """Stream 9 starts only when stream 7's long kernel is done, though both were launched at once: an event wait."""
    rows = usual(10)
    rows += launched("long", 200_000, 207_000, 1_000_000, 1, stream=7)
    rows += launched("after", 210_000, 1_208_000, 50_000, 2, stream=9)
    rows += launched("beside", 220_000, 227_000, 50_000, 3, stream=11)
    events = table(rows)
    links = link(events)
    moved = replay(events, links, DEFAULT_COST, 0, 1_300_000)
    start, end = moved.start_ns[links.device], moved.end_ns[links.device]
    names = [events.name_of(row) for row in links.device]
    assert end[names.index("long")] < 1_207_000
    assert start[names.index("after")] >= end[names.index("long")]
    assert end[names.index("beside")] < end[names.index("long")]


def test_the_latency_of_a_launch_is_that_of_an_idle_device():
    """The host runs far ahead: all but the first kernel are queued, and their delays say nothing about a launch.

    `after` waits for the third kernel of the other stream, which ends 3 ms behind the launch of `after`.
    """
    rows = []
    for index in range(500):
        rows += launched("k", index * 20_000, 7_000 + index * 1_001_000, 1_000_000, index + 1)
    rows += launched("after", 50_000, 7_000 + 2 * 1_001_000 + 1_000_000 + 500, 50_000, 900, stream=9)
    events = table(rows)
    links = link(events)
    moved = replay(events, links, DEFAULT_COST, 0, 501_000_000)
    start, end = moved.start_ns[links.device], moved.end_ns[links.device]
    after = [events.name_of(row) for row in links.device].index("after")
    assert after == 3
    assert start[after] >= end[after - 1]


def test_the_host_stops_when_the_queue_is_full(tmp_path: Path):
    """1,800 kernels of 100 us, three waits cut: launch n can't return before kernel n - 1,024 has begun.

    So the host is through with them when kernel 776 begins, and not after 18 ms; then it computes for 120 ms.
    """
    trace = Trace(shapes=False)
    for _ in range(3):
        for _ in range(600):
            trace.op("aten::mm", MATRIX, 100.0, host_us=10.0)
        trace.synchronize()
    trace.now += 120_000.0
    trace.op("aten::mm", MATRIX, 100.0, host_us=10.0)
    events = read_trace(str(trace.write(tmp_path))).ranks[0].events
    links = link(events)
    moved = without(events, links, NO_COST, 0, int(events.end_ns.max()))
    starts = moved.start_ns[links.device]
    assert starts[-2] - starts[0] == pytest.approx(1_799 * 101_000, rel=0.01)
    assert starts[-1] - starts[0] == pytest.approx(776 * 101_000 + 120_000_000, rel=0.01)


def test_no_device_work_and_no_events():
    events = table([Row(EventKind.OP, "aten::mm", 0, 900)])
    links = link(events)
    assert replay(events, links, NO_COST, 0, 900).duration_ns.tolist() == [900]
    empty = table([])
    assert len(replay(empty, link(empty), DEFAULT_COST, 0, 0)) == 0
