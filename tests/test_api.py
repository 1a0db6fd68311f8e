from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import gobrrr
from gobrrr import api
from gobrrr.errors import InputError, UnknownDeviceError, UsageError
from gobrrr.model.profile import Profile
from gobrrr.report import catalogues as home
from gobrrr.report import terminal
from tests.report import samples

PROFILE = Profile(target="t.json", origin="trace", ranks=())
CONDITIONS = (
    SimpleNamespace(code="O01", title="launch-bound", explanation="The device waits for launches."),
    SimpleNamespace(code="O02", title="syncs", explanation="# O02 syncs\n\nThe host waits."),
)
TREATMENTS = (
    SimpleNamespace(name="cuda_graph", explanation="Replay the launches.\n\nMore.", code_to_paste="g.replay()"),
)


@pytest.fixture
def catalogues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "_catalogues", lambda: (CONDITIONS, TREATMENTS))


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Profile, str | None]]:
    """A pipeline that answers at once, and what it was called with."""
    calls: list[tuple[Profile, str | None]] = []

    def diagnose(profile: Profile, *, on: str | None = None, panel: bool = False, stages: Any = None) -> Any:
        assert not panel
        assert stages is None
        calls.append((profile, on))
        return samples.overhead()

    fake = ModuleType("gobrrr.doors.changes")
    fake.diagnose = diagnose  # type: ignore[attr-defined]
    monkeypatch.setattr("gobrrr.doors.changes", fake, raising=False)
    return calls


def test_what_is_exported_is_what_is_said() -> None:
    public = {name for name in dir(gobrrr) if not name.startswith("_")}
    modules = {name for name in public if isinstance(getattr(gobrrr, name), ModuleType)}
    assert set(gobrrr.__all__) - {"__version__"} == public - modules - {"annotations", "TYPE_CHECKING", "Any"}
    assert set(gobrrr._HOME) == set(gobrrr.__all__) - {"__version__"}
    assert gobrrr.__all__ == sorted(gobrrr.__all__)


def test_every_public_name_says_what_it_is() -> None:
    for name in gobrrr.__all__:
        if name != "__version__":
            assert (getattr(gobrrr, name).__doc__ or "").strip(), name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        gobrrr.nope  # noqa: B018


def loaded_after(code: str) -> set[str]:
    script = f"import sys; {code}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


HEAVY = {"numpy", "rich", "msgspec", "typer", "torch", "fsspec"}


def test_the_bare_import_loads_nothing_heavy() -> None:
    assert not loaded_after("import gobrrr") & HEAVY


def test_that_test_can_fail() -> None:
    assert "msgspec" in loaded_after("import gobrrr; gobrrr.Diagnosis")


def test_a_profile_goes_straight_to_the_pipeline(pipeline: list[Any]) -> None:
    assert gobrrr.diagnose(PROFILE, on="h100") == samples.overhead()
    assert pipeline == [(PROFILE, "h100")]


def test_an_unknown_machine_is_refused_before_the_work(pipeline: list[Any]) -> None:
    with pytest.raises(UnknownDeviceError):
        gobrrr.diagnose(PROFILE, on="no such card")
    assert pipeline == []


def step() -> None:
    """A callable."""


@pytest.mark.parametrize("target", [step, print, "train.py:step", "package.module:Model.step"])
def test_code_is_no_trace(target: Any) -> None:
    with pytest.raises(UsageError, match="not a trace"):
        gobrrr.read_trace(target)


def test_a_script_is_no_trace(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    with pytest.raises(InputError, match="no such file"):
        gobrrr.read_trace(script)
    script.write_text("def step(): ...")
    with pytest.raises(UsageError, match=r"a script, not a trace; run it with gobrrr run .*train\.py"):
        gobrrr.read_trace(script)


def test_arguments_and_scaling_are_for_steps() -> None:
    with pytest.raises(UsageError, match="a trace takes none"):
        gobrrr.diagnose("trace.json", 1)
    with pytest.raises(UsageError, match="can't be run again"):
        gobrrr.diagnose("trace.json", scale=True)


@pytest.mark.parametrize("target", [None, 3, [], {}])
def test_what_is_no_target_is_refused(target: Any) -> None:
    with pytest.raises(UsageError, match="a target is a path, a URL or a Profile"):
        gobrrr.diagnose(target)


def test_a_missing_file_comes_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "trace.json.gz").touch()
    with pytest.raises(InputError, match=r"did you mean .*trace\.json\.gz\?"):
        gobrrr.read_trace(tmp_path / "trace.json")
    with pytest.raises(InputError, match="gobrrr demo"):
        gobrrr.read_trace(tmp_path / "other")
    with pytest.raises(InputError, match="there is no folder"):
        gobrrr.read_trace(tmp_path / "none" / "trace.json")


@pytest.mark.parametrize("target", ["", "\x00", "x" * 5000, "a\x1b[2Jb\nc", "\udcff"])
def test_a_hostile_name_is_refused_in_one_safe_line(target: str) -> None:
    with pytest.raises(InputError) as caught:
        gobrrr.read_trace(target)
    assert str(caught.value).isprintable() or "\ufffd" in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("target", ["-", "https://host/trace.json", "s3://bucket/x:y"])
def test_what_is_no_file_is_left_to_the_reader(target: str) -> None:
    assert api.check_target(target) == target


def test_printing_a_diagnosis_prints_the_answer() -> None:
    assert str(samples.overhead()) == terminal.for_print(samples.overhead())
    assert "OVERHEAD-BOUND" in str(samples.overhead())


def test_saved_and_loaded(tmp_path: Path) -> None:
    gobrrr.save(samples.memory(), tmp_path / "x.json")
    assert gobrrr.load(tmp_path / "x.json") == samples.memory()


def test_a_machine_by_name() -> None:
    assert gobrrr.machine("h100").memory_bytes_per_s is not None
    with pytest.raises(UnknownDeviceError):
        gobrrr.machine("abacus")


@pytest.mark.usefixtures("catalogues")
def test_the_codes_that_can_be_explained() -> None:
    assert gobrrr.codes() == {
        "conditions": {"O01": "launch-bound", "O02": "syncs"},
        "treatments": {"cuda_graph": "Replay the launches"},
    }


@pytest.mark.usefixtures("catalogues")
@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("O01", "# O01: launch-bound\n\nThe device waits for launches."),
        (" o01 ", "# O01: launch-bound\n\nThe device waits for launches."),
        ("O02", "# O02 syncs\n\nThe host waits."),
        ("CUDA-graph", "# cuda_graph\n\nReplay the launches.\n\nMore.\n\n```python\ng.replay()\n```"),
    ],
)
def test_a_code_is_explained(code: str, text: str) -> None:
    assert gobrrr.explain(code) == text


@pytest.mark.usefixtures("catalogues")
def test_an_unknown_code_comes_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"did you mean O01\?"):
        gobrrr.explain("O1")
    with pytest.raises(UsageError, match="did you mean cuda_graph"):
        gobrrr.explain("cudagraphs")
    with pytest.raises(UsageError, match="gobrrr explain lists all codes"):
        gobrrr.explain("qqqqqq")


def test_every_code_of_the_real_catalogues_is_explained() -> None:
    known = gobrrr.codes()
    assert known["conditions"]
    for code, title in {**known["conditions"], **known["treatments"]}.items():
        assert title
        assert len(gobrrr.explain(code)) > 100
