"""Kernels of a replayed graph, priced by its capture: one by one where the numbers agree, else as one piece of work."""

from __future__ import annotations

import numpy as np
import pytest

from gobrrr.analysis.events.links import link
from gobrrr.analysis.events.steps import StepWindow, find_steps
from gobrrr.analysis.pricing.captured import REPLAY, with_captured
from gobrrr.analysis.pricing.price import Priced, price_all
from gobrrr.analysis.pricing.roofline import floor
from gobrrr.cost import price
from gobrrr.hardware import find
from gobrrr.model.events import EventKind, EventTable
from gobrrr.model.recording import RecordedCall, Recording, Site
from gobrrr.model.work import OpCall, Tensor
from tests.analysis.tables import Row, launched, table

X = Tensor(shape=(1024, 1024), dtype="float32", strides=(1024, 1))
CALLS = (
    OpCall(name="aten::mm", inputs=(X, X)),
    OpCall(name="aten::t", inputs=(X,)),
    OpCall(name="aten::relu", inputs=(X,)),
)
H100 = find("h100")


def recording(*calls: OpCall, notes: tuple[str, ...] = (), replayed: bool = True) -> Recording:
    made = tuple(RecordedCall(call, "forward", 0, replayed=replayed) for call in calls)
    return Recording(
        target="", calls=made, sites=(Site(),), peak_bytes=0, start_bytes=0, module_calls=0, on_cpu=False, notes=notes
    )  # fmt: skip


def replays(kernels: int, steps: int = 3) -> EventTable:
    rows = []
    for step in range(steps):
        at = step * 1_000_000
        rows.append(Row(EventKind.ANNOTATION, f"ProfilerStep#{step}", at, 900_000))
        rows.append(Row(EventKind.RUNTIME, "cudaGraphLaunch", at + 1_000, 5_000, correlation=step + 1))
        for number in range(kernels):
            start = at + 10_000 + number * 100_000
            rows.append(Row(EventKind.KERNEL, f"kernel{number}", start, 50_000 * (number + 1), correlation=step + 1))
    return table(rows)


def priced(events: EventTable, seen: Recording | None) -> tuple[Priced, StepWindow]:
    links = link(events)
    steps = find_steps(events, links)
    return with_captured(price_all(events, links, H100), events, steps, seen, H100), steps


def floor_of(call: OpCall) -> float:
    found = floor(price(call), H100)
    assert found is not None
    return found.ns


def test_as_many_kernels_as_operations_are_priced_one_by_one() -> None:
    found, _ = priced(replays(2), recording(*CALLS))  # a view makes no kernel
    assert found.floor_ns.tolist() == pytest.approx([floor_of(CALLS[0]), floor_of(CALLS[2])] * 3)
    assert [found.groups[one].call.name for one in found.group.tolist()] == ["aten::mm", "aten::relu"] * 3


def test_otherwise_the_graph_is_one_piece_of_work() -> None:
    found, steps = priced(replays(3), recording(*CALLS))
    whole = floor_of(CALLS[0]) + floor_of(CALLS[2])
    assert float(found.floor_ns.sum()) == pytest.approx(whole * steps.count)
    assert {found.groups[one].call.name for one in found.group.tolist()} == {REPLAY}
    assert found.floor_ns[:3].tolist() == pytest.approx([whole / 6, whole / 3, whole / 2])  # by duration


@pytest.mark.parametrize(
    "seen",
    [
        None,
        recording(),
        recording(*CALLS, replayed=False),
        recording(*CALLS, notes=("2 replays of CUDA graphs whose capture was not seen: their work is missing",)),
    ],
)
def test_what_was_not_seen_whole_prices_nothing(seen: Recording | None) -> None:
    found, _ = priced(replays(2), seen)
    assert np.isnan(found.floor_ns).all()


def test_an_operation_without_a_count_leaves_its_kernel_or_the_whole_without_a_floor() -> None:
    seen = recording(*CALLS, OpCall(name="mine::unknown", inputs=(X,)))
    one_by_one, _ = priced(replays(3), seen)
    assert np.isnan(one_by_one.floor_ns).tolist() == [False, False, True] * 3
    as_one, _ = priced(replays(4), seen)
    assert {as_one.groups[one].call.name for one in as_one.group.tolist()} == {REPLAY}
    assert np.isnan(as_one.floor_ns).all()


def test_launched_work_keeps_its_own_price() -> None:
    rows = [Row(EventKind.ANNOTATION, "ProfilerStep#0", 0, 900_000), *launched("own", 1_000, 5_000, 1_000, 7)]
    found, _ = priced(table(rows), recording(*CALLS))
    assert len(found.groups) == 1
