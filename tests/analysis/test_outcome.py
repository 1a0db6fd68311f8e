"""The budget of a changed step: its lines sum to the step, its regime moves as it should, calls keep their bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.analysis.answer.outcome import LEAST_MOVED_SHARE, moved_ops, outcome
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.replay.graph import StepGraph
from gobrrr.analysis.replay.what_if import captured, dropped, hosted, merged, shortened, unwaited
from gobrrr.analysis.savings.elsewhere import on_machine, repriced
from gobrrr.analysis.savings.gains import length
from gobrrr.doors.pipeline import examine
from gobrrr.hardware import find
from gobrrr.observe.trace import read_trace
from tests.analysis.slow_simulator import every, named, unprofiled
from tests.analysis.tables import DDP, HOLDOUT, SHIPPED, examined, short
from tests.conftest import H100
from tests.spread import examples, some
from tests.traces import Trace

ADD, PLUS = [[4096, 4096], [4096, 4096], []], ["", "", "1"]
"""An addition of 96 MiB in all: 30 us at an H100's bandwidth."""
EXAMPLES = some([*SHIPPED[1:28:3], DDP[2], *HOLDOUT[2:20:5]])


def evidence(path: Path) -> Evidence:
    found = examined(path).evidence
    assert found is not None
    return found


def some(graph: StepGraph, seed: int) -> np.ndarray:
    return np.flatnonzero(np.random.default_rng(seed).random(len(graph.duration)) < 0.4)


CHANGES = {
    "nothing": lambda g, _: g,
    "shorter": lambda g, n: shortened(g, some(g, n), np.full(len(some(g, n)), 0.3)),
    "longer": lambda g, n: shortened(g, some(g, n), np.full(len(some(g, n)), 4.0)),
    "merged": lambda g, n: merged(g, some(g, n)),
    "dropped": lambda g, n: dropped(g, some(g, n)),
    "all gone": lambda g, _: dropped(g, every(g)),
    "no host": lambda g, _: hosted(g, g.at[:1], g.at[-1:], 0.0),
    "no waits": lambda g, _: unwaited(g),
    "captured": lambda g, _: captured(g, g.at[:1], g.at[-1:], 1_000.0),
}


# -- sums ------------------------------------------------------------


@settings(max_examples=examples(40), deadline=None)
@given(st.sampled_from(EXAMPLES), st.sampled_from([*CHANGES]), st.integers(0, 99), st.floats(1, 1e9))
def test_the_lines_sum_to_the_step_whatever_was_changed(path: Path, name: str, seed: int, wall: float):
    one = evidence(path)
    found = outcome(one, CHANGES[name](one.graph, seed), one.priced, wall)
    assert all(line.ns > 0 for line in found.lines)
    assert len({(line.line, line.cause) for line in found.lines}) == len(found.lines)
    if found.lines:
        assert sum(line.ns for line in found.lines) == pytest.approx(wall, rel=1e-6)
        assert sum(line.share for line in found.lines) == pytest.approx(1.0, rel=1e-6)
        assert found.then.startswith(("most of the step is ", "the largest part of the step is "))
    assert found.regime in {"compute", "memory", "overhead", "communication", "transfer", "input", "mixed", "unknown"}


@pytest.mark.parametrize("path", EXAMPLES, ids=short)
def test_the_unchanged_step_has_the_budget_of_its_diagnosis(path: Path):
    one, said = evidence(path), examined(path).diagnosis
    wall = said.unprofiled_wall_ns.value or 0.0
    found = outcome(one, one.graph, one.priced, wall)
    assert found.regime == said.regime
    shares = {(line.line, line.cause): line.share for line in said.budget}
    assert {(line.line, line.cause): line.share for line in found.lines} == pytest.approx(shares, abs=2e-3)


def test_a_step_of_no_time_has_no_lines():
    one = evidence(H100 / "mlp_tiny.faulty.json.gz")
    assert outcome(one, one.graph, one.priced, 0.0).lines == []


# -- regimes ------------------------------------------------------------


def adding(folder: Path, host: float, kernel: float = 40.0) -> Evidence:
    """50 additions a step, of 40 us each on the device; the step ends when all are done."""
    trace = Trace()
    for number in range(3):
        with trace.step(number):
            for _ in range(50):
                trace.op("aten::add", ADD, kernel, concrete=PLUS, host_us=host)
            trace.synchronize()
    return unprofiled(trace, folder)


def regime(one: Evidence, graph: StepGraph) -> str:
    return outcome(one, graph, one.priced, length(one, graph)).regime


def test_a_launch_bound_step_of_memory_traffic_is_memory_bound_once_it_is_captured(tmp_path: Path):
    one = adding(tmp_path, host=200.0)
    graph = one.graph
    begins = np.array(one.recorded_steps.begins)
    assert regime(one, graph) == "overhead"
    assert regime(one, captured(graph, begins, begins + 50 * 200_000, 1_000.0)) == "memory"
    assert regime(one, hosted(graph, graph.at[:1], graph.at[-1:], 0.1)) == "memory"


