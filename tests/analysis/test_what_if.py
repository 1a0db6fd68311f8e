"""Changes of a graph: laws that hold for any graph, and what each saves where that can be said by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.analysis.events.links import link
from gobrrr.analysis.events.observer import NO_COST
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.replay import simulator as replay
from gobrrr.analysis.replay import what_if
from gobrrr.analysis.replay.graph import StepGraph, graph_of
from gobrrr.analysis.replay.simulator import run
from gobrrr.analysis.replay.what_if import Change
from gobrrr.analysis.savings.gains import length
from gobrrr.model.events import EventKind
from tests import traces
from tests.analysis.slow_simulator import arrays, every, named, same, slowly, unprofiled
from tests.analysis.tables import Row, launched, table
from tests.analysis.test_graph import NS, graphs
from tests.spread import examples
from tests.traces import Trace

MATRIX = [[64, 64], [64, 64]]
REACTION = 3.0
"""Microseconds from the end of the device's work until a wait of the builder returns."""


def done(graph: StepGraph) -> float:
    """When host and device are through with everything."""
    ran = run(graph)
    ends = ran.begin + np.where(graph.gone, 0.0, graph.duration)
    host = max(ran.resumed, default=0.0)
    return max(float(ends.max(initial=0.0)), float(host))


def some(graph: StepGraph, seed: int) -> np.ndarray:
    """A few pieces of a graph's work."""
    return np.flatnonzero(np.random.default_rng(seed).random(len(graph.duration)) < 0.4)


