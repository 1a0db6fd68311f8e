"""A profiled timeline brought to a measured step: it takes that time, and the device's work keeps its own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.analysis.budget.anchor import HOST_CALLS, anchor_device, anchor_processor
from gobrrr.analysis.events.host_record import host_record
from gobrrr.analysis.events.links import link
from gobrrr.analysis.events.observer import LEFT_FACTOR, REPEATABLE, ObserverCost
from gobrrr.analysis.events.steps import find_steps
from gobrrr.model.events import EventKind, EventTable
from tests.analysis.tables import Row, launched, table
from tests.spread import examples

COST = ObserverCost(op_ns=2_000, runtime_ns=2_000, annotation_ns=2_000, python_ns=500, least_share=0.35)


def processor(kernels: list[int], gaps: list[int], steps: int = 2) -> EventTable:
    """Steps in which an operation computes for each of `kernels`, behind a stretch of each of `gaps`."""
    rows, at, number = [], 0, 1
    for step in range(steps):
        begin = at
        for gap, kernel in zip(gaps, kernels, strict=True):
            at += gap
            rows += [
                Row(EventKind.OP, "aten::mm", at - min(gap, 10), kernel + min(gap, 10)),
                Row(EventKind.RUNTIME, "cpuLaunch", at, 0, correlation=number),
                Row(EventKind.KERNEL, "CPU aten::mm", at, kernel, stream=0, correlation=number),
            ]
            at += kernel
            number += 1
        rows.append(Row(EventKind.ANNOTATION, f"ProfilerStep#{step}", begin, at - begin))
    return table(rows)


def anchored_processor(events: EventTable, wall_ns: float):  # type: ignore[no-untyped-def]
    links = link(events)
    return anchor_processor(events, links, find_steps(events, links), COST, wall_ns), links


def test_a_cpu_keeps_its_kernels_and_loses_what_recording_took() -> None:
    events = processor([50_000, 50_000], [6_000, 6_000])
    # between two operations stand half of what recording either takes: 1,000 ns, at most twice that
    found, links = anchored_processor(events, 109_000.0)
    assert found.steps.wall_ns == pytest.approx(109_000, rel=1e-3)
    assert found.scale == pytest.approx(1.0, rel=1e-3)
    assert np.allclose(found.events.duration_ns[links.device], 50_000, rtol=1e-3)


def test_beyond_the_cost_of_recording_all_is_shortened_alike() -> None:
    events = processor([50_000, 50_000], [6_000, 6_000])
    found, links = anchored_processor(events, 50_000.0)
    assert found.steps.wall_ns == pytest.approx(50_000, rel=1e-3)
    durations = found.events.duration_ns[links.device]
    assert durations.max() < 26_000  # the machine was slower in the profiled steps, kernels too
    assert durations.max() - durations.min() <= 2


def test_a_measured_step_that_is_longer_stretches_all() -> None:
    events = processor([50_000], [50_000])
    found, links = anchored_processor(events, 200_000.0)
    assert found.steps.wall_ns == pytest.approx(200_000, rel=1e-3)
    assert np.allclose(found.events.duration_ns[links.device], 100_000, rtol=1e-3)


@given(
    st.lists(st.integers(1_000, 10**6), min_size=1, max_size=6),
    st.floats(0.2, 3.0),
    st.data(),
)
@settings(max_examples=examples(60), deadline=None)
def test_a_cpu_step_takes_what_was_measured(kernels: list[int], factor: float, data: st.DataObject) -> None:
    gaps = data.draw(st.lists(st.integers(100, 10**5), min_size=len(kernels), max_size=len(kernels)))
    events = processor(kernels, gaps)
    wall = factor * (sum(kernels) + sum(gaps))
    found, _ = anchored_processor(events, wall)
    assert found.steps.wall_ns * found.scale == pytest.approx(wall, rel=1e-3)
    assert (found.events.duration_ns >= 0).all()
    assert (np.diff(found.events.start_ns) >= 0).all()  # what came first still does


def gpu(call_ns: int, kernel_ns: int, count: int = 40, before_ns: int = 0) -> EventTable:
    """Two steps of launches in a row, each by an operation of its own; the device is faster or slower than the host.

    `before_ns`: since when what they lie in runs."""
    rows, at, free = [], 0, 0
    if before_ns:
        rows.append(Row(EventKind.ANNOTATION, "training", -before_ns, before_ns + call_ns))
    for step in range(2):
        begin = at
        for number in range(count):
            start = max(at + 4_000, free)
            rows.append(Row(EventKind.OP, "aten::mul", at, call_ns))
            rows += launched("mul", at + 1_000, start, kernel_ns, step * count + number + 1, call_ns=2_000)
            free = start + kernel_ns
            at += call_ns + 2_000
        rows.append(Row(EventKind.ANNOTATION, f"ProfilerStep#{step}", begin, at - begin))
    return table(rows)


@pytest.mark.parametrize("wall", [0.5, 0.7, 0.9, 1.0, 1.3])
def test_a_host_bound_gpu_step_is_brought_to_its_time_and_kernels_keep_theirs(wall: float) -> None:
    events = gpu(10_000, 1_000)
    links = link(events)
    steps = find_steps(events, links)
    found = anchor_device(events, links, steps, COST, wall * steps.wall_ns)
    assert found.steps.wall_ns == pytest.approx(wall * steps.wall_ns, rel=0.01)
    assert (found.events.duration_ns[links.device] == 1_000).all()


def test_a_device_that_is_busy_all_the_time_is_not_shortened() -> None:
    events = gpu(2_000, 20_000)
    links = link(events)
    steps = find_steps(events, links)
    found = anchor_device(events, links, steps, COST, 0.8 * steps.wall_ns)
    assert found.steps.wall_ns > 0.95 * steps.wall_ns
    assert found.scale == pytest.approx(0.8, rel=0.06)  # what is left over is said, not hidden


@pytest.mark.parametrize("wall", [0.9, 0.97, 0.99, 0.998, 1.0, 1.003, 1.01, 1.03, 1.2])
def test_where_the_device_bounds_the_step_the_host_loses_what_recording_was_measured_to_cost(wall: float) -> None:
    """The step's time says nothing of the host: it must not be taken for as slow as it was while it was recorded, nor
    for slower or faster because the device was in the profiled steps."""
    events = gpu(4_000, 30_000)
    links = link(events)
    steps = find_steps(events, links)
    found = anchor_device(events, links, steps, COST, wall * steps.wall_ns)
    assert found.cost == COST
    assert found.scale == pytest.approx(wall, abs=0.01)
    assert found.ends == (COST.left(1 / LEFT_FACTOR), COST.left(LEFT_FACTOR))  # and neither is it known for sure


def test_a_hidden_host_takes_no_longer_than_hosts_do_for_so_many_launches() -> None:
    """It was held up while it was recorded: 22 us for a launch whose call takes 2 us."""
    events = gpu(20_000, 60_000)
    links = link(events)
    steps = find_steps(events, links)
    found = anchor_device(events, links, steps, COST, steps.wall_ns)
    record = host_record(events, links, steps.start, steps.stop)
    assert record.left(found.cost).sum() == pytest.approx(2 * 40 * HOST_CALLS * 2_000, rel=0.05)
    assert found.steps.wall_ns == pytest.approx(steps.wall_ns, rel=0.01)


@pytest.mark.parametrize("before_ns", [0, 2_000_000])
@pytest.mark.parametrize("issue", [0.1, 0.5, 0.9])
def test_a_hidden_host_takes_what_issuing_a_step_took(issue: float, before_ns: int) -> None:
    """A share of the step, in which the device is busy all the time; what it did before the steps is not theirs."""
    events = gpu(4_000, 30_000, before_ns=before_ns)
    links = link(events)
    steps = find_steps(events, links)
    found = anchor_device(events, links, steps, COST, steps.wall_ns, issue * steps.wall_ns)
    record = host_record(events, links, steps.begins[0], steps.stop)
    inside = (record.at[:-1] >= steps.begins[0]) & (record.at[:-1] < steps.host_stop)
    left = record.left(found.cost)[inside].sum()
    assert left / steps.count == pytest.approx(issue * steps.wall_ns, rel=0.01)
    assert found.steps.wall_ns == pytest.approx(steps.wall_ns, rel=REPEATABLE)
    assert found.ends is not None


def test_a_host_that_took_longer_to_issue_than_the_step_takes_is_as_slow_as_the_device_hides() -> None:
    events = gpu(4_000, 30_000)
    links = link(events)
    steps = find_steps(events, links)
    found = anchor_device(events, links, steps, COST, steps.wall_ns, 3.0 * steps.wall_ns)
    assert found.steps.wall_ns == pytest.approx(steps.wall_ns, rel=REPEATABLE)
    record = host_record(events, links, steps.begins[0], steps.stop)
    assert record.left(found.cost)[record.at[:-1] < steps.host_stop].sum() / steps.count > 0.9 * steps.wall_ns


def test_where_the_host_bounds_the_step_issuing_says_nothing_more() -> None:
    events = gpu(10_000, 1_000)
    links = link(events)
    steps = find_steps(events, links)
    found, without = (anchor_device(events, links, steps, COST, 0.8 * steps.wall_ns, one)
                      for one in (0.5 * steps.wall_ns, None))  # fmt: skip
    assert found.steps.wall_ns == without.steps.wall_ns
    assert found.ends is None


def test_of_the_hosts_that_a_device_hides_the_slowest_is_the_nearest_to_what_was_recorded() -> None:
    """The recorded host took longer than the step does without the profiler, whatever recording cost."""
    events = gpu(6_000, 5_000)
    links = link(events)
    steps = find_steps(events, links)
    wall = 5_100 / 8_000 * steps.wall_ns
    found = anchor_device(events, links, steps, COST.scaled(0.3), wall)
    assert found.steps.wall_ns == pytest.approx(wall, rel=0.02)
    record = host_record(events, links, steps.start, steps.stop)
    assert record.left(found.cost).sum() / steps.count == pytest.approx(wall, rel=0.05)


@pytest.mark.parametrize("wall", [0.7, 1.0])
def test_where_the_host_bounds_the_step_its_time_tells_how_fast_it_is(wall: float) -> None:
    events = gpu(10_000, 1_000)
    links = link(events)
    steps = find_steps(events, links)
    assert anchor_device(events, links, steps, COST, wall * steps.wall_ns).ends is None


def test_a_stalled_call_loses_what_its_equals_did_not_take() -> None:
    """Two equal calls of 50 us, one of which was held up for a millisecond."""
    rows, at = [], 0
    for number, kernel in enumerate([50_000, 1_050_000]):
        rows += [
            Row(EventKind.OP, "aten::mm", at + 5_000, kernel + 1_000, dims=b"[[8, 8], [8, 8]]"),
            Row(EventKind.RUNTIME, "cpuLaunch", at + 6_000, 0, correlation=number + 1),
            Row(EventKind.KERNEL, "CPU aten::mm", at + 6_000, kernel, stream=0, correlation=number + 1),
            Row(EventKind.ANNOTATION, f"ProfilerStep#{number}", at, kernel + 6_000),
        ]
        at += kernel + 6_000
    found, links = anchored_processor(table(rows), 56_000.0)
    durations = found.events.duration_ns[links.device]
    assert found.steps.wall_ns == pytest.approx(56_000, rel=1e-3)
    # up to twice the shortest may be the call's own; the undisturbed one keeps more than half of its time
    assert durations[1] < 2.01 * durations[0]
    assert durations[0] > 25_000
