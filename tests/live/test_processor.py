"""Which operations of a CPU compute, and which only call others."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from gobrrr.model.events import EventKind, EventTable  # noqa: E402
from gobrrr.observe.live import processor  # noqa: E402
from tests.analysis.tables import Row, table  # noqa: E402

pytestmark = pytest.mark.torch

FIXED = 1000.0


def op(name: str, start: int, length: int) -> Row:
    return Row(EventKind.OP, name, start, length, thread=1)


def computed(*rows: Row) -> dict[str, int]:
    """Nanoseconds of computing by operation."""
    events: EventTable = table(rows)
    pieces = processor.computing(events, FIXED)
    found: dict[str, int] = {}
    for row, ns in zip(pieces.op.tolist(), pieces.duration_ns.tolist(), strict=True):
        found[events.name_of(row)] = found.get(events.name_of(row), 0) + ns
    return found


def test_an_operation_computes_in_its_time_less_that_of_an_empty_one():
    assert computed(op("aten::mm", 0, 10_000)) == {"aten::mm": pytest.approx(9_000, abs=2)}


def test_what_converts_by_calling_a_copy_is_dispatch():
    found = computed(op("aten::_to_copy", 0, 20_000), op("aten::copy_", 8_000, 10_000))
    assert set(found) == {"aten::copy_"}


def test_a_mean_around_its_sum_is_dispatch():
    found = computed(op("aten::mean", 0, 60_000), op("aten::sum", 5_000, 50_000))
    assert set(found) == {"aten::sum"}


def test_a_kernel_that_clears_its_result_first_still_computes():
    # the zeros take longer, but 100 us are no dispatch
    found = computed(op("aten::embedding_dense_backward", 0, 900_000), op("aten::zeros", 1_000, 800_000),
                     op("aten::zero_", 2_000, 790_000))  # fmt: skip
    assert found["aten::embedding_dense_backward"] > 90_000
    assert "aten::zeros" not in found


def test_views_and_allocations_compute_nothing():
    assert computed(op("aten::view", 0, 5_000), op("aten::empty", 6_000, 5_000)) == {}
