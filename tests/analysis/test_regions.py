"""What remedies of whole regions save, on traces whose step with the remedy can be said by hand. Times in us."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import KERNEL_GAP_NS
from gobrrr.analysis.host.host_loops import CostlyLoop
from gobrrr.analysis.host.inputs import inward_copies
from gobrrr.analysis.host.loops import StepLoop, work_of
from gobrrr.analysis.host.waits import inner_waits
from gobrrr.analysis.replay.what_if import FIXED_NS, GRAPH_LAUNCH_NS
from gobrrr.analysis.savings.gains import Effect, length
from gobrrr.analysis.savings.regions import (
    IN_GRAPH_NS,
    STEP_COUNT_KERNEL_NS,
    STEP_COUNT_LAUNCHES,
    as_graph,
    as_one_launch,
    as_one_turn,
    counting,
    in_loop,
    larger,
    not_loading,
    prefetched,
    unwaiting,
)
from gobrrr.model.events import EventKind
from gobrrr.observe.trace import read_trace
from tests import traces
from tests.analysis.slow_simulator import arrays, same, unprofiled
from tests.conftest import ROOT
from tests.traces import Trace

MATRIX = [[64, 64], [64, 64]]
REACTION = 3.0
LAUNCH = GRAPH_LAUNCH_NS / 1e3
OPTIMIZER = "Optimizer.step#AdamW.step"
H200 = ROOT / "tests" / "data" / "h200"


def now(evidence: Evidence) -> float:
    return length(evidence, evidence.graph) / 1e3


def then(evidence: Evidence, effect: Effect, share: float) -> float:
    """The step with the effect at a share of what is possible; the graph that it gets stays as it is."""
    graph = evidence.graph
    before = arrays(graph)
    changed = effect(share)(graph)
    assert same(before, arrays(graph))
    return length(evidence, changed) / 1e3


def launch_bound(folder: Path, *, wait: bool = False, load: float = 0.0, waiting: str = "aten::item") -> Evidence:
    """20 operations of 100 us with kernels of 5 us, an optimizer of 10 such ones, and a wait at the end."""
    trace = Trace(shapes=False)
    for number in range(3):
        with trace.step(number):
            if load:
                trace.load(load)
            for at in range(20):
                trace.op("aten::mul", MATRIX, 5.0, host_us=100.0)
                if wait and at == 10:
                    trace.item(waiting)
            with trace.annotated(OPTIMIZER):
                for _ in range(10):
                    trace.op("aten::addcmul_", MATRIX, 5.0, host_us=100.0)
            trace.synchronize()
    return unprofiled(trace, folder)


# -- a step as a graph ------------------------------------------------------------


def test_a_launch_bound_step_as_a_graph(tmp_path: Path):
    """At the most all of it is kernels and short pauses; at the least the optimizer is still launched one by one."""
    evidence = launch_bound(tmp_path)
    effect = as_graph(evidence)
    assert now(evidence) == pytest.approx(30 * 100 + 4 + REACTION, abs=1)
    for share in (0.5, 1.0):
        pause = (KERNEL_GAP_NS + (IN_GRAPH_NS - KERNEL_GAP_NS) * share) / 1e3
        assert then(evidence, effect, share) == pytest.approx(LAUNCH + 30 * 5 + 29 * pause + REACTION, abs=2)
    # what lies in front of the step's first launch is left, and the optimizer from its first launch call on
    assert then(evidence, effect, 0.0) == pytest.approx(95 + LAUNCH + 5 + 9 * 100 + 4 + REACTION, abs=1)


def test_a_graph_holds_no_wait_but_at_the_most(tmp_path: Path):
    evidence = launch_bound(tmp_path, wait=True)
    effect = as_graph(evidence)
    assert len(inner_waits(evidence)) == 3
    assert then(evidence, effect, 0.0) == then(evidence, effect, 0.5) == now(evidence)
    copy = 1.5
    assert then(evidence, effect, 1.0) == pytest.approx(LAUNCH + 31 * 5.3 - 5 + copy + REACTION, abs=3)


def test_input_is_loaded_outside_of_the_graph(tmp_path: Path):
    evidence = launch_bound(tmp_path, load=5_000.0)
    graphed = then(evidence, as_graph(evidence), 1.0)
    assert graphed == pytest.approx(5_000 + LAUNCH + 30 * 5.3 + REACTION, abs=15)


# -- waits ------------------------------------------------------------


def test_the_pair_of_waits_in_opposite_directions(tmp_path: Path):
    """One blocks the host for most of the step and gives nothing, one blocks it for half and gives nearly half."""
    shares = {}
    for name, count, host, kernel, last in (("idle host", 9, 20.0, 400.0, 400.0), ("turns", 19, 100.0, 4.0, 2_000.0)):
        trace = Trace(shapes=False)
        for number in range(20):
            with trace.step(number):
                for _ in range(count):
                    trace.op("aten::mul", MATRIX, kernel, host_us=host)
                if name == "idle host":
                    trace.item()
                trace.op("aten::mul", MATRIX, last, host_us=host)
                if name == "turns":
                    trace.item()
        evidence = unprofiled(trace, tmp_path)
        waits = inner_waits(evidence)
        blocked = evidence.events.duration_ns[waits].sum() / 20e3
        before = now(evidence)
        shares[name] = blocked / before, (before - then(evidence, unwaiting(evidence), 0.5)) / before
    assert shares["idle host"][0] > 0.85
    assert shares["idle host"][1] < 0.02
    assert 0.45 < shares["turns"][0] < 0.55
    assert 0.43 < shares["turns"][1] < 0.5


def test_a_loop_of_waits_without_its_turns(tmp_path: Path):
    """12 turns of 200 us on the host with a wait in each: a twelfth of their time is left, the waits stay."""
    trace = Trace(shapes=False)
    for number in range(3):
        with trace.step(number):
            trace.op("aten::mul", MATRIX, 20.0, host_us=100.0)
            for _ in range(12):
                trace.item()
                trace.op("aten::mm", MATRIX, 20.0, host_us=200.0)
    evidence = unprofiled(trace, tmp_path)
    waits = inner_waits(evidence)
    assert len(waits) == 36
    before = now(evidence)
    effect = in_loop(evidence, waits, 1 / 12, 1 / 12)
    # the host's time within the turns, of which the device's waits are no part
    assert before - then(evidence, effect, 0.0) == pytest.approx(12 * 200 * 11 / 12, rel=0.05)
    # no floors are known of kernels without shapes: they take as long as now, all but the copies of 1.5 us
    assert then(evidence, effect, 1.0) == pytest.approx(then(evidence, effect, 0.0), abs=12 * 1.5)
    assert then(evidence, in_loop(evidence, waits, 1.0, 1.0), 0.0) == pytest.approx(before, abs=0.1)


# -- input ------------------------------------------------------------


def test_a_step_whose_input_is_loaded_elsewhere(tmp_path: Path):
    """5 ms of loading and 2 ms on the device that the step waits for: 2 ms are left, and taking over the batch."""
    trace = Trace(shapes=False)
    for number in range(4):
        with trace.step(number):
            trace.load(5_000.0)
            for _ in range(10):
                trace.op("aten::mul", MATRIX, 200.0, host_us=20.0)
            trace.synchronize()
    evidence = unprofiled(trace, tmp_path)
    rest = 20 + 10 * 201 + REACTION
    assert now(evidence) == pytest.approx(5_000 + rest, abs=5)
    assert then(evidence, not_loading(evidence, 0.0), 1.0) == pytest.approx(rest, abs=30)
    assert then(evidence, not_loading(evidence, 0.0), 0.0) == pytest.approx(rest, abs=30)
    # half of what a handed over batch costs where half of the effect is expected, all of it at the least
    assert then(evidence, not_loading(evidence, 400e3), 0.5) == pytest.approx(rest + 200, abs=30)
    assert then(evidence, not_loading(evidence, 400e3), 0.0) == pytest.approx(rest + 400, abs=30)


def test_a_copy_from_pageable_memory_made_from_pinned_memory(tmp_path: Path):
    """256 MB in 40 ms: the host stands in the call. Over a link of the machine's speed, and beside the step before."""
    trace = Trace(shapes=False)
    size = 256 << 20
    for number in range(12):
        with trace.step(number):
            begin = trace.now
            trace.copy_in(size, 40_000.0, pinned=False)
            call = next(one for one in reversed(trace.events) if one["name"] == "cudaMemcpyAsync")
            call["dur"] = trace.now - call["ts"]
            assert trace.now - begin > 40_000
            for _ in range(10):
                trace.op("aten::mul", MATRIX, 2_000.0, host_us=20.0)
    evidence = unprofiled(trace, tmp_path)
    assert evidence.machine is not None
    assert evidence.machine.host_bytes_per_s is not None
    quick = size / evidence.machine.host_bytes_per_s.value * 1e6
    assert quick < 15_000
    effect = prefetched(evidence, inward_copies(evidence))
    device = 10 * 2_001
    # one stream: the copy of a step comes behind the kernels of the one before it
    assert now(evidence) == pytest.approx(40_000 + device, rel=0.02)
    assert then(evidence, effect, 0.0) == pytest.approx(quick + device, rel=0.02)
    assert then(evidence, effect, 1.0) == pytest.approx(device, rel=0.05)


