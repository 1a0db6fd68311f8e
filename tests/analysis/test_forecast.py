"""The queue model, against the longest path through a graph of what has to wait for what, in exact arithmetic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gobrrr.analysis.pricing.expected import NO_WORK_TIME, Expected, expect
from gobrrr.analysis.replay.forecast import LAUNCH_CALL_NS, STREAM, Player, Timed, step_ns, table, timed
from gobrrr.analysis.replay.simulator import QUEUE_DEPTH
from gobrrr.cost import price
from gobrrr.doors import pipeline
from gobrrr.hardware.dispatch import Dispatch
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.model.events import EventKind, EventTable
from gobrrr.model.profile import DeviceProperties, Profile, RankProfile, TraceMeta
from gobrrr.model.recording import Recording, Site
from gobrrr.model.work import OpCall
from tests.recordings import add, host, item, machine, mm, recorded, recording, relu, stored, view
from tests.spread import examples

LATENCY, LAUNCH = 3_000, 6_000


def kernel(host_ns: float, *device_ns: float, waits: bool = False, **more: Any) -> Timed:
    return Timed(recorded(relu(64), waits=waits, **more), host_ns, device_ns)


def wait(host_ns: float = 1_000) -> Timed:
    return Timed(recorded(item(), waits=True), host_ns, ())


# The oracle. Nodes are points of time; an edge (a, b, ns) says: b is at least ns after a.


def ends(steps: Sequence[Timed], count: int) -> list[Fraction]:
    """When host and device are both done with each of `count` steps, by the longest path from 0."""
    edges: dict[Any, list[tuple[Any, Fraction]]] = defaultdict(list)
    at, done, launches, marks = "start", None, 0, []
    order: list[Any] = ["start"]

    def after(earlier: Any, later: Any, ns: float) -> Any:
        edges[later].append((earlier, Fraction(ns)))
        if later not in order[-3:]:
            order.append(later)
        return later

    for turn in range(count):
        for place, one in enumerate(steps):
            called = LAUNCH_CALL_NS * bool(one.device_ns) + LAUNCH * max(len(one.device_ns) - 1, 0)
            at = after(at, (turn, place, "prepared"), max(one.host_ns - called, 0))
            for piece, ns in enumerate(one.device_ns):
                issue = after(at, ("issue", launches), 0)
                if launches >= QUEUE_DEPTH:
                    edges[issue].append((("start", launches - QUEUE_DEPTH), Fraction(0)))
                at = after(issue, ("issued", launches), LAUNCH if piece else LAUNCH_CALL_NS)
                begin = after(at, ("start", launches), LATENCY)
                if done is not None:
                    edges[begin].append((done, Fraction(0)))
                done = after(begin, ("end", launches), ns)
                launches += 1
            if one.call.waits:
                at = after(at, (turn, place, "waited"), 0)
                if done is not None:
                    edges[at].append((done, Fraction(0)))
        mark = after(at, (turn, "mark"), 0)
        if done is not None:
            edges[mark].append((done, Fraction(0)))
        marks.append(mark)
    when = {"start": Fraction(0)}
    for node in order[1:]:
        when[node] = max(when[earlier] + ns for earlier, ns in edges[node])
    return [when[mark] for mark in marks]


def exact(steps: Sequence[Timed], turn: int = 2) -> float:
    """The wall time of a late step of the loop."""
    found = ends(steps, turn)
    return float(found[-1] - found[-2])


def model() -> Dispatch:
    return host(latency_ns=float(LATENCY), launch_ns=float(LAUNCH))


def taken(steps: Sequence[Timed]) -> float:
    return step_ns(steps, model())


# By hand


def test_a_step_that_the_device_bounds_takes_the_device_s_time():
    assert taken([kernel(10_000, 50_000)] * 8) == 400_000


def test_a_step_that_the_host_bounds_takes_the_host_s_time():
    assert taken([kernel(40_000, 5_000)] * 8) == 320_000


def test_views_and_launches_beyond_the_first_are_host_time():
    """40 us with two launches more inside; the device has 3 x 5 us to do."""
    assert taken([kernel(40_000, 5_000, 5_000, 5_000), Timed(recorded(view(8)), 1_000, ())]) == 41_000


def test_a_wait_adds_what_the_device_still_has_to_do():
    """Host 20 us of issuing, 3 us until the kernel starts, 100 us of it; the host's 1 us for the wait lies within."""
    assert taken([kernel(20_000, 100_000), wait(1_000)]) == 20_000 + 3_000 + 100_000


