"""What-ifs of a step that is run here: the live profile's graph, changed and replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import gobrrr  # noqa: E402
from gobrrr.doors import changes  # noqa: E402
from gobrrr.doors.pipeline import examine  # noqa: E402
from gobrrr.errors import UsageError  # noqa: E402
from gobrrr.model.profile import Profile  # noqa: E402
from gobrrr.observe.live.options import WatchOptions  # noqa: E402
from gobrrr.observe.live.pull import pull  # noqa: E402
from gobrrr.observe.live.watcher import Watcher  # noqa: E402
from tests.live.look import CPU  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def profile() -> Profile:
    """A chain of pointwise operations on a CPU, its weights in a plain loop."""
    x = torch.randn(512, 1024)
    watcher = Watcher(options=WatchOptions())

    def step() -> None:
        with torch.inference_mode():
            y = x * 2.0 + 1.0
            torch.clamp(torch.sigmoid(y) * y, -3, 3)

    pull(watcher, step, (), {})
    return watcher.profile("step", "a CPU")


def test_the_step_as_it_is_is_the_measured_one(profile: Profile) -> None:
    found = changes.predict(profile)
    wall = found.diagnosis.unprofiled_wall_ns
    assert wall.how == "measured"
    assert found.what_if.step_ns == pytest.approx(wall.value, rel=1e-6)
    assert sum(one.ns for one in found.what_if.lines) == pytest.approx(wall.value, rel=1e-6)


def test_a_fused_chain_is_no_longer_than_the_written_one(profile: Profile) -> None:
    examined = examine(profile, on=CPU)
    assert examined.evidence is not None
    assert examined.evidence.graph.serial
    found = changes.with_panel(examined).what_ifs
    assert found[0].treatments == []
    assert all(0 <= one.low_ns <= one.step_ns <= one.high_ns for one in found)
    assert all(one.machine is None for one in found), "a CPU's step is not compared with a GPU's"
    assert all(one.step_ns <= found[0].step_ns * (1 + 1e-9) for one in found)


def test_another_machine_is_for_the_static_door(profile: Profile) -> None:
    with pytest.raises(UsageError, match="gobrrr predict"):
        changes.predict(profile, on="b200")


def test_its_timeline_can_be_looked_at(profile: Profile, tmp_path: Path) -> None:
    changes.predict(profile, ["compile"]).save_trace(tmp_path / "then.json.gz")
    assert gobrrr.read_trace(str(tmp_path / "then.json.gz")).ranks