# -- turns ------------------------------------------------------------


def test_a_loop_s_turns_in_the_launches_of_one(tmp_path: Path):
    """20 turns of 100 us on the host and 5 us on the device: the device's time and one turn's launches are left."""
    trace, begins = Trace(shapes=False), []
    with trace.step(0):
        for _ in range(20):
            begins.append(trace.now)
            trace.op("aten::mul", MATRIX, 5.0, host_us=100.0)
        trace.synchronize()
    evidence = unprofiled(trace, tmp_path)
    first = int(evidence.recorded_steps.begins[0])
    made = StepLoop(0, first + np.array([(one - begins[0]) * 1e3 for one in begins]).astype(np.int64))
    loop = CostlyLoop(made, work_of(evidence, made), np.array([], dtype=np.int64), 20)
    assert then(evidence, as_one_turn(evidence, loop), 1.0) == pytest.approx(20 * 5 + 5 + REACTION, abs=5)
    half = then(evidence, as_one_turn(evidence, loop), 0.0)
    assert half == pytest.approx(20 * 100 / 2 + 20 * 100 / 20 + 5 + REACTION, rel=0.02)
    rows = then(evidence, as_one_turn(evidence, replace(loop, deep=200)), 0.0)  # ten rows in each turn, all at once
    assert rows == pytest.approx(20 * 100 / 2 + 20 * 100 / 200 + 5 + REACTION, rel=0.02)


