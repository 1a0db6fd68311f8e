from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gobrrr.model.live import HostSync  # noqa: E402
from gobrrr.observe.live.watches.sync_mode import set_sync_mode  # noqa: E402
from gobrrr.observe.live.watches.syncs import SyncWatch, looking  # noqa: E402
from tests.live import program  # noqa: E402


class Waiting(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """What waits within a library is called by a line of the program."""

    def forward(self, x: Any) -> Any:
        code = "import warnings\ndef wait():\n    warnings.warn('called a synchronizing CUDA operation')\n"
        names: dict[str, Any] = {}
        exec(compile(code, torch.__file__, "exec"), names)
        names["wait"]()
        return x


def line(mark: str, function: str) -> str:
    return f"{program.__file__}({program.line_of(mark)}): {function}"


def state() -> tuple[Any, ...]:
    return (
        list(warnings.filters),
        warnings.showwarning,
        warnings._showwarnmsg,  # type: ignore[attr-defined]
        torch.cuda.synchronize,
        torch.cuda.Event.synchronize,
        torch.cuda.Stream.synchronize,
    )


def test_waits_are_counted_by_the_users_line() -> None:
    with looking() as watch:
        for _ in range(3):
            program.waits()
    found = watch.found()
    assert [(one.source, one.count) for one in found] == [(line("waits", "waits"), 3.0)]
    assert found[0].what.startswith("warnings.warn(")


def test_over_several_steps_the_count_is_of_a_step() -> None:
    with looking() as watch:
        for _ in range(6):
            program.waits()
    assert watch.found(4)[0].count == 1.5


def test_a_wait_within_torch_belongs_to_the_line_that_calls_it() -> None:
    with looking() as watch:
        program.waits_in_torch(Waiting(), torch.ones(2))
    sources = [one.source for one in watch.found()]
    # the innermost line outside of torch is the module's own
    assert len(sources) == 1
    assert sources[0].startswith(__file__)
    assert sources[0].endswith(": forward")


def test_waits_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: asked.append("device"))
    with looking() as watch:
        program.asks_to_wait()
        program.asks_to_wait()
    assert watch.found() == (HostSync(source=line("asks", "asks_to_wait"), count=2.0, what="torch.cuda.synchronize"),)
    assert asked == ["device", "device"]


def test_a_step_that_does_not_wait() -> None:
    with looking() as watch:
        program.plain(torch.ones(4))
    assert watch.found() == ()


def test_the_programs_own_warnings_are_shown() -> None:
    with pytest.warns(UserWarning, match="of the program"), looking() as watch:
        warnings.warn("a warning of the program", stacklevel=1)
    assert watch.found() == ()


def test_a_warning_that_is_an_error_is_one() -> None:
    with pytest.raises(RuntimeWarning), looking():  # warnings are errors in these tests
        warnings.warn("of the program", RuntimeWarning, stacklevel=1)


def test_a_warning_that_was_shown_once_is_not_shown_again() -> None:
    shown: list[str] = []
    registry: dict[Any, Any] = {}

    def warn() -> None:
        warnings.warn_explicit("once a line", UserWarning, "file.py", 1, registry=registry)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        plain = warnings.showwarning
        warnings.showwarning = lambda message, *_, **__: shown.append(str(message))
        try:
            warn()
            with looking():
                warn()
            warn()
        finally:
            warnings.showwarning = plain
    assert shown == ["once a line"]


def test_everything_is_restored_after_an_exception() -> None:
    before = state()

    def step() -> None:
        with looking():
            assert state() != before
            _ = 1 // 0

    with pytest.raises(ZeroDivisionError):
        step()
    assert state() == before
    watch = SyncWatch()
    watch.close()
    watch.open()
    watch.open()
    watch.close()
    watch.close()
    assert state() == before


def test_what_the_program_sets_meanwhile_stays() -> None:
    def own(message: Any, *_: Any, **__: Any) -> None:
        return None

    with warnings.catch_warnings():
        with looking():
            warnings.simplefilter("ignore")
            warnings.showwarning = own
        assert warnings.filters[0][0] == "ignore"
        assert warnings.showwarning is own


def test_switching_the_mode_warns_of_nothing_and_leaves_the_programs_warnings_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modes: list[Any] = []

    def set_mode(mode: Any) -> None:
        modes.append((mode, torch.is_warn_always_enabled()))
        warnings.warn("Synchronization debug mode is a prototype feature", UserWarning, stacklevel=2)

    def programs_own() -> None:
        warnings.warn("the program's own", UserWarning, stacklevel=1)

    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", set_mode)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        programs_own()
        set_sync_mode("warn")
        programs_own()
    assert [str(one.message) for one in shown] == ["the program's own"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        set_sync_mode(0)
        assert list(warnings.filters) == before
    assert modes == [("warn", True), (0, True)]
    assert not torch.is_warn_always_enabled()


@pytest.mark.gpu
def test_a_program_that_sets_the_mode_itself_still_gets_its_warning() -> None:
    code = """
import warnings
import torch
from gobrrr.observe.live.ops.readings import equal_to, readable
from gobrrr.observe.live.watches.sync_mode import set_sync_mode
from gobrrr.observe.live.watches.syncs import looking
x = torch.ones(4, device="cuda")
warnings.simplefilter("error")
with looking() as watch, readable(x):
    equal_to(x, 1)
set_sync_mode(0)
try:
    torch.cuda.set_sync_debug_mode(0)
except UserWarning as warning:
    print(warning)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Synchronization debug mode is a prototype" in done.stdout


@pytest.mark.gpu
def test_the_lines_that_wait_for_a_gpu() -> None:
    x = torch.ones(1024, device="cuda")
    mask = x > 0
    mode = torch.cuda.get_sync_debug_mode()
    with looking() as watch:
        for _ in range(2):
            float(x.sum())
        x[mask]
        torch.cuda.synchronize()
        event = torch.cuda.Event()
        event.record()
        event.synchronize()
        torch.cuda.current_stream().synchronize()
        x * 2
    found = {one.what: one.count for one in watch.found()}
    assert found == {
        "float(x.sum())": 2,
        "x[mask]": 1,
        "torch.cuda.synchronize": 1,
        "Event.synchronize": 1,
        "Stream.synchronize": 1,
    }
    assert torch.cuda.get_sync_debug_mode() == mode
