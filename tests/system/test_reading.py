"""What others had of the processors, from files of a test's own: every number is exact."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gobrrr.model.contention import Contention
from gobrrr.system import cgroup
from gobrrr.system.reading import System


@dataclass
class Fake:
    """A machine of two processors, 100 ticks a second, that a test turns on."""

    root: Path
    at_s: float = 50.0
    own_s: float = 3.0
    ticks: dict[str, list[int]] = field(default_factory=lambda: {"cpu0": [0] * 10, "cpu1": [0] * 10, "cpu2": [0] * 10})
    waits: dict[str, int] = field(default_factory=lambda: {"7": 0})

    def system(self, processors: tuple[int, ...] = (0, 1)) -> System:
        self.write()
        return System(
            proc=self.root,
            group=self.root / "cgroup",
            mount=self.root / "mount",
            processors=lambda: frozenset(processors),
            now=lambda: self.at_s,
            own_s=lambda: self.own_s,
            ticks=100,
        )

    def write(self) -> None:
        lines = ["cpu 9 9 9 9", *(f"{name} {' '.join(map(str, numbers))}" for name, numbers in self.ticks.items())]
        self.root.mkdir(exist_ok=True)
        (self.root / "stat").write_text("\n".join([*lines, "intr 5"]))
        for task, ns in self.waits.items():
            folder = self.root / "self" / "task" / task
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "schedstat").write_text(f"1 {ns} 3\n")

    def child(self, parent: str, pid: str, ticks: int) -> None:
        task = self.root / parent / "task" / parent
        task.mkdir(parents=True, exist_ok=True)
        (task / "children").write_text(f"{pid} ")
        (self.root / pid).mkdir(exist_ok=True)
        (self.root / pid / "stat").write_text(f"{pid} (a) b) S {' '.join(['0'] * 10)} {ticks} 0 0 0 0 0\n")

    def pass_(self, seconds: float, own_s: float, user: int, steal: int = 0, waited_s: float = 0.0) -> None:
        """Time goes by, and processor 0 counts."""
        self.at_s += seconds
        self.own_s += own_s
        self.ticks["cpu0"][0] += user
        self.ticks["cpu0"][7] += steal
        self.ticks["cpu0"][3] += 1000  # idle
        self.waits["7"] += int(waited_s * 1e9)
        self.write()


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path / "proc")


def test_what_is_not_ours_is_the_others(fake: Fake) -> None:
    system = fake.system()
    before = system.reading()
    fake.pass_(10.0, own_s=4.0, user=900, steal=100, waited_s=5.0)
    found = system.since(before)
    assert found == Contention(seconds=10.0, processors=2, others=pytest.approx(0.6), waited=pytest.approx(0.5))
    assert found.lost == pytest.approx(0.5)
    assert found.in_words() == "other processes had 0.6 of the 2 processors"
    assert found.wait_in_words() == "a thread of this program waited 50 % of the time for a processor"


def test_processors_that_this_process_may_not_use_do_not_count(fake: Fake) -> None:
    system = fake.system((1,))
    before = system.reading()
    fake.pass_(10.0, own_s=0.0, user=900)
    assert system.since(before).others == 0.0


def test_a_process_that_this_one_started_is_no_other(fake: Fake) -> None:
    fake.child("self", "11", 0)
    fake.child("11", "12", 0)
    system = fake.system()
    before = system.reading()
    fake.child("self", "11", 200)
    fake.child("11", "12", 300)
    fake.pass_(10.0, own_s=1.0, user=700)
    assert system.since(before).others == pytest.approx(0.1)


def test_own_threads_that_wait_for_each_other_lose_nothing_to_others(fake: Fake) -> None:
    system = fake.system()
    before = system.reading()
    fake.pass_(10.0, own_s=10.0, user=1000, waited_s=8.0)
    found = system.since(before)
    assert (found.waited, found.lost) == (pytest.approx(0.8), 0.0)
    assert found.in_words() == ""


def test_others_beside_free_processors_cost_nothing(fake: Fake) -> None:
    system = fake.system()
    before = system.reading()
    fake.pass_(10.0, own_s=10.0, user=2000)
    found = system.since(before)
    assert (found.others, found.lost) == (pytest.approx(1.0), 0.0)


def test_over_a_few_ticks_what_others_had_is_not_known(fake: Fake) -> None:
    system = fake.system()
    before = system.reading()
    fake.pass_(0.1, own_s=0.05, user=10, waited_s=0.04)
    found = system.since(before)
    assert (found.others, found.lost) == (None, pytest.approx(0.4))
    assert found.in_words() == found.wait_in_words()
    before = system.reading()
    fake.pass_(0.001, own_s=0.0, user=0, waited_s=0.5)  # a wait that began long before has ended
    assert system.since(before).waited == 1.0


def test_a_sandbox_whose_numbers_stand_still_says_nothing(fake: Fake) -> None:
    fake.waits.clear()
    system = fake.system()
    before = system.reading()
    fake.at_s, fake.own_s = 60.0, 9.0
    found = system.since(before)
    assert (found.others, found.waited, found.lost, found.in_words()) == (None, None, None, "")


def test_a_system_without_proc(tmp_path: Path) -> None:
    system = System(proc=tmp_path / "absent", group=tmp_path / "absent", mount=tmp_path)
    found = system.since(system.reading())
    assert (found.others, found.waited, found.throttled, found.lost) == (None, None, None, None)
    assert System(proc=tmp_path, processors=lambda: frozenset({0})).threads_of(1) is None


@pytest.mark.parametrize(("line", "folder"), [("0::/a", "a"), ("4:cpu,cpuacct:/a", "cpu,cpuacct/a")])
def test_a_quota_that_is_used_up(tmp_path: Path, line: str, folder: str) -> None:
    (tmp_path / "cgroup").write_text(line + "\n")
    stat = tmp_path / folder / "cpu.stat"
    stat.parent.mkdir(parents=True)
    stat.write_text("usage_usec 5\nnr_periods 100\nnr_throttled 20\nthrottled_usec 7\n")
    assert cgroup.throttled(tmp_path / "cgroup", tmp_path) == (20, 100)
    system = System(proc=tmp_path, group=tmp_path / "cgroup", mount=tmp_path)
    before = system.reading()
    stat.write_text("usage_usec 5\nnr_periods 200\nnr_throttled 60\nthrottled_usec 7\n")
    found = system.since(before)
    assert found.throttled == 0.4
    assert found.in_words() == "the control group held this process back in 40 % of its periods"
    assert found.lost is None  # it is no other's doing: the process never has more


def test_the_share_of_a_gpu_is_said() -> None:
    assert "used the GPU 60 % of the time" in Contention(seconds=1.0, processors=8, device=0.6).in_words()


def test_only_what_others_had_is_known() -> None:
    found = Contention(seconds=1.0, processors=4, others=3.0)
    assert found.lost == 0.75


BUSY = "import time; end = time.time() + 20\nwhile time.time() < end: pass"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="needs Linux's own numbers")
def test_a_real_rival_on_the_same_processor() -> None:
    """A busy stranger on the one processor that this process may use: it has half of it, and this one waits."""
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(usable)})
    # the shell ends at once, so that what it started is no child of this process
    started = subprocess.run(
        ["sh", "-c", '"$0" -c "$1" >/dev/null 2>&1 & echo $!', sys.executable, BUSY], capture_output=True, check=True
    )
    system = System()
    try:
        time.sleep(0.5)
        before, until = system.reading(), time.perf_counter() + 3.0
        while time.perf_counter() < until:
            pass
        found = system.since(before)
    finally:
        os.kill(int(started.stdout), signal.SIGKILL)
        os.sched_setaffinity(0, usable)
    assert found.processors == 1
    assert found.lost is not None
    assert 0.25 < found.lost < 0.95
