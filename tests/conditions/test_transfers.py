"""D02 and N01, sick and healthy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conditions.makers import blocking_copy, extra, seen_of, shipped, what_its_calls_lose
from tests.evidence import certain, check, findings, found, predict
from tests.traces import Trace

BATCH = 77_070_336


def fed(trace: Trace, *, pinned: bool, bytes_: int = BATCH, us: float = 12_000.0) -> None:
    if pinned:
        trace.copy_in(bytes_, us, pinned=True)
    else:
        blocking_copy(trace, bytes_, us)
    for _ in range(20):
        trace.op("aten::mm", [[4096, 4096], [4096, 4096]], 300.0, host_us=10.0)
    trace.synchronize()


def test_a_batch_from_pageable_memory(tmp_path: Path):
    seen = certain(seen_of(tmp_path, lambda trace: fed(trace, pinned=False)))
    finding = found("D02", seen)
    # 77.07 MB at the H100's 63 GB/s take 1.22 ms
    assert finding.at_stake_ns == (pytest.approx(10.78e6, rel=0.02), pytest.approx(12e6, rel=0.01))
    given = predict("prefetch-pinned", seen, finding)
    assert given is not None
    # the copy at the link's speed; beside the step before, whose 6 ms it fits into, none of it is left
    assert given.predicted_saving_ns == what_its_calls_lose(finding)
    assert given.expected_ns == pytest.approx(12e6, rel=0.01)


def test_a_copy_that_takes_longer_than_the_step_is_left_where_it_does(tmp_path: Path):
    """One matmul of 0.3 ms hides no more than that of a pinned copy of 1.22 ms."""

    def body(trace: Trace) -> None:
        blocking_copy(trace, BATCH, 12_000.0)
        trace.op("aten::mm", [[4096, 4096], [4096, 4096]], 300.0, host_us=10.0)
        trace.synchronize()

    seen = certain(seen_of(tmp_path, body, count=6))
    given = predict("prefetch-pinned", seen, found("D02", seen))
    assert given is not None
    assert given.predicted_saving_ns[0] == pytest.approx(12e6 - BATCH / 63e9 * 1e9, rel=0.01)
    assert given.predicted_saving_ns[1] <= 12.31e6 - BATCH / 63e9 * 1e9


def test_pinned_memory_is_healthy(tmp_path: Path):
    assert check("D02", seen_of(tmp_path, lambda trace: fed(trace, pinned=True))) is None


def test_small_pageable_copies_are_waits_and_not_transfers(tmp_path: Path):
    assert check("D02", seen_of(tmp_path, lambda trace: fed(trace, pinned=False, bytes_=4096, us=3.0))) is None


def test_the_slow_loader_copies_from_pageable_memory_and_counts_it_once():
    seen = shipped("resnet_slow_loader.faulty")
    settled = {one.code: one for one in findings(seen)}
    assert {"D01", "D02"} <= set(settled)
    assert any("belong to D02" in fact for fact in settled["D01"].evidence)
    # the idle time, which D01's low end rests on, is its own
    assert settled["D01"].at_stake_ns[0] == pytest.approx(found("D01", seen).at_stake_ns[0])


@pytest.mark.parametrize("name", ["holdout/pinned_loader", "holdout/loader_workers_8"])
def test_pinned_loaders_are_healthy(name: str):
    assert check("D02", extra(name)) is None


def step_with(trace: Trace, *, after: bool, count: int = 20, us: float = 100.0) -> None:
    """A backward of ten matmuls, `count` all-reduces behind or beside them, and an optimizer that waits for them."""
    end = 0.0
    for _ in range(10):
        trace.op("aten::mm", [[4096, 4096], [4096, 4096]], 300.0, host_us=10.0)
        if not after:
            for _ in range(count // 10):
                end = trace.collective(us, 250_000, after=max(end, trace.free - 300.0))
    if after:
        for _ in range(count):
            end = trace.collective(us, 250_000, after=max(end, trace.free))
    trace.free = max(trace.free, end)
    trace.op("aten::_foreach_add_", [[4096, 4096]], 50.0, host_us=10.0)
    trace.synchronize()


def test_gradients_reduced_behind_the_backward(tmp_path: Path):
    seen = certain(seen_of(tmp_path, lambda trace: step_with(trace, after=True)))
    finding = found("N01", seen)
    assert "allreduce" in (finding.where[0].op or "").lower()
    # all but the last of each step; the first one of a step may begin beside its last matmul
    assert finding.at_stake_ns[1] == pytest.approx(19 * 100e3, rel=0.04)
    # 2 * 1/2 * 1 MB received and as much sent, at 900 GB/s
    assert finding.at_stake_ns[0] == pytest.approx(19 * 2e6 / 900e9 * 1e9, rel=0.02)
    assert finding.certainty == "low"
    assert any("one rank does not show" in fact for fact in finding.evidence)
    given = predict("comm-overlap", seen, finding)
    assert given is not None
    # 20 of 0.1 ms behind ten matmuls of 0.3 ms: the first two of them go once six matmuls are done, the third once a
    # seventh is, from 2.1 ms on one behind the other to 3.9 ms instead of 5; at the least they were waiting for a rank
    assert given.predicted_saving_ns == (0.0, pytest.approx(1.06e6, rel=0.02))
    assert given.expected_ns == given.predicted_saving_ns[1]


def test_gradients_reduced_beside_the_backward_are_healthy(tmp_path: Path):
    assert check("N01", seen_of(tmp_path, lambda trace: step_with(trace, after=False))) is None


def test_the_last_collective_of_a_step_is_not_avoidable(tmp_path: Path):
    assert check("N01", seen_of(tmp_path, lambda trace: step_with(trace, after=True, count=1, us=900.0))) is None


def test_collectives_that_nothing_waits_for_are_not_on_the_path(tmp_path: Path):
    def body(trace: Trace) -> None:
        for _ in range(20):
            trace.collective(40.0, 250_000)
            trace.op("aten::mm", [[64, 64], [64, 64]], 2.0, host_us=200.0)

    assert check("N01", seen_of(tmp_path, body)) is None


def test_a_step_without_collectives_has_none(tmp_path: Path):
    assert check("N01", seen_of(tmp_path, lambda trace: fed(trace, pinned=True))) is None


@pytest.mark.parametrize("name", ["ddp_manual_after.rank0", "ddp_manual_after.rank1", "ddp_accum_sync.rank0"])
def test_gradients_reduced_one_by_one_or_for_each_micro_batch(name: str):
    assert check("N01", extra(name)) is not None


@pytest.mark.parametrize("name", ["ddp_good.rank0", "ddp_accum_nosync.rank0"])
def test_buckets_and_no_sync_are_healthy(name: str):
    assert check("N01", extra(name)) is None


@pytest.mark.parametrize("name", ["ddp_good.rank1", "ddp_accum_nosync.rank1"])
def test_a_rank_that_waits_for_the_other_is_said_to_wait(name: str):
    """The other rank was slower under the profiler. One rank can't tell; the low end is what the bytes need."""
    finding = found("N01", extra(name))
    assert finding.certainty == "low"
    assert finding.at_stake_ns[0] < 0.05 * finding.at_stake_ns[1]
    assert any("the rest is waiting or latency" in fact for fact in finding.evidence)
