"""The public reports that gobrrr is tried on: each is whole, and its two forms do the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch")

from bench.gpu import reports  # noqa: E402
from bench.reports import FORMS, MECHANISMS, form_of, lines_to_blame  # noqa: E402
from bench.reports.__main__ import OUT, names, saved  # noqa: E402
from bench.reports.judging import judged  # noqa: E402
from tests.spread import slow  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:Creating a tensor from a list"),  # one of the reports
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
]


def test_reports_are_whole() -> None:
    for name in names():
        report = import_module(f"bench.reports.{name}")
        assert report.SOURCE.startswith("https://github.com/")
        assert report.MECHANISM in MECHANISMS
        assert lines_to_blame(report)


QUICK = "multi_news_beam_elements"
SIZES_GO_ON = "onednn_new_image_sizes"


@pytest.mark.parametrize("name", [one if one == QUICK else slow(one) for one in names() if one != SIZES_GO_ON])
def test_both_forms_of_a_report_do_the_same(name: str) -> None:
    report = import_module(f"bench.reports.{name}")
    sick, healthy = (form_of(report, form)().step() for form in FORMS)
    torch.testing.assert_close(sick.float(), healthy.float(), atol=1e-2, rtol=1e-2)


ON_GPU = [one for one in reports.names() if one != "vision_benchmark_of_each_size"]
"""But for the one whose sizes go on from step to step."""


@pytest.fixture
def settings() -> Iterator[None]:
    """What some reports set and leave so, as it was."""
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = True


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("name", ON_GPU)
def test_a_report_for_a_gpu_is_whole_and_its_forms_do_the_same(name: str) -> None:
    report = reports.module_of(name)
    assert report.SOURCE.startswith("https://github.com/")
    assert report.MECHANISM in MECHANISMS
    assert lines_to_blame(report)
    sick, healthy = (form_of(report, form)().step() for form in FORMS)
    torch.testing.assert_close(sick.float(), healthy.float(), atol=1e-2, rtol=1e-2)


def test_the_mechanisms_are_all_there_with_reports_where_nothing_is_to_be_had() -> None:
    every = [import_module(f"bench.reports.{name}") for name in names()]
    negative = [one for one in every if getattr(one, "NEGATIVE", False)]
    assert {one.MECHANISM for one in every if one not in negative} == set(MECHANISMS)
    assert len(negative) >= 3


def test_what_was_found_at_first_sight_is_kept() -> None:
    rows = json.loads(OUT.read_text(encoding="utf-8"))["rows"]
    assert set(rows) == set(names())
    assert all(row["first_sight"]["commit"] for row in rows.values())


def _said(*findings: tuple[str, str, bool], remedies: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    found = [{"code": code, "title": title, "ops": [], "at_cause": there} for code, title, there in findings]
    return {"findings": found, "prescriptions": list(remedies), "held_by": [], "held_at_cause": False, "step_ms": 1.0}


SORTS = cast(Any, SimpleNamespace(NAMES=r"\bsort", MECHANISM=3))
NOTHING = _said()


def test_a_cause_is_named_by_a_finding_that_says_it_at_its_line() -> None:
    sick = _said(("O01", "dispatch-bound", True), ("C07", "sort holds the step", True))
    assert judged(SORTS, sick, NOTHING, 0.5)["named"] == 2


def test_the_right_words_at_another_line_name_nothing() -> None:
    sick = _said(("C07", "sort holds the step", False))
    found = judged(SORTS, sick, NOTHING, 0.5)
    assert (found["named"], found["said"]) == (None, 1)


def test_that_a_step_is_bound_by_launches_names_nothing() -> None:
    sick = _said(("O01", "dispatch-bound: sort", True))
    found = judged(SORTS, sick, NOTHING, 0.5)
    assert (found["named"], found["only_launches"]) == (None, True)


def test_the_name_of_the_reports_file_says_nothing() -> None:
    remedy = {"treatment": "compile", "mends": ["M01"], "how": "# bench/reports/vllm_sort.py:3", "saves": [0.0, 0.1]}
    assert judged(SORTS, _said(("M01", "chain", True), remedies=(remedy,)), NOTHING, 0.5)["named"] is None


def test_the_fourth_finding_names_nothing() -> None:
    sick = _said(*[("M01", "other", True)] * 3, ("C07", "sort holds the step", True))
    assert judged(SORTS, sick, NOTHING, 0.5)["named"] is None


def test_the_words_of_a_remedy_count_for_the_finding_that_it_mends() -> None:
    remedy = {"treatment": "other-form", "mends": ["C07"], "how": "topk, not sort", "saves": [0.2, 0.6]}
    found = judged(SORTS, _said(("C07", "slow", True), remedies=(remedy,)), NOTHING, 0.5)
    assert (found["named"], found["remedy"], found["covers"]) == (1, "other-form", True)
    assert judged(SORTS, _said(("C07", "slow", True), remedies=(remedy,)), NOTHING, 0.7)["covers"] is False


def test_a_fixed_form_of_which_the_same_is_said_is_not_quiet() -> None:
    sick = _said(("C07", "sort holds the step", True))
    assert judged(SORTS, sick, NOTHING, 0.5)["quiet_when_fixed"]
    assert not judged(SORTS, sick, sick, 0.5)["quiet_when_fixed"]


def test_what_a_fix_saves_is_the_middle_of_rounds_in_turns() -> None:
    now = [0.0]

    def made(*, sick: bool) -> Any:
        def step() -> None:
            now[0] += 2.0 if sick else 0.5

        return SimpleNamespace(step=step)

    found = saved(cast(Any, SimpleNamespace(made=made)), rounds=3, clock=lambda: now[0])
    assert found["share"] == 0.75
    assert found["shares"] == [0.75] * 3
    assert (found["faulty_ms"], found["fixed_ms"]) == (2000.0, 500.0)
