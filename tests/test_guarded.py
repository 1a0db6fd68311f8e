"""A condition, treatment, analysis or renderer that fails costs the answer that part alone, and the answer says so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from gobrrr import cli, conditions
from gobrrr.doors import changes, pipeline
from gobrrr.guarded import LOG, STRICT, GuardedParts, failed
from gobrrr.model.diagnosis import Diagnosis, NotChecked
from gobrrr.model.profile import Profile
from gobrrr.observe.trace import read_trace
from gobrrr.report import advice, html, notebook, terminal
from gobrrr.treatments.framework import base, prescribing, together
from tests.conftest import H100

FAULTY = H100 / "pointwise_chain.faulty.json.gz"
SAID = "could not be checked: ZeroDivisionError: float division by zero"


@pytest.fixture
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    """As users have it: what fails becomes a line."""
    monkeypatch.delenv(STRICT)


def fail(*_: object, **__: object) -> NoReturn:
    raise ZeroDivisionError("float division by zero")


@pytest.fixture(scope="module")
def profile() -> Profile:
    return read_trace(FAULTY)


@pytest.fixture(scope="module")
def whole(profile: Profile) -> Diagnosis:
    return pipeline.diagnose(profile)


def lines(found: Diagnosis) -> dict[str, str]:
    return {one.code: one.needs for one in found.not_checked if one.needs.startswith("could not be checked")}


def test_the_tests_themselves_fail_where_a_part_fails() -> None:
    with pytest.raises(ZeroDivisionError):
        GuardedParts().make("a part", fail, None)


def test_what_is_said_is_one_line_that_is_no_longer_than_a_screen(lenient: None) -> None:
    assert failed("x", KeyError("a\nb")) == "could not be checked: KeyError: 'a\\nb'"
    assert failed("x", ValueError("a\n" * 400)) == f"could not be checked: ValueError: {('a ' * 100)}"
    assert failed("x", RecursionError()) == "could not be checked: RecursionError"


def test_an_interrupt_is_no_failure_of_a_part(lenient: None) -> None:
    def interrupted() -> NoReturn:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        GuardedParts().make("a part", interrupted, None)


@pytest.mark.parametrize("code", ["M01", "O01", "C05", "N01"])  # two that hold and two that do not
def test_a_condition_may_fail(
    lenient: None, monkeypatch: pytest.MonkeyPatch, profile: Profile, whole: Diagnosis, code: str
) -> None:
    broken = tuple(replace(one, check=fail) if one.code == code else one for one in conditions.catalogue())
    monkeypatch.setattr(pipeline, "conditions", lambda: broken)
    found = pipeline.diagnose(profile)
    assert lines(found) == {code: SAID}
    # what the others find, and the numbers, are there; what the broken one had claimed may be another's now
    assert {one.code for one in whole.findings} - {code} <= {one.code for one in found.findings}
    assert (found.budget, found.regime, found.timeline) == (whole.budget, whole.regime, whole.timeline)


def test_a_treatment_may_fail(
    lenient: None, monkeypatch: pytest.MonkeyPatch, profile: Profile, whole: Diagnosis
) -> None:
    broken = tuple(replace(one, predict=fail) if one.name == "compile" else one for one in base.catalogue())
    monkeypatch.setattr(prescribing, "catalogue", lambda: broken)
    found = pipeline.diagnose(profile)
    assert set(lines(found)) == {
        f"compile for {code}" for one in whole.prescriptions if one.treatment == "compile" for code in one.mends
    }
    assert set(lines(found).values()) == {SAID}
    assert [one for one in whole.prescriptions if one.treatment != "compile"] == found.prescriptions


def test_the_replay_of_a_treatment_may_fail(lenient: None, monkeypatch: pytest.MonkeyPatch, profile: Profile) -> None:
    monkeypatch.setattr(together.Combiner, "saving", fail)
    found = pipeline.diagnose(profile)
    assert "compile" in lines(found)
    assert (found.prescriptions, [one.code for one in found.findings][:1]) == ([], ["M01"])


PARTS = {
    "timeline": "timeline",
    "modules": "modules",
    "kernel_rows": "table of kernels",
    "op_rows": "table of operations",
    "totals": "totals",
    "coverage": "coverage",
    "contradictions": "kernels against their floors",
    "judge": "verdict",
    "speed_of_light": "speed of light",
    "settle": "what findings have in common",
    "notes_of": "notes",
}


@pytest.mark.parametrize("name", PARTS)
def test_an_analysis_of_a_part_may_fail(
    lenient: None, monkeypatch: pytest.MonkeyPatch, profile: Profile, whole: Diagnosis, name: str
) -> None:
    monkeypatch.setattr(pipeline, name, fail)
    found = pipeline.diagnose(profile)
    assert lines(found)[PARTS[name]] == SAID
    assert (found.unprofiled_wall_ns, len(found.budget)) == (whole.unprofiled_wall_ns, len(whole.budget))
    assert "Could not be checked" in terminal.render(found)
    html.render(found)


def test_a_rank_may_fail(lenient: None, monkeypatch: pytest.MonkeyPatch, profile: Profile, whole: Diagnosis) -> None:
    (rank,) = profile.ranks
    other = replace(rank, meta=msgspec.structs.replace(rank.meta, rank=1))
    study = pipeline.study
    monkeypatch.setattr(pipeline, "study", lambda one, machine: fail() if one.rank == 1 else study(one, machine))
    found = pipeline.diagnose(replace(profile, ranks=(rank, other)))
    assert lines(found) == {"rank 1": SAID}
    assert found.budget == whole.budget


def test_the_step_with_a_change_may_fail(lenient: None, monkeypatch: pytest.MonkeyPatch, profile: Profile) -> None:
    monkeypatch.setattr(changes.Combiner, "combined", fail)
    asked = changes.predict(profile, ["compile"])
    assert asked.what_if is None
    assert lines(asked.diagnosis) == {"what-if compile": SAID, "what follows compile": SAID}
    assert "what-if compile (ZeroDivisionError" in " ".join(str(asked).split())
    with pytest.raises(changes.UsageError, match="no predicted timeline"):
        asked.save_trace("t.json")


def test_the_panel_and_another_machine_may_fail(
    lenient: None, monkeypatch: pytest.MonkeyPatch, profile: Profile, whole: Diagnosis
) -> None:
    monkeypatch.setattr(changes.Combiner, "combined", fail)
    panel, there = changes.diagnose(profile, panel=True), changes.diagnose(profile, on="b200")
    assert lines(panel) == {"panel of what-ifs": SAID, "what follows compile": SAID}
    assert lines(there) == {"the step on B200-SXM-180GB": SAID, "what follows compile": SAID}
    assert panel.budget == there.budget == whole.budget  # of the step as it ran, which is what is known
    assert (panel.what_ifs, there.machine) == ([], whole.machine)


@pytest.mark.parametrize("section", terminal._SECTIONS)
def test_each_section_of_the_terminal_may_fail(
    lenient: None, monkeypatch: pytest.MonkeyPatch, whole: Diagnosis, section: str
) -> None:
    shown = terminal.render(whole)
    monkeypatch.setitem(terminal._SECTIONS, section, fail)
    text = terminal.render(whole)
    assert f"Could not be checked: {section} (ZeroDivisionError: float division by zero)." in text
    assert "report it with the output of --debug." in " ".join(text.split())
    assert all(len(line) <= 80 for line in text.splitlines())
    kept = [line for line in shown.splitlines() if line.strip() and line in text]
    assert len(kept) > len(shown.splitlines()) / 3


def test_each_section_of_the_page_may_fail(lenient: None, monkeypatch: pytest.MonkeyPatch, whole: Diagnosis) -> None:
    broken = [
        ("what to do", html.advice, "what_to_do"), ("budget", html.verdict, "step_budget"),
        ("timeline", html.charts, "timeline"), ("operations", html.tables, "ops"), ("charts", html, "page_data"),
        ("not checked", html.machine, "not_checked"), ("links of findings", html, "link"),
    ]  # fmt: skip
    for name, home, function in broken:
        with monkeypatch.context() as patch:
            patch.setattr(home, function, fail)
            page = html.render(whole)
        assert f"Could not be checked: {name} (ZeroDivisionError: float division by zero)." in page
        assert 'id="machine"' in page


def test_the_summary_of_a_notebook_may_fail_in_part(
    lenient: None, monkeypatch: pytest.MonkeyPatch, whole: Diagnosis
) -> None:
    monkeypatch.setattr(notebook, "_budget", fail)
    assert "Could not be checked: budget (ZeroDivisionError" in notebook.render(whole)


def test_what_failed_stands_apart_from_what_is_missing_and_is_never_cut() -> None:
    items = [NotChecked(code="C03", needs="needs shapes"), *(
        NotChecked(code=f"a part with a long name {number}", needs=f"could not be checked: KeyError: {number}")
        for number in range(9)
    )]  # fmt: skip
    page = terminal.Page(width=80)
    text = "\n".join("".join(part for part, _ in line) for line in advice.tail(items, [], page, needs=1, most=0))
    assert all(f"a part with a long name {number}" in " ".join(text.split()) for number in range(9))
    assert text.endswith("Not checked (codes: gobrrr explain): C03: needs shapes")
    assert "…" not in text


def test_debug_prints_the_traceback_behind_the_answer(
    lenient: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(pipeline, "timeline", fail)
    page = tmp_path / "page.html"
    seen: list[tuple[int, str, str]] = []
    for more in ([], ["--debug"], []):
        status = cli.main(["diagnose", str(FAULTY), "--html", str(page), *more])
        seen.append((status, *capsys.readouterr()))
    assert [status for status, _, _ in seen] == [0, 0, 0]
    assert ["Traceback" in err for _, _, err in seen] == [False, True, False]
    assert "in fail" in seen[1][2]
    assert seen[0][1] == seen[1][1] == seen[2][1]
    assert "timeline (ZeroDivisionError: float division by zero)" in page.read_text()
    assert not LOG.handlers


def test_the_answer_as_json_has_the_line(
    lenient: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pipeline, "timeline", fail)
    assert cli.main(["diagnose", str(FAULTY), "--json"]) == 0
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert {"code": "timeline", "needs": SAID} in record["not_checked"]
