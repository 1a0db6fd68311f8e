"""The line of an operation, in the backward pass too: by sequence numbers, and by the step that was looked at."""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.events.links import link
from gobrrr.analysis.events.steps import find_steps
from gobrrr.analysis.findings.origins import AUTOGRAD_NODE, forward_ops
from gobrrr.analysis.findings.sites import dispatched_of
from gobrrr.model.events import EventKind, EventTable
from gobrrr.model.recording import RecordedCall, Recording, Site
from gobrrr.model.tree import parents
from gobrrr.model.work import OpCall
from tests.analysis.tables import Row, one, table


def test_an_operation_of_the_backward_pass_points_to_the_forward_operation() -> None:
    events = table(
        [
            Row(EventKind.OP, "aten::linear", 0, 100, sequence=7),
            Row(EventKind.OP, "aten::addmm", 10, 80, sequence=7),
            Row(EventKind.OP, "aten::relu", 200, 50, sequence=8),
            Row(EventKind.OP, f"{AUTOGRAD_NODE}: ReluBackward0", 1_000, 100, thread=1, sequence=8),
            Row(EventKind.OP, "aten::threshold_backward", 1_010, 50, thread=1),
            Row(EventKind.OP, f"{AUTOGRAD_NODE}: AddmmBackward0", 1_200, 100, thread=1, sequence=7),
            Row(EventKind.OP, "AddmmBackward0", 1_210, 80, thread=1, sequence=7),
            Row(EventKind.OP, "aten::mm", 1_220, 50, thread=1),
        ]
    )
    found = forward_ops(events, parents(events))
    name = {row: events.name_of(int(found[row])) for row in range(len(events)) if found[row] >= 0}
    assert name[one(events, "aten::threshold_backward")] == "aten::relu"
    assert name[one(events, "aten::mm")] == "aten::addmm"  # the innermost that had the number
    assert one(events, "aten::addmm") not in name


def test_a_number_that_comes_again_belongs_to_the_last_before_the_node() -> None:
    rows = []
    for step in range(3):
        at = step * 10_000
        rows += [
            Row(EventKind.OP, f"aten::f{step}", at, 100, sequence=7),
            Row(EventKind.OP, f"{AUTOGRAD_NODE}: B", at + 1_000, 100, thread=1, sequence=7),
            Row(EventKind.OP, f"aten::b{step}", at + 1_010, 50, thread=1),
        ]
    events = table(rows)
    found = forward_ops(events, parents(events))
    for step in range(3):
        assert events.name_of(int(found[one(events, f"aten::b{step}")])) == f"aten::f{step}"


def test_a_node_without_a_number_or_a_maker_has_no_origin() -> None:
    events = table(
        [
            Row(EventKind.OP, f"{AUTOGRAD_NODE}: A", 0, 100),
            Row(EventKind.OP, f"{AUTOGRAD_NODE}: B", 200, 100, sequence=3),
        ]
    )
    assert (forward_ops(events, parents(events)) == -1).all()
    assert len(forward_ops(table([]), np.empty(0, dtype=np.int64))) == 0


def recording(*calls: tuple[str, int]) -> Recording:
    sites = tuple(Site(user=f"train.py({line}): step") for line in range(10))
    made = tuple(RecordedCall(OpCall(name=name), "forward", site) for name, site in calls)
    return Recording(
        target="", calls=made, sites=sites, peak_bytes=0, start_bytes=0, module_calls=0, on_cpu=True
    )  # fmt: skip


def profiled(names: list[str], steps: int = 2) -> EventTable:
    rows = []
    for step in range(steps):
        at = step * 100_000
        rows.append(Row(EventKind.ANNOTATION, f"ProfilerStep#{step}", at, 90_000))
        for index, name in enumerate(names):
            rows.append(Row(EventKind.OP, name, at + 1_000 * (index + 1), 500))
            rows.append(Row(EventKind.OP, "aten::copy_", at + 1_000 * (index + 1) + 100, 100))  # within its kernel
    return table(rows)


def sites(events: EventTable, seen: Recording) -> list[tuple[str, int]]:
    links = link(events)
    found = dispatched_of(events, links.op_parent, find_steps(events, links), seen)
    of_call = [one.site for one in seen.calls]
    return [(events.name_of(row), of_call[found[row]] if found[row] >= 0 else -1) for row in events.of(EventKind.OP)]


def test_the_nth_of_a_name_is_the_nth_that_was_dispatched() -> None:
    events = profiled(["aten::mm", "aten::add", "aten::mm"])
    found = sites(events, recording(("aten::mm", 1), ("aten::add", 2), ("aten::mm", 3)))
    step = [("aten::mm", 1), ("aten::copy_", 1), ("aten::add", 2), ("aten::copy_", 2), ("aten::mm", 3)]
    assert found == [*step, ("aten::copy_", 3)] * 2  # what an operation calls itself is at its line


def test_where_a_names_number_differs_nothing_is_said() -> None:
    events = profiled(["aten::mm", "aten::add"])
    found = dict(sites(events, recording(("aten::mm", 1), ("aten::mm", 2), ("aten::add", 3))))
    assert found["aten::mm"] == -1
    assert found["aten::add"] == 3
