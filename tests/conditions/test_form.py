"""Every condition has the form that `explain` and the docs rest on."""

from __future__ import annotations

import ast
import re
from types import ModuleType

import pytest

from gobrrr.conditions import Condition, catalogue
from gobrrr.conditions.base import SECTIONS, condition_of
from gobrrr.treatments import catalogue as treatments

CODES = {one.code: one for one in catalogue()}


def test_the_catalogue_is_sorted_and_holds_the_first_six():
    assert list(CODES) == sorted(CODES)
    assert {"O01", "O02", "D01", "M01", "M02", "C01"} <= set(CODES)


@pytest.mark.parametrize("condition", catalogue(), ids=lambda one: one.code)
def test_an_explanation_has_its_sections_and_examples_that_parse(condition: Condition):
    for section in SECTIONS:
        assert section in condition.explanation
    sick = _code(condition.explanation.split("## Sick")[1].split("## Healthy")[0])
    healthy = _code(condition.explanation.split("## Healthy")[1])
    assert sick
    assert healthy
    for block in sick + healthy:
        ast.parse(block)
    assert all(len(line) <= 130 for line in condition.explanation.splitlines())


def _code(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize("treatment", treatments(), ids=lambda one: one.name)
def test_a_treatment_says_what_to_paste_and_what_it_predicts(treatment):
    ast.parse(treatment.code_to_paste)
    assert treatment.title
    assert "\n" not in treatment.title
    assert "Predicted" in treatment.explanation


def _module(name: str = "x01_thing", **given: object) -> ModuleType:
    module = ModuleType(f"gobrrr.conditions.{name}", "What.\n\n" + "\n\n".join(SECTIONS))
    for key, value in {"CODE": "X01", "TITLE": "thing", "check": lambda evidence: None, **given}.items():
        setattr(module, key, value)
    return module


def test_a_module_of_the_right_form_is_a_condition():
    assert condition_of(_module()).code == "X01"


@pytest.mark.parametrize(
    "given",
    [{"CODE": "X02"}, {"TITLE": ""}, {"check": None}, {"__doc__": None}, {"__doc__": "What.\n\n## Sick\n\n## Healthy"}],
)
def test_a_module_of_a_wrong_form_fails_with_its_name(given: dict[str, object]):
    with pytest.raises(TypeError, match=r"gobrrr\.conditions\.x01_thing"):
        condition_of(_module(**given))
