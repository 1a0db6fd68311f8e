"""D01 on traces made by hand, sick and healthy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.doors.pipeline import evidence_of
from gobrrr.observe.trace import read_trace
from tests.conditions.makers import blocking_copy, indexing
from tests.evidence import between, certain, check, evidence_from, found, predict
from tests.traces import Trace

BATCH = 77_070_336
"""128 images of 3 x 224 x 224 in float32."""


def seen_of(tmp_path: Path, feed):
    return certain(uncertain(tmp_path, feed))


def uncertain(tmp_path: Path, feed):
    trace = Trace()
    for number in range(4):
        with trace.step(number):
            feed(trace)
            for _ in range(20):
                trace.op("aten::mm", [[4096, 4096], [4096, 4096]], 200.0, host_us=10.0)
            trace.synchronize()
    return evidence_from(trace.write(tmp_path))


def test_a_loader_in_the_training_thread_starves_the_device(tmp_path: Path):
    seen = seen_of(tmp_path, loaded)
    finding = found("D01", seen)
    assert finding.certainty == "high"
    assert "DataLoader" in (finding.where[0].op or "")
    assert sum("before its input is there" in fact for fact in finding.evidence) == 1
    assert all(fact.count(" ms") == len(set(re.findall(r"[\d.]+ ms", fact))) for fact in finding.evidence)
    # the loader runs while the device has nothing to do; nine tenths of its time are its own
    assert finding.at_stake_ns[0] == pytest.approx(6e6, rel=0.15)
    assert finding.at_stake_ns[1] == pytest.approx(7.5e6, rel=0.15)


def test_transforms_on_the_host_in_front_of_the_copy_count(tmp_path: Path):
    def feed(trace: Trace) -> None:
        trace.host("aten::flip", 2500.0)
        trace.host("aten::std", 2500.0)
        blocking_copy(trace, BATCH, 1500.0)

    finding = found("D01", seen_of(tmp_path, feed))
    assert {one.op for one in finding.where} == {"aten::flip", "aten::std"}


def test_pinned_copies_promise_only_the_overlap(tmp_path: Path):
    def feed(trace: Trace) -> None:
        trace.load(3000.0)
        trace.copy_in(BATCH, 1400.0, pinned=True)

    seen = seen_of(tmp_path, feed)
    given = predict("prefetch-pinned", seen, found("D01", seen))
    assert given is not None
    assert given.predicted_saving_ns == (0, pytest.approx(1.4e6, rel=0.01))


def loaded(trace: Trace) -> None:
    trace.load(6000.0)
    blocking_copy(trace, BATCH, 1500.0)


def test_a_step_of_an_uncertain_time_waits_for_an_uncertain_time(tmp_path: Path):
    sure = seen_of(tmp_path, loaded)
    seen = between(sure, 0.8, 1.2)
    finding = found("D01", seen)
    assert finding.at_stake_ns[0] == pytest.approx(found("D01", sure).at_stake_ns[0] - 0.2 * sure.wall_ns)


def test_workers_save_the_loading_less_the_handing_over(tmp_path: Path):
    """One batch a step is made in this thread, and would have to be handed over: 0.4 ms, and none at best."""
    sure = seen_of(tmp_path, loaded)
    low, _ = found("D01", sure).at_stake_ns
    given = predict("dataloader-workers", sure, found("D01", sure))
    assert given is not None
    assert given.predicted_saving_ns == pytest.approx((low - 400_000, low), rel=0.001)


def test_what_workers_save_is_as_known_as_the_host_s_time(tmp_path: Path):
    seen = uncertain(tmp_path, loaded)
    sure, given = (predict("dataloader-workers", one, found("D01", one)) for one in (certain(seen), seen))
    assert sure is not None
    assert given is not None
    low, high = given.predicted_saving_ns
    assert low < sure.predicted_saving_ns[0] < sure.predicted_saving_ns[1] < high
    # no longer than the loading was recorded
    assert high <= 6.01e6


def test_workers_do_not_promise_the_copy(tmp_path: Path):
    seen = seen_of(tmp_path, loaded)
    finding = found("D01", seen)
    given = predict("dataloader-workers", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns[1] <= finding.at_stake_ns[1] - 1.4e6


def test_a_loader_that_is_fast_is_healthy(tmp_path: Path):
    def feed(trace: Trace) -> None:
        trace.load(30.0)
        trace.copy_in(BATCH, 100.0, pinned=True)

    assert check("D01", seen_of(tmp_path, feed)) is None


def test_a_slow_loader_hidden_behind_the_device_is_healthy(tmp_path: Path):
    """No wait: the host loads the next batch while the device still works on this one."""
    trace = Trace()
    for number in range(4):
        with trace.step(number):
            trace.load(1500.0)
            trace.copy_in(BATCH, 100.0, pinned=True)
            for _ in range(20):
                trace.op("aten::mm", [[4096, 4096], [4096, 4096]], 200.0, host_us=10.0)
    evidence = evidence_from(trace.write(tmp_path))
    result = check("D01", evidence)
    # only the first batch is waited for: 1.5 ms of four steps of 4 ms
    assert result is None or result.at_stake_ns[1] < 0.15 * evidence.wall_ns


def test_a_data_set_in_memory_is_to_be_indexed_by_batch(tmp_path: Path):
    """64 items, 12 us each of picking and joining, the copy of 20 us stays: 770 us of 790 go."""
    seen = certain(indexing(tmp_path))
    finding = found("D01", seen)
    assert finding.treatments[0] == "index-batch"
    assert any("item by item: 64 items a batch" in fact for fact in finding.evidence)
    assert predict("dataloader-workers", seen, finding) is not None  # asked for, it has an answer; it is not told
    given = predict("index-batch", seen, finding)
    assert given is not None
    low, high = given.predicted_saving_ns
    assert 0.85 * 770e3 < low <= high <= 775e3
    assert "index by batch" in given.how


@pytest.mark.parametrize(("items", "made_us"), [(64, 40.0), (8, 400.0)])
def test_items_that_take_longer_to_make_than_to_pick_are_for_workers(tmp_path: Path, items: int, made_us: float):
    seen = certain(indexing(tmp_path, items, made_us))
    finding = found("D01", seen)
    assert finding.treatments[0] == "dataloader-workers"
    assert predict("index-batch", seen, finding) is None


STARTED = (
    ("train.py(3): epoch", 5000.0, ("torch/utils/data/dataloader.py(500): __iter__", 4500.0,
     ("torch/utils/data/dataloader.py(420): _get_iterator", 4400.0,
      ("multiprocessing/process.py(110): start", 4000.0, None)))),
)  # fmt: skip


def framed(trace: Trace, frame) -> None:
    name, us, inner = frame
    trace._add("python_function", name, trace.now, us)
    if inner is not None:
        framed(trace, inner)


def started(folder: Path, *frames) -> Evidence:
    trace = Trace()
    for number in range(4):
        with trace.step(number):
            for frame in frames:
                framed(trace, frame)
                trace.now += frame[1]
            trace.copy_in(2_000_000, 50.0, pinned=True)
            trace.op("aten::mm", [[512, 512], [512, 512]], 20.0)
            trace.synchronize()
    return certain(evidence_of(read_trace(str(trace.write(folder)), python=True).ranks[0])[0])


def test_workers_that_each_epoch_starts_are_to_be_kept(tmp_path: Path):
    seen = started(tmp_path, *STARTED)
    finding = found("D01", seen)
    assert any("workers are started in the step" in fact for fact in finding.evidence)
    given = predict("dataloader-workers", seen, finding)
    assert given is not None
    assert "persistent_workers=True" in given.how
    assert "num_workers" not in given.how
    assert given.predicted_saving_ns[1] == pytest.approx(4.4e6, rel=0.05)


def folder(above: Path, us: float) -> Path:
    made = above / str(us)
    made.mkdir()
    return made


def test_a_function_that_makes_a_batch_at_once_is_no_input_pipeline(tmp_path: Path):
    """60 us of a step of some 150, in a function of the program's that is called like a loader."""
    quick, slow = (started(folder(tmp_path, us), ("train.py(9): get_batch", us, None)) for us in (60.0, 600.0))
    assert check("D01", quick) is None
    assert found("D01", slow)
