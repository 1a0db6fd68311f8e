from __future__ import annotations

import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gobrrr.model.live import DeviceMemory  # noqa: E402
from gobrrr.observe.live.watches.memory import MemoryWatch  # noqa: E402
from gobrrr.system import cgroup  # noqa: E402

GIB = 2**30


def status(folder: Path, resident_kib: int, highest_kib: int) -> Path:
    path = folder / "status"
    path.write_text(f"Name:\tpython\nVmHWM:\t {highest_kib} kB\nVmRSS:\t {resident_kib} kB\n")
    return path


def observed(watch: MemoryWatch, steps: int = 5) -> DeviceMemory:
    watch.open()
    watch.window_begins()
    for at in range(steps):
        watch.step(at)
    watch.window_ends(steps)
    watch.close()
    found = watch.found()
    assert found is not None
    return found


def test_calls_to_the_driver_are_of_a_step() -> None:
    before = {"num_device_alloc": 100, "num_device_free": 40, "num_alloc_retries": 0}
    after = {
        "num_device_alloc": 110,
        "num_device_free": 50,
        "num_alloc_retries": 5,
        "allocated_bytes.all.peak": 3 * GIB,
        "reserved_bytes.all.peak": 4 * GIB,
    }
    answers = iter([before, after])
    found = observed(MemoryWatch(stats=lambda: next(answers), capacity_bytes=80 * GIB))
    assert found == DeviceMemory(
        peak_bytes=3 * GIB, reserved_bytes=4 * GIB, capacity_bytes=80 * GIB, mallocs=2.0, frees=2.0, retries=1.0
    )


def test_what_an_older_torch_does_not_count_is_not_zero() -> None:
    found = observed(MemoryWatch(stats=lambda: {"num_alloc_retries": 0}, capacity_bytes=GIB))
    assert (found.mallocs, found.frees, found.retries) == (None, None, 0.0)
    assert found.peak_bytes is None


def test_the_growth_of_a_process(tmp_path: Path) -> None:
    watch = MemoryWatch(status(tmp_path, 1000, 1500), tmp_path / "none", tmp_path, capacity_bytes=GIB)
    watch.open()
    watch.window_begins()
    status(tmp_path, 1800, 4000)
    watch.window_ends(3)
    assert watch.found() == DeviceMemory(peak_bytes=3000 * 1024, capacity_bytes=GIB)


def test_a_peak_before_the_steps_hides_theirs(tmp_path: Path) -> None:
    watch = MemoryWatch(status(tmp_path, 1000, 9000), tmp_path / "none", tmp_path, capacity_bytes=GIB)
    watch.open()
    watch.window_begins()
    status(tmp_path, 1800, 9000)
    watch.window_ends(3)
    found = watch.found()
    assert found is not None
    assert found.peak_bytes is None


def test_without_proc_nothing_is_known_but_the_capacity(tmp_path: Path) -> None:
    found = observed(MemoryWatch(tmp_path / "none", tmp_path / "none", tmp_path))
    assert found == DeviceMemory(capacity_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system has no /proc")
def test_this_process_grows_by_what_it_holds() -> None:
    watch = MemoryWatch()
    watch.open()
    watch.window_begins()
    # more than any peak before: what the process has ever held, and half a GiB that is written to
    lines = Path("/proc/self/status").read_text().splitlines()
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("VmHWM", "VmRSS"))}
    wanted = (kib["VmHWM"] - kib["VmRSS"]) * 1024 + GIB // 2
    held = torch.ones(wanted // 4)
    watch.window_ends(1)
    found = watch.found()
    assert found is not None
    assert found.peak_bytes == pytest.approx(held.numel() * 4, rel=0.1)


@pytest.mark.parametrize(
    ("line", "name", "text", "limit"),
    [
        ("0::/a/b", "a/memory.max", "2147483648", 2 * GIB),
        ("0::/a/b", "a/b/memory.max", "max", None),
        ("4:memory:/d", "memory/d/memory.limit_in_bytes", "1073741824", GIB),
        ("4:memory:/d", "memory/memory.limit_in_bytes", "9223372036854771712", None),
        ("4:cpu:/d", "memory/memory.limit_in_bytes", "1073741824", None),
    ],
)
def test_the_control_groups_limit_is_the_capacity(
    tmp_path: Path, line: str, name: str, text: str, limit: int | None
) -> None:
    proc, mount = tmp_path / "cgroup", tmp_path / "mount"
    proc.write_text(line + "\n")
    (mount / name).parent.mkdir(parents=True)
    (mount / name).write_text(text + "\n")
    assert cgroup.memory_limit(proc, mount) == limit
    found = observed(MemoryWatch(tmp_path / "none", proc, mount, capacity_bytes=64 * GIB))
    assert found.capacity_bytes == (limit or 64 * GIB)


@pytest.mark.gpu
def test_a_cache_that_is_emptied_asks_the_driver_each_step() -> None:
    def steps(empty: bool) -> DeviceMemory:
        watch = MemoryWatch()
        watch.open()
        torch.empty(64 * 2**20, device="cuda")
        watch.window_begins()
        for at in range(4):
            torch.empty(64 * 2**20, device="cuda")
            if empty:
                torch.cuda.empty_cache()
            watch.step(at)
        watch.window_ends(4)
        found = watch.found()
        assert found is not None
        return found

    healthy, sick = steps(False), steps(True)
    assert (healthy.mallocs, healthy.frees, healthy.retries) == (0.0, 0.0, 0.0)
    assert sick.mallocs is not None
    assert sick.mallocs >= 0.75  # the first finds the cache as the lead-in left it
    assert sick.frees is not None
    assert sick.frees >= 1
    assert sick.capacity_bytes == torch.cuda.get_device_properties(0).total_memory
    assert sick.peak_bytes is not None
    assert sick.peak_bytes >= 256 * 2**20
