from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gobrrr.model.live import Threads  # noqa: E402
from gobrrr.observe.live.watches.threads import ThreadWatch  # noqa: E402
from gobrrr.system import cgroup  # noqa: E402
from gobrrr.system.reading import System  # noqa: E402


def observed(system: System | None = None, step: Any = lambda: None, steps: int = 4) -> Threads:
    watch = ThreadWatch(system)
    watch.open()
    watch.window_begins()
    for at in range(steps):
        step()
        watch.step(at)
    watch.window_ends(steps)
    watch.close()
    found = watch.found()
    assert found is not None
    return found


def control_group(folder: Path, line: str, files: dict[str, str]) -> tuple[Path, Path]:
    proc, mount = folder / "cgroup", folder / "mount"
    proc.write_text(line + "\n")
    for name, text in files.items():
        (mount / name).parent.mkdir(parents=True, exist_ok=True)
        (mount / name).write_text(text + "\n")
    return proc, mount


def test_threads_and_processors_are_the_systems() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        found = observed()
    finally:
        torch.set_num_threads(before)
    assert found.intra == 3
    assert found.inter == torch.get_num_interop_threads()
    assert found.usable == len(os.sched_getaffinity(0))
    assert found.processors == os.cpu_count()
    assert found.workers == 0
    assert found.worker_threads is None
    assert found.load is not None


@pytest.mark.parametrize(
    ("line", "files", "processors"),
    [
        ("0::/a/b", {"a/b/cpu.max": "150000 100000"}, 1.5),
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "50000 100000"}, 0.5),
        ("0::/a/b", {"a/b/cpu.max": "400000 100000", "a/cpu.max": "200000 100000"}, 2.0),
        ("0::/a/b", {"a/b/cpu.max": "max 100000"}, None),
        ("0::/outside/the/container", {"cpu.max": "300000 100000"}, 3.0),
        (
            "4:cpu,cpuacct:/d",
            {"cpu,cpuacct/d/cpu.cfs_quota_us": "250000", "cpu,cpuacct/d/cpu.cfs_period_us": "100000"},
            2.5,
        ),
        ("4:cpu,cpuacct:/d", {"cpu/d/cpu.cfs_quota_us": "250000", "cpu/d/cpu.cfs_period_us": "100000"}, 2.5),
        ("1:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("5:memory:/", {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("nonsense", {"cpu.max": "nonsense"}, None),
        ("0::/a", {"a/cpu.max": "100000 0"}, None),
    ],
)
def test_the_quota_of_control_groups(
    tmp_path: Path, line: str, files: dict[str, str], processors: float | None
) -> None:
    proc, mount = control_group(tmp_path, line, files)
    assert cgroup.quota(proc, mount) == processors
    found = observed(System(group=proc, mount=mount))
    assert found.quota == processors
    assert found.available == min(found.usable, processors or found.usable)


def test_no_control_groups_at_all(tmp_path: Path) -> None:
    assert cgroup.quota(tmp_path / "absent", tmp_path) is None
    assert cgroup.memory_limit(tmp_path / "absent", tmp_path) is None


def test_turns_that_were_lost_are_of_a_step() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
    found = observed(step=lambda: sum(range(20_000)), steps=5)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
    assert found.involuntary_switches is not None
    assert 0 <= found.involuntary_switches * 5 <= after - before


def test_what_the_threads_wait_for_a_processor_is_of_a_step(tmp_path: Path) -> None:
    tasks = {name: tmp_path / "self" / "task" / name / "schedstat" for name in ("7", "8", "9")}
    for at, task in enumerate(tasks.values()):
        task.parent.mkdir(parents=True)
        task.write_text(f"100 {1000 * at} 3\n")

    def step() -> None:
        tasks["7"].write_text("900 400 5\n")
        tasks["8"].write_text("900 1600 5\n")
        tasks["9"].unlink(missing_ok=True)  # ended
        other = tmp_path / "self" / "task" / "10" / "schedstat"  # begun meanwhile: what it waited before is not known
        other.parent.mkdir(exist_ok=True)
        other.write_text("5 5000 1\n")

    assert observed(System(proc=tmp_path), step, 4).waited_ns == (400 + 600) / 4
    assert observed(System(proc=tmp_path / "absent")).waited_ns is None


class Rows(torch.utils.data.Dataset):  # type: ignore[misc,unused-ignore]
    def __len__(self) -> int:
        return 8

    def __getitem__(self, at: int) -> Any:
        return torch.tensor(at)


def test_the_processes_of_a_data_loader() -> None:
    loader = torch.utils.data.DataLoader(Rows(), num_workers=2, persistent_workers=True)
    rows = iter(loader)
    next(rows)
    try:
        found = observed()
        assert found.workers == 2
        assert found.worker_threads is not None
        assert found.worker_threads >= 1
    finally:
        rows._shutdown_workers()
        del rows, loader


def _idle() -> None:
    time.sleep(30)


def test_other_children_are_no_loaders() -> None:
    child = multiprocessing.get_context("fork").Process(target=_idle)
    child.start()
    try:
        assert observed().workers == 0
    finally:
        child.kill()
        child.join()
