"""The kernels of a step by name, the module of each row, and the rows of each module."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.api import diagnose
from tests.analysis.tables import SHIPPED, diagnosis, short
from tests.spread import spread

FRAMES = "tracelens/h100__facebook_timesformer-base-finetuned-k400__1016002.json.gz"


@pytest.mark.parametrize("path", spread(SHIPPED), ids=short)
def test_kernels_and_calls_have_the_same_device_time(path: Path) -> None:
    one = diagnosis(path)
    assert sum(row.ns for row in one.kernels) == pytest.approx(sum(row.ns for row in one.ops), rel=1e-9)
    assert [row.ns for row in one.kernels] == sorted((row.ns for row in one.kernels), reverse=True)
    assert len({row.name for row in one.kernels}) == len(one.kernels)


@pytest.mark.parametrize("path", spread(SHIPPED), ids=short)
def test_every_call_has_its_kernels(path: Path) -> None:
    one = diagnosis(path)
    of: dict[int, set[str]] = {index: set() for index in range(len(one.ops))}
    for kernel in one.kernels:
        for op in kernel.ops:
            of[op].add(kernel.name)
    assert all(row.kernel in of[index] for index, row in enumerate(one.ops))


def test_without_frames_no_module_is_made_up() -> None:
    one = diagnosis(SHIPPED[0])
    assert one.modules == []
    assert {row.module for row in one.ops} == {None}


def test_modules_name_their_rows_and_rows_their_module(public_traces: Path) -> None:
    one = diagnose(public_traces / FRAMES, python=True)
    whole = next(row for row in one.modules if len(row.path) == 1)
    names = {row.path[-1] for row in one.modules if row.path}
    assert whole.ops
    for row in one.modules:
        assert row.ops == sorted(set(row.ops))
        assert row.path[:1] != whole.path or set(row.ops) <= set(whole.ops)
    for index, op in enumerate(one.ops):
        assert op.module is None or op.module in names
        if op.module is not None:
            assert any(index in row.ops for row in one.modules if row.path[-1:] == [op.module])
    outer = sum(row.ns for row in one.modules if len(row.path) < 2)
    computing = sum(item.ns for item in one.budget if item.line in ("compute", "memory", "below_roof", "unpriced"))
    assert outer == pytest.approx(computing)  # both passes, and what is in no module
