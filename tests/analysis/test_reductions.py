"""Communication beside the backward pass, or once for several micro-batches: steps whose times can be said by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import WorkClass
from gobrrr.analysis.replay.what_if import in_turn
from gobrrr.analysis.savings.gains import Effect, length
from gobrrr.analysis.savings.reductions import BUCKETS, MOSTLY_HIDDEN, overlapping, reduced_once
from tests import traces
from tests.analysis.slow_simulator import arrays, every, named, same, unprofiled
from tests.traces import Trace

MATRIX = [[64, 64], [64, 64]]
LAYER, UPDATE, PAUSE, REACTION = 200.0, 100.0, 1.0, 3.0
STEPS = 3


@pytest.fixture(autouse=True)
def _latency(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work begins behind its call, so that a launch's latency can be seen in the trace."""
    monkeypatch.setattr(traces, "LATENCY_US", 7.0)


def ddp(folder: Path, *, micro: int = 1, count: int = 16, us: float = 50.0, every_time: bool = True) -> Evidence:
    """`micro` times 16 layers of 200 us and behind them `count` reductions of `us`; then an update, and the end."""
    trace = Trace(shapes=False)
    for number in range(STEPS):
        with trace.step(number):
            for turn in range(micro):
                for _ in range(16):
                    trace.op("aten::mul", MATRIX, LAYER, host_us=10.0, kernel="layer")
                if every_time or turn == micro - 1:
                    after = trace.free
                    for _ in range(count):
                        after = trace.collective(us, 1 << 20, after=after + PAUSE)
                    trace.free = after
            trace.op("aten::mul", MATRIX, UPDATE, host_us=10.0, kernel="update")
            trace.synchronize()
    return unprofiled(trace, folder)


def us_of(one: Evidence, effect: Effect | None = None, share: float = 1.0) -> float:
    return length(one, one.graph if effect is None else effect(share)(one.graph)) / 1e3


FIRST = 12.0
"""From the begin of a step to that of its first kernel."""


def by_hand(micro: int, collectives: float, us: float) -> float:
    """All in turn: layers, collectives, an update, the wait."""
    return FIRST + micro * 16 * (LAYER + PAUSE) + collectives * (us + PAUSE) + UPDATE + REACTION


def test_reductions_behind_the_backward_pass_take_all_of_their_time(tmp_path: Path):
    assert us_of(ddp(tmp_path)) == pytest.approx(by_hand(1, 16, 50.0), abs=5)


def test_beside_the_backward_pass_only_the_last_bucket_is_seen(tmp_path: Path):
    """16 reductions of 50 us hide behind the second half of 3.2 ms of computing; two of them, a bucket, do not."""
    one = ddp(tmp_path)
    assert us_of(one, overlapping(one)) == pytest.approx(by_hand(1, 16 / BUCKETS, 50.0), abs=5)


def test_at_the_least_nothing_is_hidden_and_as_expected_most(tmp_path: Path):
    """Those that are not moved run behind all that was computed, and what follows waits for the last of them."""
    one = ddp(tmp_path)
    least, expected, most = (us_of(one, overlapping(one), share) for share in (0.0, 0.5, 1.0))
    assert least == pytest.approx(by_hand(1, 16, 50.0), abs=5)
    hidden = round(16 * MOSTLY_HIDDEN)
    assert expected == pytest.approx(by_hand(1, 16 - hidden, 50.0), abs=5)
    assert most < expected < least


def test_what_does_not_fit_beside_the_computing_is_seen(tmp_path: Path):
    """16 reductions of 400 us: 6.4 ms from the first bucket on, which is ready after 9 of 16 layers."""
    one = ddp(tmp_path, us=400.0)
    ready = FIRST + 9 * (LAYER + PAUSE)
    assert us_of(one, overlapping(one)) == pytest.approx(ready + 16 * 400.0 + UPDATE + REACTION, abs=30)
    assert us_of(one) == pytest.approx(by_hand(1, 16, 400.0), abs=5)


def test_a_single_reduction_is_the_last_bucket_and_stays_where_it_is(tmp_path: Path):
    one = ddp(tmp_path, count=1, us=500.0)
    assert us_of(one, overlapping(one)) == pytest.approx(us_of(one), abs=3)