def test_two_waits_add_two_segments():
    first, second = [kernel(20_000, 100_000), wait()], [kernel(30_000, 70_000), wait()]
    assert taken([*first, *second]) == taken(first) + taken(second) == 226_000


def test_what_waits_after_launching_waits_for_its_own_work():
    assert taken([kernel(20_000, 50_000, waits=True)]) == 20_000 + 3_000 + 50_000


def test_a_full_queue_stops_the_host():
    """1,025 launches of 2 us each on the host, 1 ms each on the device: the last waits until the first has started."""
    steps = [kernel(LAUNCH_CALL_NS, 1e6)] * (QUEUE_DEPTH + 1)
    player = Player(model())
    played = player.play(steps)
    assert played.host_start[QUEUE_DEPTH] == QUEUE_DEPTH * LAUNCH_CALL_NS
    assert played.host_stop[QUEUE_DEPTH] == QUEUE_DEPTH * LAUNCH_CALL_NS + LAUNCH_CALL_NS  # the first began long ago
    again = player.play(steps)
    # launch 2,049 waits for launch 1,025 to start: after 1,024 ms of work, the first 5 us later than the loop's begin
    assert again.host_stop[-1] == pytest.approx((QUEUE_DEPTH + 1) * 1e6 + 5_000 + LAUNCH_CALL_NS)
    assert taken(steps) == pytest.approx((QUEUE_DEPTH + 1) * 1e6)


def test_an_empty_step_takes_no_time():
    assert taken([]) == 0.0


# Against the longest path


HOST_NS = st.integers(0, 60_000)
DEVICE_NS = st.lists(st.integers(1, 90_000), max_size=3)
CALLS = st.builds(lambda own, work, waits: kernel(own, *map(float, work), waits=waits), HOST_NS, DEVICE_NS,
                  st.sampled_from([False, False, False, True]))  # fmt: skip
STEPS = st.lists(CALLS, min_size=1, max_size=12)


@settings(max_examples=examples(150), deadline=None)
@given(STEPS)
def test_it_is_the_longest_path(steps: list[Timed]):
    assert taken(steps) == pytest.approx(exact(steps), rel=1e-12)


@settings(max_examples=examples(8), deadline=None)
@given(STEPS, st.integers(100, 400))
def test_it_is_the_longest_path_where_the_queue_fills(steps: list[Timed], times: int):
    many = steps * times
    assert taken(many) == pytest.approx(exact(many), rel=1e-12)


@settings(max_examples=examples(100), deadline=None)
@given(STEPS)
def test_the_second_step_is_like_every_later_one(steps: list[Timed]):
    assert taken(steps) == pytest.approx(exact(steps, 8), rel=1e-12)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(STEPS, st.lists(CALLS, max_size=4))
def test_what_came_before_the_loop_is_forgotten(steps: list[Timed], before: list[Timed]):
    player = Player(model())
    player.play(before)
    # so that it is over within the rounds below: what the device is behind it makes up by its idle time of each step
    spare = taken(steps) - sum(sum(one.device_ns) for one in steps)
    assume(max(player.now, player.free) < 30 * (spare if spare > 1e-3 else taken(steps)))
    done = [0.0]
    for _ in range(40):
        player.play(steps)
        done.append(max(player.now, player.free))
    assert done[-1] - done[-2] == pytest.approx(taken(steps), rel=1e-9, abs=1e-3)


