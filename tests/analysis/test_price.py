"""From device work to its floor: what is alike is priced once, and an operation's floor is shared by its kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gobrrr.analysis.events.links import link
from gobrrr.analysis.pricing import price as module
from gobrrr.analysis.pricing.price import Priced, WorkClass, collective, price_all
from gobrrr.hardware import find
from gobrrr.model.events import EventKind, EventTable
from gobrrr.model.machine import Machine
from gobrrr.model.work import OpCall, Work
from gobrrr.observe.trace import read_trace
from tests.analysis.tables import SHIPPED, Row, launched, read, short, table
from tests.spread import spread
from tests.traces import Trace

MATRIX = [[4096, 4096], [4096, 4096]]
SIDE = 4096


@pytest.fixture(scope="module")
def machine() -> Machine:
    return find("h100")


def priced(trace: Trace, folder: Path, machine: Machine | None) -> tuple[EventTable, Priced]:
    events = read_trace(str(trace.write(folder))).ranks[0].events
    return events, price_all(events, link(events), machine)


def test_a_matmul_s_floor_is_its_flops_at_the_matrix_peak(tmp_path: Path, machine: Machine):
    """2 * 4096^3 FLOP at 989.4 TFLOP/s: 138.9 us, more than 96 MiB at 3.35 TB/s (30 us)."""
    trace = Trace()
    trace.op("aten::mm", MATRIX, 200.0)
    _, found = priced(trace, tmp_path, machine)
    assert found.floor_ns[0] == pytest.approx(2 * SIDE**3 / 989.4e12 * 1e9)
    assert found.groups[0].floor is not None
    assert found.groups[0].floor.bound == "compute"


def test_a_pointwise_operation_s_floor_is_its_bytes_at_the_bandwidth(tmp_path: Path, machine: Machine):
    """Two inputs and one output of 4096^2 bf16: 96 MiB at 3.35 TB/s."""
    trace = Trace()
    trace.op("aten::mul", MATRIX, 200.0)
    _, found = priced(trace, tmp_path, machine)
    assert found.floor_ns[0] == pytest.approx(3 * 2 * SIDE**2 / 3.35e12 * 1e9)
    assert found.groups[0].floor is not None
    assert found.groups[0].floor.bound == "memory"


def test_what_is_alike_is_priced_once(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch):
    asked: list[OpCall] = []

    def counting(call: OpCall, **more: Any) -> Work:
        asked.append(call)
        return module_price(call, **more)

    module_price = module.price
    monkeypatch.setattr(module, "price", counting)
    trace = Trace()
    for _ in range(50):
        trace.op("aten::mm", MATRIX, 200.0)
        trace.op("aten::mul", MATRIX, 100.0)
        trace.op("aten::mul", [[64, 64], [64, 64]], 2.0)
    _, found = priced(trace, tmp_path, machine)
    assert len(asked) == len(found.groups) == 3
    assert np.bincount(found.group).tolist() == [50, 50, 50]
    assert len(np.unique(found.instance)) == 150


@pytest.mark.parametrize("difference", ["shape", "dtype", "kernel", "scalar"])
def test_what_differs_is_priced_apart(difference: str, tmp_path: Path, machine: Machine):
    trace = Trace()
    trace.op("aten::mul", MATRIX, 100.0)
    trace.op(
        "aten::mul",
        [[4096, 4096], [4096, 1]] if difference == "shape" else MATRIX,
        100.0,
        dtype="float32" if difference == "dtype" else "bfloat16",
        kernel="other" if difference == "kernel" else "kernel",
        concrete=["", "2"] if difference == "scalar" else None,
    )
    _, found = priced(trace, tmp_path, machine)
    assert len(found.groups) == 2


def test_the_order_of_the_trace_does_not_matter(tmp_path: Path, machine: Machine):
    """The same calls in another order: the same floor for each name and shape."""
    floors = []
    for order in (1, -1):
        trace = Trace()
        for name, shapes in [("aten::mm", MATRIX), ("aten::mul", MATRIX), ("aten::gelu", [[512, 64]])][::order]:
            trace.op(name, shapes, 100.0)
        _, found = priced(trace, tmp_path, machine)
        floors.append({group.call.name: group.floor for group in found.groups})
    assert floors[0] == floors[1]


def test_kernels_of_one_operation_share_its_floor_by_duration(machine: Machine):
    """A split-K matmul of 90 us and its reduction of 10 us: nine tenths and one tenth of one floor."""
    dims, types = b"[[4096, 4096], [4096, 4096]]", b'["c10::BFloat16", "c10::BFloat16"]'
    rows = [Row(EventKind.OP, "aten::mm", 0, 50_000, dims=dims, types=types)]
    rows += launched("splitK", 10_000, 60_000, 90_000, 1) + launched("reduce", 20_000, 151_000, 10_000, 2)
    events = table(rows)
    found = price_all(events, link(events), machine)
    whole = 2 * SIDE**3 / 989.4e12 * 1e9
    assert found.floor_ns.tolist() == pytest.approx([0.9 * whole, 0.1 * whole])
    assert len(set(found.instance.tolist())) == len(found.groups) == 1
    assert found.groups[0].call.kernels == ("splitK", "reduce")


def test_kernels_without_a_duration_share_in_equal_parts(machine: Machine):
    dims, types = b"[[4096, 4096], [4096, 4096]]", b'["c10::BFloat16", "c10::BFloat16"]'
    rows = [Row(EventKind.OP, "aten::mm", 0, 50_000, dims=dims, types=types)]
    rows += launched("a", 10_000, 60_000, 0, 1) + launched("b", 20_000, 61_000, 0, 2)
    events = table(rows)
    floors = price_all(events, link(events), machine).floor_ns
    assert floors[0] == floors[1] == pytest.approx(2 * SIDE**3 / 989.4e12 * 1e9 / 2)


def test_what_a_graph_replays_is_not_priced_and_says_why(machine: Machine):
    """The launch stands inside an operation with shapes: they are not the kernels'."""
    dims, types = b"[[4096, 4096], [4096, 4096]]", b'["c10::BFloat16", "c10::BFloat16"]'
    rows = [Row(EventKind.OP, "aten::mm", 0, 50_000, dims=dims, types=types)]
    rows.append(Row(EventKind.RUNTIME, "cudaGraphLaunch", 10_000, 9_000, correlation=7))
    rows += [
        Row(EventKind.KERNEL, "ampere_bf16_gemm", 60_000 + 1_000 * index, 900, correlation=7) for index in range(3)
    ]
    events = table(rows)
    found = price_all(events, link(events), machine)
    assert np.isnan(found.floor_ns).all()
    assert {group.work.known for group in found.groups} == {False}
    assert "graph" in found.groups[0].work.note
    assert found.instance.tolist() == [-1, -1, -1]