def spans(graph: StepGraph, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Disjoint spans that begin and end where events do."""
    rng = np.random.default_rng(seed)
    edges = np.sort(rng.choice(graph.at, size=len(graph.at) // 2 * 2, replace=False))
    return edges[0::2], edges[1::2]


def gapless(graph: StepGraph) -> StepGraph:
    """The same without what the device pauses by itself or for unknown reasons."""
    return replace(graph, gap=np.zeros_like(graph.gap), held=np.zeros_like(graph.held))


seeds = st.integers(0, 1_000)
CHANGES: dict[str, Callable[[StepGraph, int], StepGraph]] = {
    "shortened": lambda g, n: what_if.shortened(g, some(g, n), np.full(len(some(g, n)), 0.5)),
    "merged": lambda g, n: what_if.merged(g, some(g, n)),
    "dropped": lambda g, n: what_if.dropped(g, some(g, n)),
    "hosted": lambda g, n: what_if.hosted(g, *spans(g, n), 0.3),
    "burdened": lambda g, n: what_if.burdened(g, some(g, n), 50.0),
    "unlaunched": lambda g, n: what_if.unlaunched(g, some(g, n)),
    "unwaited": lambda g, n: what_if.unwaited(g),
    "captured": lambda g, n: what_if.captured(g, *spans(g, n), 1.0),
    "freed": lambda g, n: what_if.freed(g, some(g, n)),
    "overlapped": lambda g, n: what_if.overlapped(
        g, some(g, n), np.full(len(some(g, n)), -1), np.full(len(some(g, n)), -1)
    ),
    "scaled": lambda g, n: what_if.scaled(g, some(g, n), np.full(len(some(g, n)), 2.0)),
}


# -- laws ------------------------------------------------------------


@pytest.mark.parametrize("name", CHANGES)
@settings(max_examples=examples(15), deadline=None)
@given(graph=graphs(), seed=seeds)
def test_a_changed_graph_runs_by_the_same_rules_and_the_graph_that_it_was_made_from_stays(
    name: str, graph: StepGraph, seed: int
):
    before = arrays(graph)
    changed = CHANGES[name](graph, seed)
    assert same(before, arrays(graph))
    assert run(changed).begin == pytest.approx(np.array(slowly(changed).begin), abs=NS)


@settings(max_examples=examples(25), deadline=None)
@given(graphs(), seeds)
def test_nothing_to_do_changes_nothing(graph: StepGraph, seed: int):
    nothing = np.empty(0, dtype=np.int64)
    begin, end = spans(graph, seed)
    same_as_before: list[Change] = [
        what_if.unchanged,
        what_if.in_turn([]),
        lambda g: what_if.hosted(g, begin, end, 1.0),
        lambda g: what_if.hosted(g, nothing, nothing, 0.0),
        lambda g: what_if.shortened(g, every(g), np.ones(len(g.duration))),
        lambda g: what_if.merged(g, nothing),
        lambda g: what_if.dropped(g, nothing),
        lambda g: what_if.unlaunched(g, nothing),
        lambda g: what_if.unwaited(g, nothing),
        lambda g: what_if.burdened(g, every(g), 0.0),
        lambda g: what_if.captured(g, nothing, nothing, 0.0),
        lambda g: what_if.freed(g, nothing),
        lambda g: what_if.overlapped(g, nothing, nothing, nothing),
    ]
    for number, change in enumerate(same_as_before):
        assert same(arrays(change(graph)), arrays(graph)), number


@settings(max_examples=examples(25), deadline=None)
@given(graphs(), st.lists(st.sampled_from([*CHANGES]), max_size=4), seeds)
def test_changes_in_turn_are_one_applied_to_what_the_other_gives(graph: StepGraph, names: list[str], seed: int):
    by_hand = graph
    for name in names:
        by_hand = CHANGES[name](by_hand, seed)
    changes = [lambda g, name=name: CHANGES[name](g, seed) for name in names]
    assert same(arrays(what_if.in_turn(changes)(graph)), arrays(by_hand))


@settings(max_examples=examples(30), deadline=None)
@given(graphs(), seeds, st.sampled_from([0.0, 0.2, 0.9]))
def test_less_of_anything_never_takes_longer(graph: StepGraph, seed: int, share: float):
    """Shorter work, a wait less, a faster host, work that does not run: nobody waits longer than before."""
    now = done(graph)
    work = some(graph, seed)
    assert done(what_if.shortened(graph, work, np.full(len(work), share))) <= now + NS
    assert done(what_if.dropped(graph, work)) <= now + NS
    assert done(what_if.unwaited(graph)) <= now + NS
    assert done(what_if.unwaited(graph, graph.waits[:1])) <= now + NS
    assert done(what_if.hosted(graph, *spans(graph, seed), share)) <= now + NS


@settings(max_examples=examples(30), deadline=None)
@given(graphs(), seeds)
def test_more_of_anything_never_takes_less(graph: StepGraph, seed: int):
    now = done(graph)
    work = some(graph, seed)
    assert done(what_if.burdened(graph, work, 70.0)) >= now - NS
    assert done(what_if.scaled(graph, work, np.full(len(work), 1.5))) >= now - NS
    assert done(replace(graph, left=graph.left * 1.5)) >= now - NS


@settings(max_examples=examples(30), deadline=None)
@given(graphs(), seeds)
def test_merged_work_keeps_its_time_and_dropped_work_takes_just_its_own_along(graph: StepGraph, seed: int):
    graph, work = replace(graph, gone=np.zeros_like(graph.gone)), some(graph, seed)
    merged, dropped = what_if.merged(graph, work), what_if.dropped(graph, work)
    assert merged.duration.sum() == pytest.approx(graph.duration.sum())
    assert (merged.duration[merged.gone] == 0).all()
    assert set(np.flatnonzero(merged.gone)) <= set(work)
    # what stays of the work that was to vanish was the first of its stream
    begins = graph.events.start_ns[graph.links.device]
    for one in np.setdiff1d(work, np.flatnonzero(merged.gone)):
        others = (graph.stream == graph.stream[one]) & ~merged.gone
        assert begins[one] == begins[others].min()
    for stream in np.unique(graph.stream):
        mine = graph.stream == stream
        assert merged.duration[mine].sum() == pytest.approx(graph.duration[mine].sum())
    assert graph.duration.sum() - dropped.duration.sum() == pytest.approx(graph.duration[work].sum())
    assert np.flatnonzero(dropped.gone).tolist() == work.tolist()


@settings(max_examples=examples(30), deadline=None)
@given(graphs(), seeds, st.sampled_from([0.0, 0.25, 1.0]))
def test_the_host_loses_just_what_it_needs_within_the_spans(graph: StepGraph, seed: int, share: float):
    begin, end = spans(graph, seed)
    needed = what_if.host_of(graph, begin, end)
    changed = what_if.hosted(graph, begin, end, share)
    assert graph.left.sum() - changed.left.sum() == pytest.approx((1.0 - share) * needed.sum())
    assert what_if.host_of(changed, begin, end) == pytest.approx(share * needed)
    one_each = what_if.hosted(graph, begin, end, np.full(len(begin), share))
    assert one_each.left == pytest.approx(changed.left)
    # twice the same span is that span once
    twice = what_if.hosted(graph, np.repeat(begin, 2), np.repeat(end, 2), share)
    assert twice.left == pytest.approx(changed.left)


# -- by hand ------------------------------------------------------------


def loop(folder: Path, host: float, kernel: float, *, count: int = 20, steps: int = 3) -> Evidence:
    """A step of `count` operations, of which each launches a kernel; it ends when all is done. Times in us."""
    trace = Trace(shapes=False)
    for number in range(steps):
        with trace.step(number):
            for _ in range(count):
                trace.op("aten::mul", MATRIX, kernel, host_us=host)
            trace.synchronize()
    return unprofiled(trace, folder)


def us(evidence: Evidence, graph: StepGraph) -> float:
    """Microseconds of a step."""
    return length(evidence, graph) / 1e3


def test_a_launch_bound_step_as_one_graph_is_its_kernels_and_the_pauses_between_them(tmp_path: Path):
    """20 operations of 100 us with kernels of 5 us: 2 ms; as a graph 20 kernels, 19 pauses, a launch and the wait."""
    evidence = loop(tmp_path, 100.0, 5.0)
    graph = evidence.graph
    steps = np.array(evidence.recorded_steps.begins)
    last = steps + 20 * 100_000
    assert us(evidence, graph) == pytest.approx(20 * 100 + 5 - 1 + REACTION, abs=1)
    for pause in (0.3, 1.0, 2.0):
        captured = what_if.captured(graph, steps, last, pause * 1e3)
        launch = what_if.GRAPH_LAUNCH_NS / 1e3
        assert us(evidence, captured) == pytest.approx(launch + 20 * 5 + 19 * pause + REACTION, abs=1)


def test_a_fused_chain_saves_its_kernels_where_the_device_is_the_bound(tmp_path: Path):
    """20 kernels of 200 us, 1 us between: 15 that become part of the first save the pauses, then what is shorter."""
    evidence = loop(tmp_path, 10.0, 200.0)
    graph, work = evidence.graph, every(evidence.graph)
    gone = work[(work % 20 > 0) & (work % 20 < 16)]
    merged = what_if.merged(graph, gone)
    before = us(evidence, graph)
    assert before - us(evidence, merged) == pytest.approx(15 * 1, abs=0.1)
    kept = np.setdiff1d(work, gone)
    quarter = what_if.shortened(merged, kept, np.full(len(kept), 0.25))
    assert before - us(evidence, quarter) == pytest.approx(15 * 1 + 0.75 * 20 * 200, abs=0.1)


def test_a_fused_chain_saves_its_launches_where_the_host_is_the_bound(tmp_path: Path):
    evidence = loop(tmp_path, 100.0, 5.0)
    graph, work = evidence.graph, every(evidence.graph)
    # not the step's last ones: at its end the merged kernel is waited for
    gone = work[(work % 20 > 0) & (work % 20 < 16)]
    merged = what_if.merged(graph, gone)
    assert us(evidence, merged) == pytest.approx(us(evidence, graph), abs=1)
    unlaunched = what_if.unlaunched(merged, gone)
    assert us(evidence, graph) - us(evidence, unlaunched) == pytest.approx(15 * 100, abs=1)
    half = what_if.unlaunched(merged, gone, 0.5)
    assert us(evidence, graph) - us(evidence, half) == pytest.approx(15 * 50, abs=1)


def test_shorter_kernels_save_nothing_where_the_host_is_the_bound(tmp_path: Path):
    evidence = loop(tmp_path, 100.0, 50.0)
    graph = evidence.graph
    shorter = what_if.shortened(graph, every(graph), np.full(len(graph.duration), 0.1))
    # but for the last kernel, which the step waits for
    assert us(evidence, graph) - us(evidence, shorter) == pytest.approx(45, abs=1)


def test_a_wait_that_blocks_the_host_for_most_of_the_step_and_gives_nothing(tmp_path: Path):
    """The first of the pair: the host is blocked for more than 85 % of a step in which the device is never idle."""
    trace = Trace(shapes=False)
    for number in range(6):
        with trace.step(number):
            for _ in range(9):
                trace.op("aten::mul", MATRIX, 400.0, host_us=20.0)
            trace.item()
            trace.op("aten::mul", MATRIX, 400.0, host_us=20.0)
    evidence = unprofiled(trace, tmp_path)
    events, graph = evidence.events, evidence.graph
    blocked = events.duration_ns[graph.waits].sum() / 6
    before, after = length(evidence, graph), length(evidence, what_if.unwaited(graph))
    assert blocked / before > 0.85
    assert (before - after) / before < 0.02


def test_a_wait_that_makes_host_and_device_take_turns_and_gives_half(tmp_path: Path):
    """The second: 2 ms of launches, then 2 ms on the device that the host waits for; without the wait both at once."""
    trace = Trace(shapes=False)
    steps = 20
    for number in range(steps):
        with trace.step(number):
            for _ in range(19):
                trace.op("aten::mul", MATRIX, 4.0, host_us=100.0)
            trace.op("aten::mul", MATRIX, 2_000.0, host_us=100.0)
            trace.item()
    evidence = unprofiled(trace, tmp_path)
    graph = evidence.graph
    before, after = us(evidence, graph), us(evidence, what_if.unwaited(graph))
    assert before == pytest.approx(2_000 + 2_000, rel=0.01)
    device = 19 * 5 + 2_001 + 2.5
    assert after == pytest.approx(device, rel=0.015)  # a loop hides its first launches behind the step before
    assert 0.45 < (before - after) / before < 0.5


def test_collectives_beside_the_computing_take_what_is_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """4 layers of 300 us, then their 4 reductions of 200 us, then an update: 2 ms and more; beside each other less.

    Reduction i begins when layer i is done: the last one ends 200 us behind the last layer, and the update follows.
    """
    monkeypatch.setattr(traces, "LATENCY_US", 7.0)  # behind the call, so that a launch's latency can be seen
    trace = Trace(shapes=False)
    for number in range(3):
        with trace.step(number):
            for _ in range(4):
                trace.op("aten::mul", MATRIX, 300.0, host_us=10.0, kernel="layer")
            after = trace.free
            for _ in range(4):
                after = trace.collective(200.0, 1 << 20, after=after + 1)
            trace.free = after
            trace.op("aten::mul", MATRIX, 100.0, host_us=10.0, kernel="update")
            trace.synchronize()
    evidence = unprofiled(trace, tmp_path)
    graph = evidence.graph
    layers, reductions, updates = (named(evidence, one) for one in ("layer", "AllReduce", "update"))
    assert (len(layers), len(reductions), len(updates)) == (12, 12, 3)
    until = np.where(np.arange(12) % 4 == 3, updates[np.arange(12) // 4], -1)
    together = what_if.overlapped(graph, reductions, layers, until)
    assert us(evidence, graph) == pytest.approx(4 * 301 + 4 * 201 + 100 + 10 + REACTION, abs=5)
    assert us(evidence, together) == pytest.approx(4 * 301 + 200 + 100 + 10 + REACTION, abs=5)
    longer = what_if.scaled(together, reductions, np.full(12, 400 / 200))
    # now they are the bound: the first layer, then 4 reductions one behind the other
    assert us(evidence, longer) == pytest.approx(301 + 4 * (399 + 0) + 100 + 10 + REACTION, abs=10)


def test_a_copy_made_ahead_holds_neither_host_nor_device(tmp_path: Path):
    """3 ms of copying that the host waits for, then 10 launches in 3 ms and 4 ms on the device: in turn, but for the
    first launch. Made ahead, the longest of the three is left.
    """
    trace = Trace(shapes=False)
    for number in range(20):
        with trace.step(number):
            trace.copy_in(64 << 20, 3_000.0, pinned=True)
            trace.synchronize("cudaStreamSynchronize")
            for _ in range(10):
                trace.op("aten::mul", MATRIX, 400.0, host_us=300.0)
    evidence = unprofiled(trace, tmp_path)
    graph = evidence.graph
    ahead = what_if.freed(graph, named(evidence, "Memcpy"))
    assert us(evidence, graph) == pytest.approx(3_000 + 300 + 10 * 401, rel=0.01)
    assert us(evidence, ahead) == pytest.approx(10 * 401, rel=0.03)


@pytest.mark.parametrize("call", ["cudaFree", "hipFree", "cuMemFree_v2", "cudaDeviceSynchronize"])
def test_a_call_that_frees_waits_for_the_device(tmp_path: Path, call: str):
    """The host gives memory back after each kernel: a shorter kernel makes a shorter call, and a shorter step."""
    trace = Trace(shapes=False)
    for number in range(20):
        with trace.step(number):
            trace.op("aten::mm", MATRIX, 2_000.0)
            trace.synchronize(call)
    evidence = unprofiled(trace, tmp_path)
    graph = evidence.graph
    shorter = what_if.scaled(graph, every(graph), np.full(20, 1 / 4))
    assert us(evidence, graph) - us(evidence, shorter) == pytest.approx(1_500, rel=0.02)


def test_a_burden_lies_in_front_of_each_launch(tmp_path: Path):
    evidence = loop(tmp_path, 100.0, 5.0)
    graph = evidence.graph
    assert us(evidence, what_if.burdened(graph, every(graph), 7e3)) == pytest.approx(
        us(evidence, graph) + 20 * 7, abs=0.1
    )


def test_scaled_work_keeps_what_is_fixed_and_its_floor():
    scaled = what_if.scaled
    graph = replace(_one_kernel(10_000), floor=np.array([9_000.0]))
    assert scaled(graph, np.array([0]), np.array([3.0])).duration.tolist() == [27_000]  # its floor grows as well
    free = replace(graph, floor=np.array([np.nan]))
    assert scaled(free, np.array([0]), np.array([3.0])).duration.tolist() == [2_000 + 3 * 8_000]
    assert scaled(free, np.array([0]), np.array([0.0])).duration.tolist() == [2_000]
    held = scaled(free, np.array([0]), np.array([0.5]), np.array([7_000.0]))
    assert held.duration.tolist() == [7_000]
    assert held.floor.tolist() == [7_000]
    assert scaled(_one_kernel(1_500), np.array([0]), np.array([4.0])).duration.tolist() == [1_500]


def _one_kernel(ns: int) -> StepGraph:
    events = table(launched("k", 0, 7_000, ns, 1))
    return graph_of(events, link(events), NO_COST, 0, 50_000)


def test_the_outermost_operation_that_launches_only_what_is_asked_for():
    """An operation around two, of which one launches twice: each launch alone, the inner operation, the outer one."""
    rows = [Row(EventKind.OP, "outer", 0, 100_000), Row(EventKind.OP, "inner", 10_000, 40_000)]
    rows += launched("a", 15_000, 22_000, 3_000, 1)
    rows += launched("b", 30_000, 37_000, 3_000, 2)
    rows += launched("c", 60_000, 67_000, 3_000, 3)
    events = table(rows)
    graph = graph_of(events, link(events), NO_COST, 0, 100_000)

    def asked(*work: int) -> list[tuple[int, int]]:
        begin, end = what_if.launching_spans(graph, np.array(work))
        return list(zip(begin.tolist(), end.tolist(), strict=True))

    assert asked(0) == [(15_000, 20_000)]
    assert asked(0, 1) == [(10_000, 50_000)]
    assert asked(1, 2) == [(30_000, 35_000), (60_000, 65_000)]
    assert asked(0, 1, 2) == [(0, 100_000)]


def test_a_graph_of_many_kernels_is_one_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """30 kernels of 100 us, 3.1 ms of computing on the host, and a queue of 10: the computing begins at once."""
    monkeypatch.setattr(replay, "QUEUE_DEPTH", 10)
    trace = Trace(shapes=False)
    with trace.step(0):
        for _ in range(30):
            trace.op("aten::mul", MATRIX, 100.0, host_us=20.0)
        trace.host("aten::sort", 3_100.0)
        trace.op("aten::mul", MATRIX, 100.0, host_us=20.0)
    evidence = unprofiled(trace, tmp_path)
    begin = np.array(evidence.recorded_steps.begins)
    captured = what_if.captured(evidence.graph, begin, begin + 600_000, 1e3)
    assert run(captured).begin[-1] / 1e3 == pytest.approx(10 + 3_100 + 20, abs=20)
