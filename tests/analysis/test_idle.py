"""Why the device idles: hand-made gaps with one cause each, times in microseconds by hand."""

from __future__ import annotations

import time

import numpy as np
import pytest

from gobrrr.analysis.budget.idle import gaps_of, host_time
from gobrrr.analysis.events.intervals import union
from gobrrr.analysis.events.links import link
from gobrrr.model.events import EventKind
from tests.analysis.tables import Row, launched, table

US = 1_000


def us(kind: EventKind, name: str, start: float, length: float, **more: int) -> Row:
    return Row(kind, name, int(start * US), int(length * US), **more)


def causes(*rows: Row, gap: tuple[float, float]) -> dict[str, float]:
    """Microseconds by cause in one gap of device 0."""
    events = table([*rows])
    idle = union(np.array([int(gap[0] * US)]), np.array([int(gap[1] * US)]))
    (found,) = gaps_of(events, link(events), idle, 0)
    result = {cause: ns / US for cause, ns in found.causes}
    assert sum(result.values()) == pytest.approx(gap[1] - gap[0])
    return result


def around(start: float, call: float, *, first_call: float = 0, call_us: float = 5, name: str = "kernel",
           kind: EventKind = EventKind.KERNEL, launch: str = "cudaLaunchKernel") -> list[Row]:  # fmt: skip
    """A kernel from 10 to 100 us and the next one, launched at `call`, from `start` on."""
    rows = launched("kernel", int(first_call * US), 10 * US, 90 * US, 1)
    rows += launched(
        name, int(call * US), int(start * US), 50 * US, 2, call_ns=int(call_us * US), kind=kind, launch=launch
    )
    return rows


def test_launching():
    """From 100 to 110 us Python, then an operation until the launch at 190 us, then the driver until 199 us."""
    rows = [*around(199, 190), us(EventKind.OP, "aten::mm", 0, 6), us(EventKind.OP, "aten::mm", 110, 90)]
    assert causes(*rows, gap=(100, 199)) == {"launching": 80 + 9, "python": 10}


def test_the_driver_is_late():
    """The call was back before the device was free: the whole gap is the driver's and the device's."""
    rows = [*around(104, 50), us(EventKind.OP, "aten::mm", 40, 30)]
    assert causes(*rows, gap=(100, 104)) == {"launching": 4}


def test_python_between_operations():
    rows = [*around(404, 400, call_us=3), us(EventKind.OP, "aten::mm", 0, 6)]
    assert causes(*rows, gap=(100, 404)) == {"python": 300, "launching": 4}


def test_python_that_was_recorded():
    rows = [*around(2_504, 2_500, call_us=3), us(EventKind.PYTHON, "train.py(12): forward", 0, 3_000)]
    assert causes(*rows, gap=(100, 2_504)) == {"python": 2_400, "launching": 4}


def test_draining_after_a_wait():
    """The host waits until 105 us, dispatches until 150 us: the bubble that the wait left, all of it."""
    rows = [*around(154, 150, call_us=3), us(EventKind.RUNTIME, "cudaStreamSynchronize", 20, 85)]
    rows.append(us(EventKind.OP, "aten::mm", 110, 50))
    found = causes(*rows, gap=(100, 154))
    assert found == {"sync_drain": 54}


def test_a_wait_without_a_reason_is_not_the_drain():
    """The device is done at 100 us and the wait returns 900 us later: another device or process held it."""
    rows = [*around(1_003, 1_000, call_us=3), us(EventKind.RUNTIME, "cudaDeviceSynchronize", 20, 980)]
    found = causes(*rows, gap=(100, 1_003))
    assert found["unexplained"] == 700
    assert found["sync_drain"] == 203