# -- launches ------------------------------------------------------------


def test_an_optimizer_in_one_launch(tmp_path: Path):
    """10 launches of 100 us become one; at best its kernel moves a third of the bytes.

    Of 10 kernels of 5 us 9 lose what an empty one takes: 1 us each at the least, 2 us at the most.
    """
    evidence = launch_bound(tmp_path)
    work = evidence.updates.work
    assert len(work) == 30
    least, most = 50.0 - 9, (50.0 - 9 * 2) / 3
    for share, kernel in ((0.0, least), (0.5, (least + most) / 2), (1.0, most)):
        after = then(evidence, as_one_launch(evidence, work, 1 / 3), share)
        assert after == pytest.approx(21 * 100 - 1 + kernel + REACTION, abs=2)


def test_the_python_between_an_optimizer_s_launches_is_gone_at_the_most(tmp_path: Path):
    """9 pauses of 50 us between 10 launches: at the least they stay, at the most they are gone; what lies between
    the launches of others stays."""
    trace = Trace(shapes=False)
    for number in range(3):
        with trace.step(number):
            for _ in range(20):
                trace.op("aten::mul", MATRIX, 5.0, host_us=100.0)
                trace.now += 50.0
            with trace.annotated(OPTIMIZER):
                for at in range(10):
                    trace.op("aten::addcmul_", MATRIX, 5.0, host_us=100.0)
                    if at < 9:
                        trace.now += 50.0
            trace.synchronize()
    evidence = unprofiled(trace, tmp_path)
    work = evidence.updates.work
    for share, pauses in ((0.0, 9 * 50.0), (0.5, 9 * 25.0), (1.0, 0.0)):
        after = then(evidence, as_one_launch(evidence, work, 1.0), share)
        kernel = 50.0 - 9 * (1 + share)
        # the one kernel runs while the host goes through the pauses that are left
        assert after == pytest.approx(20 * 150 + 100 + max(pauses, kernel + REACTION - 1), abs=2)


def written_out(folder: Path, *ops: str, optimizer: str = OPTIMIZER) -> Evidence:
    """Steps of one matmul and an optimizer that updates 4 parameters by these operations of 5 us each."""
    trace = Trace(shapes=False)
    for number in range(3):
        with trace.step(number):
            trace.op("aten::mul", MATRIX, 5.0, host_us=100.0)
            with trace.annotated(optimizer):
                for _ in range(4):
                    for one in ops:
                        trace.op(one, MATRIX, 5.0, host_us=100.0)
            trace.synchronize()
    return unprofiled(trace, folder)


