"""From device work to its launch and its operation, dialect by dialect."""

from __future__ import annotations

import pytest

from gobrrr.analysis.events.links import link
from gobrrr.model.events import EventKind
from tests.analysis.tables import Row, launched, table


def owners(rows: list[Row]) -> list[tuple[str, str]]:
    """(launch, operation) of each piece of device work, by start; "" where there is none."""
    events = table(rows)
    found = link(events)
    return [
        (events.name_of(launch) if launch >= 0 else "", events.name_of(op) if op >= 0 else "")
        for launch, op in zip(found.launch.tolist(), found.op.tolist(), strict=True)
    ]


def test_correlation_and_enclosure():
    rows = [Row(EventKind.OP, "aten::linear", 0, 90_000), Row(EventKind.OP, "aten::addmm", 10_000, 60_000)]
    rows += launched("gemm", 20_000, 50_000, 900, 17)
    assert owners(rows) == [("cudaLaunchKernel", "aten::addmm")]


def test_the_operation_is_the_launching_thread_s():
    rows = [Row(EventKind.OP, "forward", 0, 90_000, thread=0), Row(EventKind.OP, "backward", 0, 90_000, thread=1)]
    rows += launched("gemm", 20_000, 50_000, 900, 17, thread=1)
    assert owners(rows) == [("cudaLaunchKernel", "backward")]


def test_calls_nested_in_calls():
    """A launch inside a launch (the driver's own, below the runtime's) is of the operation around both."""
    rows = [Row(EventKind.OP, "aten::mm", 0, 90_000), Row(EventKind.RUNTIME, "cudaLaunchKernelExC", 10_000, 20_000)]
    rows += launched("gemm", 12_000, 40_000, 900, 5, launch="cuLaunchKernelEx")
    assert owners(rows) == [("cuLaunchKernelEx", "aten::mm")]


def test_external_id_where_the_launch_is_missing():
    rows = [
        Row(EventKind.OP, "aten::mm", 0, 90_000, external=7),
        Row(EventKind.KERNEL, "gemm", 50_000, 900, external=7),
    ]
    rows.append(Row(EventKind.KERNEL, "other", 60_000, 900, external=8))
    assert owners(rows) == [("", "aten::mm"), ("", "")]


def test_external_id_where_the_launch_stands_alone():
    """A launch from Python, outside every operation, with an external id that names one."""
    rows = [Row(EventKind.OP, "triton_", 0, 5_000, external=7), *launched("fused", 20_000, 30_000, 900, 3)]
    rows[-1].external = 7
    assert owners(rows) == [("cudaLaunchKernel", "triton_")]


def test_enclosure_wins_over_external_id():
    rows = [Row(EventKind.OP, "right", 0, 9_000), Row(EventKind.OP, "wrong", 9_500, 900, external=7)]
    rows += launched("gemm", 2_000, 20_000, 900, 3)
    rows[-1].external = 7
    assert owners(rows) == [("cudaLaunchKernel", "right")]


@pytest.mark.parametrize("count", [2, 9])
def test_in_2022_the_external_id_repeats_the_correlation(count: int):
    """There it names no operation: operation 3's id equals a kernel's correlation by accident."""
    rows = [Row(EventKind.OP, f"op {number}", number * 1_000, 900, external=number) for number in range(1, count + 1)]
    for number in range(1, count + 1):
        rows.append(Row(EventKind.KERNEL, "k", 50_000 + number * 1_000, 900, correlation=number, external=number))
    assert owners(rows) == [("", "")] * count


def test_in_2022_the_launch_still_joins():
    rows = [Row(EventKind.OP, "aten::mm", 0, 9_000, external=900), Row(EventKind.OP, "wrong", 20_000, 900, external=5)]
    rows += launched("gemm", 2_000, 30_000, 900, 5)
    rows[-1].external = 5
    assert owners(rows) == [("cudaLaunchKernel", "aten::mm")]


@pytest.mark.parametrize("launch", ["cudaGraphLaunch", "hipGraphLaunch", "cudaGraphLaunch_v10000"])
def test_a_graph_s_kernels_have_a_launch_and_no_operation(launch: str):
    rows = [
        Row(EventKind.OP, "outer", 0, 90_000, external=4),
        Row(EventKind.RUNTIME, launch, 10_000, 9_000, correlation=17),
    ]
    rows += [
        Row(EventKind.KERNEL, "k", 30_000 + number * 1_000, 900, correlation=17, external=4) for number in range(3)
    ]
    events = table(rows)
    found = link(events)
    assert owners(rows) == [(launch, "")] * 3
    assert found.in_graph.tolist() == [True] * 3


def test_no_correlation_at_all():
    rows = [Row(EventKind.OP, "op", 0, 9_000), Row(EventKind.RUNTIME, "cudaLaunchKernel", 1_000, 900)]
    rows += [Row(EventKind.KERNEL, "k", 20_000, 900), Row(EventKind.KERNEL, "k", 30_000, 900, correlation=0)]
    rows.append(Row(EventKind.RUNTIME, "cudaFree", 4_000, 900, correlation=0))
    assert owners(rows) == [("", ""), ("", "")]
    assert link(table(rows)).launched == 0.0


def test_no_device_work():
    found = link(table([Row(EventKind.OP, "op", 0, 9_000)]))
    assert found.launched == 0.0
    assert len(found.device) == len(found.op) == 0
    assert found.op_parent.tolist() == [-1]


def test_the_operation_around_each_event():
    rows = [Row(EventKind.OP, "outer", 0, 90_000), Row(EventKind.RUNTIME, "call", 5_000, 50_000)]
    rows += [Row(EventKind.OP, "inner", 10_000, 20_000), Row(EventKind.ANNOTATION, "mark", 2_000, 1_000)]
    events = table(rows)
    parent = link(events).op_parent
    around = {events.name_of(row): parent[row] for row in range(len(events))}
    outer = around["call"]
    assert events.name_of(int(outer)) == "outer"
    assert around == {"outer": -1, "call": outer, "inner": outer, "mark": -1}