@pytest.mark.parametrize(
    "name", ["enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "[pl]DataLoader.next_batch"]
)
def test_waiting_for_a_batch(name: str):
    rows = [*around(604, 600, call_us=3), us(EventKind.ANNOTATION, name, 90, 500)]
    assert causes(*rows, gap=(100, 604)) == {"input": 490, "python": 10, "launching": 4}


def test_computing_on_the_host_before_a_copy_to_the_device_is_input():
    """The Python around the operations that prepare a batch (20 us) is input as well."""
    rows = around(
        604, 600, name="Memcpy HtoD (Pinned -> Device)", kind=EventKind.MEMCPY, launch="cudaMemcpyAsync", call_us=3
    )
    rows.append(us(EventKind.OP, "aten::index_select", 110, 480))
    assert causes(*rows, gap=(100, 604)) == {"input": 500, "launching": 4}


def test_computing_on_the_host_before_a_kernel_is_not_input():
    rows = [*around(604, 600, call_us=3), us(EventKind.OP, "aten::index_select", 110, 480)]
    assert causes(*rows, gap=(100, 604)) == {"host_compute": 480, "python": 20, "launching": 4}


def test_a_long_operation_that_launches_is_dispatching():
    rows = [*around(604, 600, call_us=3), us(EventKind.OP, "aten::mm", 110, 520)]
    assert causes(*rows, gap=(100, 604)) == {"launching": 494, "python": 10}


@pytest.mark.parametrize("name", ["cudaMalloc", "cudaFree", "hipMalloc", "cudaHostAlloc", "cuMemCreate"])
def test_allocating(name: str):
    rows = [
        *around(604, 600, call_us=3),
        us(EventKind.OP, "aten::empty", 110, 480),
        us(EventKind.RUNTIME, name, 110, 480),
    ]
    assert causes(*rows, gap=(100, 604)) == {"allocator": 480, "launching": 4, "python": 20}


@pytest.mark.parametrize("name", ["gc.collect", "Python GC"])
def test_collecting_garbage(name: str):
    rows = [*around(604, 600, call_us=3), us(EventKind.ANNOTATION, name, 110, 480)]
    assert causes(*rows, gap=(100, 604)) == {"gc": 480, "python": 20, "launching": 4}


@pytest.mark.parametrize("name", ["cuModuleLoadData", "cudaLibraryLoadData", "hipModuleLoadData"])
def test_loading_compiled_code(name: str):
    rows = [*around(604, 600, call_us=3), us(EventKind.OP, "aten::mm", 0, 6), us(EventKind.RUNTIME, name, 110, 480)]
    assert causes(*rows, gap=(100, 604)) == {"compile": 480, "python": 20, "launching": 4}


def test_compiling():
    rows = [*around(9_004, 9_000, call_us=3), us(EventKind.OP, "compile_fx_inner", 110, 8_880)]
    assert causes(*rows, gap=(100, 9_004)) == {"compile": 8_880, "python": 20, "launching": 4}


def test_a_first_launch_that_loads_its_code():
    """A launch call of 20 ms on an idle device: lazy loading of the kernel's module."""
    rows = [*around(20_190, 200, call_us=20_000), us(EventKind.OP, "aten::mm", 0, 6)]
    assert causes(*rows, gap=(100, 20_190)) == {"compile": 19_990, "python": 100}


def test_nothing_recorded_is_unexplained_and_not_python():
    """5 ms without any host event of any thread: the trace can't say that Python ran."""
    rows = around(5_104, 5_100, call_us=3)
    assert causes(*rows, gap=(100, 5_104)) == {"unexplained": 5_000, "launching": 4}


def test_without_launches_a_long_gap_is_unexplained():
    rows = [us(EventKind.KERNEL, "k", 0, 100), us(EventKind.KERNEL, "k", 5_000, 100)]
    assert causes(*rows, gap=(100, 5_000)) == {"unexplained": 4_900}


def test_without_any_host_event_but_the_driver_s_calls_nothing_is_python():
    """A trace of the device alone (ProfilerActivity.CUDA): what the host did between its calls is not recorded."""
    rows = around(404, 400, call_us=3)
    assert causes(*rows, gap=(100, 404)) == {"unexplained": 300, "launching": 4}


def test_each_gap_is_explained_by_its_own_thread():
    """Three threads launch in turn; each allocates for as long as its number, 100 us before its launch."""
    rows = [us(EventKind.OP, "aten::mm", 0, 6)]
    for number in range(3):
        begin = 1_000 * number
        rows += launched("k", (begin + 490) * US, (begin + 500) * US, 500 * US, number + 1, thread=number)
        rows.append(us(EventKind.RUNTIME, "cudaMalloc", begin + 300, 10 + number, thread=number))
    events = table(rows)
    idle = union(np.arange(3) * 1_000 * US, (np.arange(3) * 1_000 + 500) * US)
    gaps = gaps_of(events, link(events), idle, 0)
    assert (gaps.of("allocator") / US).tolist() == [10, 11, 12]
    assert gaps.ns.sum(axis=1).tolist() == [500 * US] * 3


def test_threads_whose_times_do_not_fit_one_axis(monkeypatch: pytest.MonkeyPatch):
    """Where the clock is so wide that the threads behind each other leave int64, they are taken in groups."""
    rows = [us(EventKind.OP, "aten::mm", 0, 6)]
    for number in range(5):
        begin = 1_000 * number
        rows += launched("k", (begin + 490) * US, (begin + 500) * US, 500 * US, number + 1, thread=number)
        rows.append(us(EventKind.OP, "aten::mm", begin + 100, 400, thread=number))
    events = table(rows)
    idle = union(np.arange(5) * 1_000 * US, (np.arange(5) * 1_000 + 500) * US)
    at_once = gaps_of(events, link(events), idle, 0)
    monkeypatch.setattr("gobrrr.analysis.budget.idle.AXIS_LENGTH_NS", 10_000 * US)
    assert len(host_time(events, link(events)).axes) == 3
    assert gaps_of(events, link(events), idle, 0).ns.tolist() == at_once.ns.tolist()


def test_thousands_of_threads_take_no_longer_than_one():
    rows = [us(EventKind.OP, "aten::mm", 0, 6)]
    for number in range(8_000):
        rows += launched("k", (10 * number + 1) * US, (10 * number + 5) * US, 5 * US, number + 1, thread=number)
    events = table(rows)
    links = link(events)
    idle = union(np.arange(8_000) * 10 * US, (np.arange(8_000) * 10 + 5) * US)
    begin = time.perf_counter()
    gaps = gaps_of(events, links, idle, 0)
    assert time.perf_counter() - begin < 1
    assert gaps.ns.sum() == 8_000 * 5 * US


def test_the_end_of_the_window_has_no_next_work():
    rows = [*launched("kernel", 0, 10 * US, 90 * US, 1), us(EventKind.OP, "aten::item", 100, 300)]
    events = table(rows)
    (gap,) = gaps_of(events, link(events), union(np.array([100 * US]), np.array([400 * US])), 0)
    assert gap.next_work == -1
    assert sum(ns for _, ns in gap.causes) == 300 * US


def test_the_thread_that_launches_the_next_work_explains_the_gap():
    """The backward thread launches; what the main thread does meanwhile (it waits) is not the reason."""
    rows = [*launched("kernel", 0, 10 * US, 90 * US, 1)]
    rows += launched("backward", 190 * US, 199 * US, 50 * US, 2, thread=1)
    rows += [
        us(EventKind.OP, "autograd::engine", 100, 150, thread=1),
        us(EventKind.RUNTIME, "cudaDeviceSynchronize", 5, 240),
    ]
    assert causes(*rows, gap=(100, 199)) == {"launching": 99}