def test_without_a_machine_work_is_counted_and_no_floor_is_invented(tmp_path: Path):
    trace = Trace()
    trace.op("aten::mm", MATRIX, 200.0)
    _, found = priced(trace, tmp_path, None)
    assert found.groups[0].work.flop == 2 * SIDE**3
    assert found.groups[0].floor is None
    assert np.isnan(found.floor_ns).all()


def test_without_shapes_nothing_is_priced(tmp_path: Path, machine: Machine):
    trace = Trace(shapes=False)
    trace.op("aten::mm", MATRIX, 200.0)
    _, found = priced(trace, tmp_path, machine)
    assert not found.groups[0].work.known
    assert found.groups[0].work.flop is None


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("Memcpy HtoD (Pageable -> Device)", EventKind.MEMCPY, WorkClass.TRANSFER),
        ("Memcpy DtoH (Device -> Pinned)", EventKind.MEMCPY, WorkClass.TRANSFER),
        ("Memcpy PtoP (Device -> Device)", EventKind.MEMCPY, WorkClass.TRANSFER),
        ("Memcpy DtoD (Device -> Device)", EventKind.MEMCPY, WorkClass.COMPUTE),
        ("Memset (Device)", EventKind.MEMSET, WorkClass.COMPUTE),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)", EventKind.KERNEL, WorkClass.COMMUNICATION),
        ("ncclKernel_SendRecv(ncclWorkElem)", EventKind.KERNEL, WorkClass.COMMUNICATION),
        ("void vllm::cross_device_reduce_1stage<__half, 2>(RankData*)", EventKind.KERNEL, WorkClass.COMMUNICATION),
        ("void dpsk::ep::dispatch<7168>(int*)", EventKind.KERNEL, WorkClass.COMMUNICATION),
        ("rcclGenericKernel", EventKind.KERNEL, WorkClass.COMMUNICATION),
        ("void at::native::reduce_kernel<512, 1>", EventKind.KERNEL, WorkClass.COMPUTE),
        ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<8>", EventKind.KERNEL, WorkClass.COMPUTE),
    ],
)
def test_classes(name: str, kind: EventKind, expected: WorkClass):
    events = table([Row(kind, name, 0, 100)])
    assert price_all(events, link(events), None).kind.tolist() == [expected]


def test_a_copy_within_the_device_has_a_floor_of_both_directions(machine: Machine):
    """100 MB are read and written: 200 MB at 3.35 TB/s."""
    events = table(launched("Memcpy DtoD (Device -> Device)", 0, 9_000, 90_000, 1, kind=EventKind.MEMCPY))
    events.bytes[events.kind == EventKind.MEMCPY] = 100_000_000
    found = price_all(events, link(events), machine)
    assert found.floor_ns[0] == pytest.approx(2 * 100e6 / 3.35e12 * 1e9)


def test_a_copy_from_the_host_is_bound_by_its_link(machine: Machine):
    events = table(launched("Memcpy HtoD (Pinned -> Device)", 0, 9_000, 900_000, 1, kind=EventKind.MEMCPY))
    events.bytes[events.kind == EventKind.MEMCPY] = 10_000_000
    found = price_all(events, link(events), machine)
    assert machine.host_bytes_per_s is not None
    assert found.floor_ns[0] == pytest.approx(10e6 / machine.host_bytes_per_s.value * 1e9)


def test_collectives_from_what_the_trace_records():
    raw = b'{"collective": "allreduce", "in_elements": 10, "out_elements": -1, "group_size": "x", "dtype": "BFloat16"}'
    found = collective(raw)
    assert found is not None
    assert (found.name, found.in_elements, found.out_elements, found.group_size) == ("allreduce", 10, None, None)
    assert collective(b'{"sync_kind": "Stream Sync"}') is None
    assert collective(None) is None


@pytest.mark.parametrize("path", spread(SHIPPED), ids=short)
def test_kernels_of_a_call_sum_to_its_floor(path: Path, machine: Machine):
    """The law behind sharing, on real traces: floors sum by call, whatever the number of kernels."""
    seen = read(path)
    found = price_all(seen.events, seen.links, machine)
    owned = found.instance >= 0
    sums = np.bincount(found.instance[owned], weights=found.floor_ns[owned])
    for instance in np.unique(found.instance[owned])[:200]:
        group = found.groups[int(found.group[found.instance == instance][0])]
        assert sums[instance] == pytest.approx(group.floor.ns if group.floor else np.nan, nan_ok=True)