ADAM = ("aten::mul_", "aten::lerp_", "aten::mul_", "aten::addcmul_", "aten::sqrt", "aten::div", "aten::add_",
        "aten::addcdiv_")  # fmt: skip


@pytest.mark.parametrize(
    ("ops", "parameters"), [(ADAM, 4), (("aten::pow", *ADAM), 0), (("aten::mul_", "aten::add_"), 0)],
    ids=["Adam", "that counts on the device already", "SGD"],
)  # fmt: skip
def test_in_a_graph_an_adam_written_out_counts_on_the_device(ops, parameters: int, tmp_path: Path):
    evidence = written_out(tmp_path, *ops)
    assert len(counting(evidence, evidence.updates)) == 3 * parameters
    kernels = 1 + 4 * len(ops)
    after = then(evidence, as_graph(evidence), 1.0)
    more = parameters * STEP_COUNT_LAUNCHES * (STEP_COUNT_KERNEL_NS + IN_GRAPH_NS) / 1e3
    assert after == pytest.approx(10 + kernels * (5 + IN_GRAPH_NS / 1e3) + more + REACTION, abs=4)


def test_others_that_divide_as_an_adam_does_are_not_taken_for_one(tmp_path: Path):
    """RMSprop divides as well, and of what it counts there is one launch more."""
    steps = ("aten::mul_", "aten::addcmul_", "aten::sqrt", "aten::add_", "aten::addcdiv_")
    evidence = written_out(tmp_path, *steps, optimizer="Optimizer.step#RMSprop.step")
    assert len(counting(evidence, evidence.updates)) == 0


def test_what_an_adam_launches_more_where_it_counts_on_the_device_is_as_a_trace_has_it():
    events = read_trace(str(H200 / "small_parameters.cuda_graph.json.gz")).ranks[0].events
    kernels = [events.name_of(row) for row in events.of(EventKind.KERNEL).tolist()]
    parameters = sum("addcdiv" in one for one in kernels)
    model = ("gemm", "tanh", "cublas", "cutlass", "reduce_kernel", "mse")
    updates_of = sum(not any(word in one for word in model) for one in kernels)
    assert updates_of / parameters == pytest.approx(len(ADAM) + STEP_COUNT_LAUNCHES, abs=0.1)
    lengths = events.duration_ns[events.of(EventKind.KERNEL)]
    assert float(np.median(lengths)) == pytest.approx(STEP_COUNT_KERNEL_NS, rel=0.05)


def test_a_larger_batch_costs_nothing_until_the_device_is_the_bound(tmp_path: Path):
    """The host needs 3 ms. Of 20 kernels of 5 us what is above the fixed part grows; the updates stay as they are."""
    evidence = launch_bound(tmp_path)
    before = now(evidence)
    assert then(evidence, larger(evidence, 4.0), 1.0) == pytest.approx(before, abs=1)
    assert then(evidence, larger(evidence, 4.0), 0.5) == pytest.approx(before, abs=1)
    assert then(evidence, larger(evidence, 4.0), 0.0) == pytest.approx(4 * before, rel=0.01)
    times, fixed = 200.0, FIXED_NS / 1e3
    kernels = 20 * (fixed + (5 - fixed) * times) + 10 * 5
    assert then(evidence, larger(evidence, times), 1.0) == pytest.approx(100 + kernels + REACTION, abs=3)


# -- the queue ------------------------------------------------------------


def test_a_full_queue_keeps_the_host_from_hiding_its_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """3,000 kernels of 100 us, a wait, and 200 ms of computing on the host; without the wait the host is ahead by 1,024
    kernels, 103 ms, and no more: the rest of the computing is not hidden."""
    monkeypatch.setattr(traces, "LATENCY_US", 7.0)
    trace = Trace(shapes=False)
    with trace.step(0):
        for _ in range(3_000):
            trace.op("aten::mul", MATRIX, 100.0, host_us=10.0)
        trace.item()
        trace.host("aten::sort", 200_000.0)
        trace.op("aten::mul", MATRIX, 100.0, host_us=10.0)
    evidence = unprofiled(trace, tmp_path)
    device = 3_001 * 101
    assert now(evidence) == pytest.approx(device + 200_000, rel=0.005)
    after = then(evidence, unwaiting(evidence), 1.0)
    # the launch of kernel 3,000 returns when kernel 1,976 begins
    assert after == pytest.approx(1_976 * 101 + 200_000, rel=0.005)