@pytest.mark.parametrize("us", [20.0, 50.0, 150.0, 200.0])
@pytest.mark.parametrize("micro", [1, 2, 4])
def test_the_last_micro_batchs_gradients_are_not_reduced_before_they_are_there(tmp_path: Path, micro: int, us: float):
    """Each micro-batch's collectives begin in its own second half: a bucket, or what does not fit, is seen at the end.
    So it is where only the last one's are left.
    """
    one = ddp(tmp_path, micro=micro, us=us)
    beside, once = overlapping(one)(1.0), reduced_once(one, micro)(1.0)
    computing = FIRST + micro * 16 * (LAYER + PAUSE) + UPDATE + REACTION
    seen = max(16 * (us + PAUSE) - 7 * (LAYER + PAUSE), 16 / BUCKETS * (us + PAUSE))
    for change in ([once, beside], [beside, once]) if micro > 1 else ([beside],):
        changed = in_turn(change)(one.graph)
        assert length(one, changed) / 1e3 == pytest.approx(computing + seen, abs=20)


def test_collectives_that_already_run_beside_the_computing_gain_nothing(tmp_path: Path):
    """One behind each of 16 layers, which nothing waits for until the update: not what is computed beside the last."""
    trace = Trace(shapes=False)
    for number in range(STEPS):
        with trace.step(number):
            after = 0.0
            for _ in range(16):
                trace.op("aten::mul", MATRIX, LAYER, host_us=10.0, kernel="layer")
                after = trace.collective(50.0, 1 << 20, after=max(trace.free, after) + PAUSE)
            trace.op("aten::mul", MATRIX, 40.0, host_us=10.0, kernel="layer")
            trace.free = max(after, trace.free)
            trace.op("aten::mul", MATRIX, UPDATE, host_us=10.0, kernel="update")
            trace.synchronize()
    one = unprofiled(trace, tmp_path)
    assert us_of(one) == pytest.approx(FIRST + 16 * (LAYER + PAUSE) + 50.0 + UPDATE + REACTION, abs=10)
    for share in (0.0, 0.5, 1.0):
        assert us_of(one, overlapping(one), share) == pytest.approx(us_of(one), abs=10)


@pytest.mark.parametrize("micro", [2, 4])
def test_reduced_once_leaves_the_last_micro_batchs(tmp_path: Path, micro: int):
    one = ddp(tmp_path, micro=micro)
    assert us_of(one) == pytest.approx(by_hand(micro, micro * 16, 50.0), abs=8)
    assert us_of(one, reduced_once(one, micro)) == pytest.approx(by_hand(micro, 16, 50.0), abs=8)
    left = reduced_once(one, micro)(1.0)(one.graph)
    reductions = named(one, "AllReduce")
    kept = reductions[~left.gone[reductions]].reshape(STEPS, -1)
    assert kept.tolist() == reductions.reshape(STEPS, -1)[:, -16:].tolist()


def test_reduced_once_is_the_step_that_reduces_once(tmp_path: Path):
    """Held against the trace of that step."""
    faulty, fixed = ddp(tmp_path, micro=3), ddp(tmp_path, micro=3, every_time=False)
    assert us_of(faulty, reduced_once(faulty, 3)) == pytest.approx(us_of(fixed), rel=0.005)


def test_one_micro_batch_has_nothing_to_leave_out(tmp_path: Path):
    one = ddp(tmp_path)
    assert same(arrays(reduced_once(one, 1)(1.0)(one.graph)), arrays(one.graph))


def test_a_step_without_collectives_stays_as_it_is(tmp_path: Path):
    one = ddp(tmp_path, count=0)
    for effect in (overlapping(one), reduced_once(one, 4)):
        for share in (0.0, 0.5, 1.0):
            assert same(arrays(effect(share)(one.graph)), arrays(one.graph))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("count", [1, 3, 8, 40])
def test_what_is_moved_is_neither_lost_nor_longer(tmp_path: Path, count: int, share: float):
    one = ddp(tmp_path, count=count)
    graph = overlapping(one)(share)(one.graph)
    assert np.array_equal(graph.duration, one.graph.duration)
    assert not graph.gone.any()
    # computing stays on its stream and in its order
    computing = np.setdiff1d(every(graph), np.flatnonzero(one.priced.kind == WorkClass.COMMUNICATION))
    assert np.array_equal(graph.stream[computing], one.graph.stream[computing])
    assert np.array_equal(graph.called[computing], one.graph.called[computing])
    assert us_of(one, overlapping(one), share) <= us_of(one) + 3


def test_the_host_launches_a_collective_a_bucket(tmp_path: Path):
    """80 collectives of a few us each, bound by their launches: 8 launches are left."""
    one = ddp(tmp_path, count=80, us=1.0)
    before = float(one.graph.left.sum()) / STEPS
    after = float(overlapping(one)(1.0)(one.graph).left.sum()) / STEPS
    each = 7.0e3 - 2.0e3  # of what a collective takes on the host, what its call and the operation around it have
    assert before - after == pytest.approx((80 - BUCKETS) * each, rel=0.05)
