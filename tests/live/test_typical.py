"""Of the recorded steps only those count that do what most of them do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

import torch  # noqa: E402

from gobrrr.analysis.events.links import link  # noqa: E402
from gobrrr.analysis.events.steps import find_steps  # noqa: E402
from gobrrr.observe.live.typical import typical_only  # noqa: E402
from gobrrr.observe.trace import read_trace  # noqa: E402
from tests.live.look import diagnosed  # noqa: E402
from tests.traces import Trace  # noqa: E402


def kept(folder: Path, ops: list[int]) -> tuple[int, list[str]]:
    """How many of steps with so many operations are left, and the notes."""
    trace = Trace()
    for number, count in enumerate(ops):
        with trace.step(number):
            for _ in range(count):
                trace.op("aten::mm", [[64, 64], [64, 64]], 2.0)
    notes: list[str] = []
    events = typical_only(read_trace(str(trace.write(folder))).ranks[0].events, notes)
    return find_steps(events, link(events)).count, notes


@pytest.mark.parametrize(
    ("ops", "left"),
    [
        ([40, 40, 40, 40, 40], 5),
        ([40, 45, 38, 41, 36], 5),  # batches of their own sizes
        ([40, 40, 90, 40, 40], 2),
        ([40, 90, 40, 40, 40], 3),
        ([40, 90, 40, 90, 40], 1),
        ([40, 40, 40, 40, 10], 4),
        ([40], 1),
    ],
)
def test_the_longest_run_of_like_steps(tmp_path: Path, ops: list[int], left: int) -> None:
    count, notes = kept(tmp_path, ops)
    assert count == left
    assert [note.split(" are")[0] for note in notes] == (
        [f"{len(ops) - left} of {len(ops)} recorded steps"] if left < len(ops) else []
    )


@pytest.mark.parametrize("first", range(4))
def test_an_evaluation_now_and_then_is_no_part_of_the_step(first: int) -> None:
    layer, x = torch.nn.Linear(256, 256), torch.randn(256, 256)
    turns = first

    def step() -> Any:
        nonlocal turns
        turns += 1
        layer(x).sum().backward()
        if turns % 4 == 0:
            with torch.no_grad():
                for _ in range(30):
                    layer(x)

    found = diagnosed(step)
    places = [where for one in found.findings for where in one.where if where.op == "aten::addmm"]
    assert all((one.count or 0) <= 1 for one in places)
    assert any("recorded steps are left out" in note for note in found.notes)