@settings(max_examples=examples(100), deadline=None)
@given(STEPS)
def test_never_shorter_than_either_side(steps: list[Timed]):
    busy = sum(sum(one.device_ns) for one in steps)
    called = [LAUNCH_CALL_NS * bool(one.device_ns) + LAUNCH * max(len(one.device_ns) - 1, 0) for one in steps]
    issuing = sum(max(one.host_ns, calls) for one, calls in zip(steps, called, strict=True))
    assert taken(steps) >= max(busy, issuing) * (1 - 1e-12)
    assert taken(steps) <= (busy + issuing + LATENCY * len(steps)) * (1 + 1e-12)


# From calls to times


def test_times_of_calls():
    """20 us a forward operation, a quarter of a module call for each (4 us), and a launch more where there are two."""
    calls = [add(64), view(64), relu(64), add(64)]
    one = Expected(10_000.0, 1, 0.1, "add")
    two = Expected(10_000.0, 2, 0.1, "relu")
    found = timed(recording(calls, module_calls=1), [one, NO_WORK_TIME, two, one], model())
    assert [each.host_ns for each in found] == [21_000, 2_000, 27_000, 21_000]
    assert [each.device_ns for each in found] == [(10_000,), (), (5_000, 5_000), (10_000,)]


def test_what_the_host_computes_takes_no_time_of_the_device():
    step = recording([recorded(add(64), place="host"), recorded(add(64))])
    one = Expected(10_000.0, 1, 0.1, "add")
    found = timed(step, [one, one], model())
    assert [each.device_ns for each in found] == [(), (10_000,)]
    assert found[0].host_ns == 20_000


# The table, read by the same pipeline as a trace


def times_of(step: Recording, machine_: Any = None) -> list[Timed]:
    on = machine_ or machine()
    return timed(step, [expect(one.call, price(one.call), on, stored()) for one in step.calls], model())


def answer(step: Recording) -> tuple[Diagnosis, EventTable, float]:
    """(the pipeline's diagnosis, the table, the step by the queue model)"""
    steps = times_of(step)
    events = table(step, steps, model())
    meta = TraceMeta(source="step", devices=(DeviceProperties(id=0, name="round"),), recorded=frozenset())
    rank = RankProfile(meta=meta, events=events, frames=True, ends=(0.8, 1.25))
    profile = Profile(target="step", origin="static", ranks=(rank,))
    return pipeline.diagnose(profile, on=machine()), events, step_ns(steps, model())


SMALL, LARGE = [relu(64)] * 20, [mm(4096, 4096, 4096)] * 5


def copied(call: OpCall, direction: str) -> Any:
    return recorded(call, host_copy=direction)


RECORDINGS: dict[str, Recording] = {
    "host-bound": recording(SMALL),
    "device-bound": recording(LARGE),
    "first host, then device": recording([*SMALL, *LARGE]),
    "first device, then host": recording([*LARGE, *SMALL]),
    "views between": recording([view(8), *SMALL, view(8)]),
    "waits": recording([*LARGE, recorded(item(), waits=True), *SMALL]),
    "waits at the end": recording([*LARGE, recorded(item(), waits=True)]),
    "waits with its own copy": recording([*LARGE, recorded(add(64), waits=True, host_copy="DtoH"), *SMALL]),
    "copies in": recording([copied(add(2**22), "HtoD"), *LARGE]),
    "forward and backward": recording(
        [*LARGE, *(recorded(one.call, phase="backward", node="MmBackward0") for one in recording(LARGE).calls)]
    ),
    "optimizer": recording([*LARGE, *(recorded(add(64), phase="optimizer") for _ in range(30))]),
    "a full queue": recording([relu(2**24)] * 1500),
}
CASES = pytest.mark.parametrize("step", RECORDINGS.values(), ids=list(RECORDINGS))


@CASES
def test_the_table_gives_the_same_step(step: Recording):
    """To a nanosecond a row of rounding."""
    found, _, ns = answer(step)
    assert found.unprofiled_wall_ns.how == "estimated"
    assert found.unprofiled_wall_ns.value == pytest.approx(ns, abs=2 + 1e-6 * ns)
    assert found.unprofiled_wall_ns.low == pytest.approx(0.8 * ns, rel=1e-4)
    assert found.unprofiled_wall_ns.high == pytest.approx(1.25 * ns, rel=1e-4)
    assert found.steps == 1


