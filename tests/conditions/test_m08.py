"""M08: the backward pass of indexing with repeated indices."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.model.diagnosis import NotChecked
from gobrrr.model.live import TensorUse
from tests.conditions.lives import ran
from tests.conditions.makers import seen_of, what_its_calls_lose
from tests.evidence import certain, check, found, predict
from tests.traces import Trace

VALUES = [1_000_000, 64]


def backward(trace: Trace, rows: int = 4, us: float = 4000.0, accumulate: str = "True") -> None:
    trace.op("aten::mm", [[4096, 4096]] * 2, 300.0)
    with trace.inside("autograd::engine::evaluate_function: IndexBackward0"), trace.inside("aten::index_put_"):
        trace.op("aten::sort", [[VALUES[0]]], 100.0, dtype="int64")
        printed = ["", "", "", accumulate, "True"]
        shapes = [[rows, 64], [], VALUES, [], []]
        trace.op("aten::_index_put_impl_", shapes, us, dtype="float32", concrete=printed)


def test_values_that_queue_for_four_rows(tmp_path: Path):
    seen = certain(seen_of(tmp_path, backward))
    finding = found("M08", seen)
    least = (64e6 + 2 * 4 * 64) * 4 / 3.35e12 * 1e9
    assert finding.at_stake_ns == (0.0, pytest.approx(4100e3 - least, rel=0.02))
    assert "each by index, >99.9 % of the values" in finding.evidence[0]
    given = predict("gather-backward", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == what_its_calls_lose(finding)


def test_as_many_rows_as_values_need_not_repeat(tmp_path: Path):
    assert check("M08", seen_of(tmp_path, lambda trace: backward(trace, rows=1_000_000))) is None


def test_a_live_run_counts_what_repeats(tmp_path: Path):
    def seen(share: float) -> TensorUse:
        return TensorUse(
            kind="duplicates", op="aten::_index_put_impl_", source=None, module=None, shapes="[1000000, 64]",
            share=share, total=1_000_000,
        )  # fmt: skip

    rows = 1_000_000
    assert found("M08", ran(tmp_path, lambda trace: backward(trace, rows=rows), uses=(seen(0.9),)))
    assert check("M08", ran(tmp_path, lambda trace: backward(trace, rows=rows), uses=(seen(0.1),))) is None


def test_at_the_bandwidth_there_is_nothing_to_gain(tmp_path: Path):
    def body(trace: Trace) -> None:
        for _ in range(20):
            trace.op("aten::mm", [[4096, 4096]] * 2, 300.0)
        backward(trace, us=1.0)

    assert check("M08", seen_of(tmp_path, body)) is None


def test_a_program_that_adds_by_itself_is_told_to_add_otherwise(tmp_path: Path):
    def body(trace: Trace) -> None:
        trace.op("aten::mm", [[4096, 4096]] * 2, 300.0)
        printed = ["", "", "", "True", "True"]
        trace.op("aten::_index_put_impl_", [[4, 64], [], VALUES, [], []], 4000.0, dtype="float32", concrete=printed)

    seen = seen_of(tmp_path, body)
    finding = found("M08", seen)
    assert "backward" not in finding.title
    given = predict("gather-backward", seen, finding)
    assert given is not None
    assert "index_add_" in given.how
    assert "index_select" not in given.how


def test_writing_without_adding_is_something_else(tmp_path: Path):
    assert check("M08", seen_of(tmp_path, lambda trace: backward(trace, accumulate="False"))) is None


def test_without_shapes_it_is_not_checked(tmp_path: Path):
    assert isinstance(check("M08", seen_of(tmp_path, backward, shapes=False)), NotChecked)
