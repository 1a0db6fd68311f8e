"""Which cost of recording is charged, and that it gives a step's time back that a recorder of known cost inflated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.analysis.answer.study import estimated, study
from gobrrr.analysis.events.links import link
from gobrrr.analysis.events.observer import (
    CALIBRATED_SHARE,
    DEFAULT_COST,
    LEFT_FACTOR,
    LIVE_SHARE,
    REPEATABLE,
    STACKS_COST,
    observer_cost,
)
from gobrrr.analysis.events.steps import find_steps
from gobrrr.model.events import EventKind, EventTable
from gobrrr.model.live import Live, ProfilerCost, StepTimes
from gobrrr.model.machine import Machine, ObserverCosts, RecordingCost
from gobrrr.model.profile import RankProfile, TraceMeta
from gobrrr.observe.trace import read_trace
from tests.analysis.tables import Row, launched, table
from tests.conftest import H100
from tests.spread import examples

OP_NS, RUNTIME_NS = 3_000, 2_000
MODES = {
    "plain": RecordingCost(op_ns=1_000, runtime_ns=2_000),
    "record_shapes": RecordingCost(op_ns=OP_NS, runtime_ns=RUNTIME_NS, annotation_ns=4_000),
    "record_shapes+with_stack": RecordingCost(op_ns=5_000, runtime_ns=2_500, python_ns=150),
}
MACHINE = Machine(name="m", observer=ObserverCosts(modes=MODES))


def rank_of(events: EventTable, *recorded: str, python: bool = False, live: Live | None = None) -> RankProfile:
    meta = TraceMeta(source="made", recorded=frozenset(recorded))
    return RankProfile(meta=meta, events=events, frames=python, live=live)


def inflated(hosts: list[int], kernel: int, op_ns: int, runtime_ns: int, *, steps: int = 3) -> EventTable:
    """A loop over operations that take `hosts` ns each on the host (2 us in front of it, 4 us are its launch), as a
    recorder shows it that takes `op_ns` for each operation and `runtime_ns` for each launch: half inside, half around.
    """
    rows, now, device, number = [], 1_000_000, 0, 0
    for step in range(steps):
        began = now
        for host in hosts:
            number += 1
            now += 2_000 + op_ns // 2
            call = now + (host - 6_000) // 2 + op_ns // 4 + runtime_ns // 4
            call_ns = 4_000 + runtime_ns // 2
            length = host - 2_000 + op_ns // 2 + runtime_ns
            device = max(device, call + call_ns + 2_000)
            rows += launched("k", call, device, kernel, number, call_ns=call_ns)
            device += kernel
            rows.append(Row(EventKind.OP, "aten::mm", now, length))
            now += length
        rows.append(Row(EventKind.ANNOTATION, f"ProfilerStep#{step}", began, now - began))
    return table(rows)


# -- which --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recorded", "op_ns"), [((), 1_000), (("record_shapes",), OP_NS), (("record_shapes", "profile_memory"), OP_NS)]
)
def test_what_was_recorded_chooses(recorded: tuple[str, ...], op_ns: int):
    rank = rank_of(inflated([20_000], 1_000, 0, 0), *recorded)
    assert observer_cost(rank, MACHINE).op_ns == op_ns
    assert observer_cost(rank, MACHINE).least_share == CALIBRATED_SHARE
    assert observer_cost(rank) is DEFAULT_COST
    assert observer_cost(rank, Machine(name="m")) is DEFAULT_COST


def test_a_kind_that_was_not_calibrated_costs_as_an_operation():
    rank = rank_of(inflated([20_000], 1_000, 0, 0))
    assert observer_cost(rank, MACHINE).annotation_ns == 1_000
    assert observer_cost(rank_of(rank.events, "record_shapes"), MACHINE).annotation_ns == 4_000


def test_a_mode_that_was_not_calibrated_is_the_default():
    rank = rank_of(inflated([20_000], 1_000, 0, 0), "with_stack", python=True)
    assert observer_cost(rank, MACHINE) is STACKS_COST


def test_frames_that_were_not_read_can_t_be_charged():
    events = inflated([20_000], 1_000, 0, 0)
    switches = ("record_shapes", "with_stack")
    assert observer_cost(rank_of(events, *switches), MACHINE) is STACKS_COST
    assert observer_cost(rank_of(events, *switches, python=True), MACHINE).python_ns == 150


def test_a_cpu_s_calibration_says_nothing_of_launches():
    cpu = Machine(name="c", observer=ObserverCosts(modes={"plain": RecordingCost(op_ns=300)}))
    events = inflated([20_000], 1_000, 0, 0)
    assert observer_cost(rank_of(events), cpu) is DEFAULT_COST
    host = events.take(np.flatnonzero(events.kind == EventKind.OP))
    assert observer_cost(rank_of(host), cpu).op_ns == 300


def test_a_live_run_s_own_measurement_comes_first():
    times = StepTimes(wall_ns=1.0, low_ns=1.0, high_ns=1.0, ns=(1.0,), median_ns=1.0, mean_ns=1.0)
    one = ProfilerCost(op_ns=7_000, python_ns=90)
    live = Live(kind="cuda", times=times, warmup_steps=1, profiled_steps=1, observer=one)
    rank = rank_of(inflated([20_000], 1_000, 0, 0), "record_shapes", "with_stack", live=live)
    found = observer_cost(rank, MACHINE)
    assert (found.op_ns, found.python_ns, found.least_share) == (7_000, 90, LIVE_SHARE)


# -- what it gives --------------------------------------------------------------------


@settings(max_examples=examples(25), deadline=None)
@given(
    hosts=st.lists(st.integers(8_000, 60_000), min_size=8, max_size=30),
    op_ns=st.integers(0, 20_000),
    runtime_ns=st.integers(0, 10_000),
)
def test_a_calibrated_machine_gives_the_step_back(hosts: list[int], op_ns: int, runtime_ns: int):
    """Host-bound: the step is the sum of what its operations take without the recorder.

    At the ends of the three steps there is the last kernel, and the half of an event's cost that lies outside.
    """
    events = inflated(hosts, 500, op_ns, runtime_ns)
    cost = RecordingCost(op_ns=op_ns, runtime_ns=runtime_ns, annotation_ns=0.0)
    found = study(rank_of(events), Machine(name="m", observer=ObserverCosts(modes={"plain": cost}))).wall
    ends = (op_ns + runtime_ns + 3_000) / 3
    assert found.value == pytest.approx(sum(hosts), abs=ends + 0.005 * sum(hosts))


@settings(max_examples=examples(15), deadline=None)
@given(kernel=st.integers(60_000, 200_000), op_ns=st.integers(0, 10_000))
def test_a_device_bound_loop_takes_its_kernels_time(kernel: int, op_ns: int):
    """No lead is left of a loop that runs ahead: 20 kernels one behind the other."""
    events = inflated([20_000] * 20, kernel, op_ns, 0)
    found = study(rank_of(events), None).wall
    assert found.value == pytest.approx(20 * kernel, rel=0.002)
    assert found.low == pytest.approx(20 * kernel * (1 - REPEATABLE), rel=0.002)
    assert found.high is not None
    assert found.high <= 21.2 * kernel * (1 + REPEATABLE)  # on its own it has the lead and the first launch as well


def interval(events: EventTable, cost: RecordingCost | None = None, factor: float = LEFT_FACTOR) -> tuple[float, float]:
    """(low, high) as multiples of the estimate."""
    links = link(events)
    steps = find_steps(events, links)
    modes = ObserverCosts(modes={"plain": cost}) if cost else None
    charged = observer_cost(rank_of(events), Machine(name="m", observer=modes))
    value = study(rank_of(events), Machine(name="m", observer=modes)).wall.value
    assert value is not None
    found = estimated(events, links, steps, charged, value, factor)
    assert found.low is not None
    assert found.high is not None
    return found.low / value, found.high / value


def test_a_host_bound_interval_by_hand():
    """What stays of the host's time by the factor either way, and apart from it the device's own spread."""
    low, high = interval(inflated([20_000] * 30, 500, 40_000, 20_000))
    assert low == pytest.approx(1 - np.hypot(1 - 1 / LEFT_FACTOR, REPEATABLE), abs=0.005)
    assert high == pytest.approx(1 + np.hypot(LEFT_FACTOR - 1, REPEATABLE), abs=0.005)
    assert (high - low) / 2 <= 0.25


def test_no_host_is_slower_than_it_was_recorded():
    """Recording takes 5 % of this one: what is left could not grow by a quarter."""
    _, high = interval(inflated([40_000] * 30, 500, 1_000, 1_000), RecordingCost(op_ns=1_000, runtime_ns=1_000))
    assert high == pytest.approx(1 + np.hypot(0.05, REPEATABLE), abs=0.005)


@settings(max_examples=examples(20), deadline=None)
@given(
    hosts=st.lists(st.integers(8_000, 60_000), min_size=4, max_size=20),
    kernel=st.integers(500, 60_000),
    factors=st.tuples(st.floats(1.0, 1.6), st.floats(1.0, 1.6)).map(sorted),
)
def test_an_interval_holds_its_estimate_and_grows_with_the_factor(hosts: list[int], kernel: int, factors: list[float]):
    events = inflated(hosts, kernel, 10_000, 5_000)
    near, far = (interval(events, factor=one) for one in factors)
    assert far[0] - 1e-9 <= near[0] <= 1 - REPEATABLE + 1e-9
    assert 1 + REPEATABLE - 1e-9 <= near[1] <= far[1] + 1e-9


@pytest.mark.parametrize("name", ["mlp_tiny.faulty", "gpt2_b8_s1024.fwdbwd", "moe_host_loop.faulty"])
def test_shipped_intervals_are_no_wider_than_promised(name: str):
    rank = read_trace(H100 / f"{name}.json.gz").ranks[0]
    wall = study(replace(rank), None).wall
    assert wall.value is not None
    assert wall.low is not None
    assert wall.high is not None
    assert (wall.high - wall.low) / 2 <= 0.25 * wall.value