def test_a_memory_bound_step_whose_kernels_get_short_is_launch_bound(tmp_path: Path):
    one = adding(tmp_path, host=20.0)
    graph = one.graph
    assert regime(one, graph) == "memory"
    shorter = shortened(graph, every(graph), np.full(len(graph.duration), 0.1))
    found = outcome(one, shorter, one.priced, length(one, shorter))
    assert found.regime == "overhead"
    assert found.then.startswith("most of the step is the device waiting for the host (")


def test_a_step_that_copies_its_input_is_not_told_to_when_the_copy_is_gone(tmp_path: Path):
    trace = Trace()
    for number in range(3):
        with trace.step(number):
            trace.copy_in(256 << 20, 6_000.0, pinned=True)
            for _ in range(50):
                trace.op("aten::add", ADD, 40.0, concrete=PLUS)
            trace.synchronize()
    one = unprofiled(trace, tmp_path)
    assert regime(one, one.graph) == "transfer"
    assert regime(one, dropped(one.graph, named(one, "Memcpy"))) == "memory"


def test_what_is_shorter_lies_as_far_from_its_roof_as_before(tmp_path: Path):
    """Additions of 40 us whose floor is 30: of half of them 15 are at the roof and 5 below it."""
    one = adding(tmp_path, host=10.0)
    half = shortened(one.graph, every(one.graph), np.full(len(one.graph.duration), 0.5))
    before, after = (
        {(line.line, line.cause): line.ns for line in outcome(one, graph, one.priced, length(one, graph)).lines}
        for graph in (one.graph, half)
    )
    for key in (("memory", None), ("below_roof", "memory")):
        assert after[key] == pytest.approx(before[key] / 2, rel=0.01)
    assert before["memory", None] == pytest.approx(50 * 30e3, rel=0.01)


# -- calls ------------------------------------------------------------


@pytest.mark.parametrize("name", ["b200", "a100-80gb", "mi300x"])
@pytest.mark.parametrize("path", EXAMPLES[::2], ids=short)
def test_on_another_machine_calls_move_other_times_and_the_same_bytes(path: Path, name: str):
    found, one, machine = examined(path), evidence(path), find(name)
    graph = on_machine(one, machine)(one.graph)
    priced = repriced(one.priced, machine)
    rows = found.diagnosis.ops
    moved = moved_ops(one, graph, found.ranks[0].row_of_group, priced)
    assert moved
    for op in moved:
        row = rows[op.op]
        assert op.ns != pytest.approx(row.ns, rel=LEAST_MOVED_SHARE / 2)
        if op.bytes is not None:
            assert op.bytes == pytest.approx(row.bytes, rel=1e-6)
        if op.floor_ns is not None:
            assert op.ns >= op.floor_ns * (1 - 1e-6)


@pytest.mark.parametrize("path", EXAMPLES[::2], ids=short)
def test_nothing_moves_where_nothing_is_changed(path: Path):
    found, one = examined(path), evidence(path)
    assert moved_ops(one, one.graph, found.ranks[0].row_of_group, one.priced) == []


def test_half_of_a_calls_traffic_is_half_of_its_bytes_and_none_where_it_is_gone(tmp_path: Path):
    """Ten additions and ten products a step; every addition keeps half, and the products are gone."""
    trace = Trace()
    for number in range(3):
        with trace.step(number):
            for _ in range(10):
                trace.op("aten::add", ADD, 40.0, concrete=PLUS, kernel="sum")
                trace.op("aten::mm", [[2048, 2048], [2048, 2048]], 60.0, kernel="product")
            trace.synchronize()
    path = trace.write(tmp_path)
    found = examine(replace(read_trace(str(path)), ranks=tuple(
        replace(rank, ends=(1.0, 1.0)) for rank in read_trace(str(path)).ranks
    )))  # fmt: skip
    one = found.evidence
    assert one is not None
    sums, products = named(one, "sum"), named(one, "product")
    graph = dropped(shortened(one.graph, sums, np.full(len(sums), 0.5)), products)
    moved = {found.diagnosis.ops[op.op].op: op for op in moved_ops(one, graph, found.ranks[0].row_of_group, one.priced)}
    assert set(moved) == {"aten::add", "aten::mm"}
    assert moved["aten::add"].bytes == pytest.approx(10 * 3 * 4096 * 4096 * 2 / 2)
    assert moved["aten::add"].ns == pytest.approx(10 * 20e3)
    assert (moved["aten::mm"].bytes, moved["aten::mm"].ns, moved["aten::mm"].floor_ns) == (0.0, 0.0, 0.0)