@CASES
def test_the_budget_sums_to_the_wall(step: Recording):
    found, _, _ = answer(step)
    assert sum(line.ns for line in found.budget) == pytest.approx(found.unprofiled_wall_ns.value, abs=2)
    assert sum(line.share for line in found.budget) == pytest.approx(1.0)


@CASES
def test_the_device_is_as_busy_as_its_calls_take(step: Recording):
    found, _, _ = answer(step)
    busy = sum(sum(one.device_ns) for one in times_of(step))
    lines = ("compute", "memory", "below_roof", "unpriced", "transfer")
    assert sum(line.ns for line in found.budget if line.line in lines) == pytest.approx(busy, abs=len(step.calls))


@CASES
def test_rows_of_the_table(step: Recording):
    """One launch and one piece of device work for each piece, and those of the last work of the step before."""
    _, events, _ = answer(step)
    steps = times_of(step)
    pieces = sum(len(one.device_ns) for one in steps)
    device = events.on_device
    assert len(device) == pieces + 1
    assert set(events.stream[device].tolist()) == {STREAM}
    launches = np.flatnonzero((events.kind == int(EventKind.RUNTIME)) & (events.correlation >= 0))
    assert sorted(events.correlation[launches].tolist()) == sorted(events.correlation[device].tolist())
    ops = [row for row in np.flatnonzero(events.kind == int(EventKind.OP)) if events.dims[row] >= 0]
    assert len(ops) == len(step.calls)
    assert events.start_ns.min() == 0
    assert (np.diff(events.start_ns) >= 0).all()
    starts, stops = events.start_ns[device], events.end_ns[device]
    assert (starts[1:] >= stops[:-1] - 1).all()  # one stream, in order; a nanosecond of rounding


def test_regimes():
    assert answer(RECORDINGS["host-bound"])[0].regime == "overhead"
    assert answer(RECORDINGS["device-bound"])[0].regime == "compute"
    assert answer(recording([relu(2**26)] * 5))[0].regime == "memory"


def test_modules_lines_and_nodes_stand_in_the_table():
    sites = (Site(("GPT_0", "Block_0"), "model.py(3): forward", "train.py(9): step"), Site(("GPT_0", "Block_1")))
    calls = [
        recorded(add(64), site=0),
        recorded(add(64), site=1),
        recorded(add(64), site=1, phase="backward", node="B"),
    ]
    _, events, _ = answer(recording(calls, sites=sites))
    names = [events.name_of(row) for row in range(len(events))]
    frames = ("nn.Module: GPT_0", "nn.Module: Block_0", "nn.Module: Block_1")
    assert [names.count(one) for one in frames] == [1, 1, 1]
    assert names.count("train.py(9): step") == 1
    assert names.count("autograd::engine::evaluate_function: B") == 1
    assert names.count("ProfilerStep#0") == 1


def test_calls_are_priced_from_the_table_as_they_were_recorded():
    """2 x 4096^3 FLOP five times; a causal mask that leaves half of one, and one that repeats another."""
    product = mm(4096, 4096, 4096)
    step = recording([product, product, recorded(product, needed=0.5), recorded(product, recomputed=True)])
    found, _, _ = answer(step)
    each = 2 * 4096**3
    assert found.totals.flop == 4 * each
    assert found.coverage.device_time == 1.0
    assert sum(one.flop or 0.0 for one in found.ops) == 4 * each


def test_host_copies_are_copies_and_not_kernels():
    found, events, _ = answer(RECORDINGS["copies in"])
    names = [events.name_of(row) for row in np.flatnonzero(events.kind == int(EventKind.MEMCPY))]
    assert names == ["Memcpy HtoD (Pageable -> Device)"]
    (row,) = np.flatnonzero(events.kind == int(EventKind.MEMCPY))
    assert events.bytes[row] == 2 * 2**22
    assert [line.line for line in found.budget if line.line == "transfer"] == ["transfer"]


def test_waits_are_seen_as_waits():
    found, _, _ = answer(RECORDINGS["waits"])
    assert found.totals.syncs == 1
    assert answer(RECORDINGS["device-bound"])[0].totals.syncs == 0
