"""The page of treat against experts' recipes is made from the results, and says what first sight gave."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench import treat_table


def trial(way: str, **more: Any) -> dict[str, Any]:
    return {"way": way, "verdict": "helped", "timing": {"before_ns": 10e6, "after_ns": 6e6}, "step_ns": 8e6} | more


def workload(treat_ns: float, best_ns: float, *trials: dict[str, Any]) -> dict[str, Any]:
    treated = {
        "trials": list(trials),
        "seconds": 61.0,
        "compiling_s": 20.0,
        "trial_ends_s": [[30.0, 15.0], [61.0, 20.0]],
    }
    against = {"mine": "tf32", "best": "compile", "untreated_ns": 10e6, "treat_ns": treat_ns, "best_ns": best_ns}
    return {"what": "a | b", "treat": treated, "against": against}


def page(**workloads: Any) -> str:
    about = {"command": "python -m bench.gpu.treat OUT", "date": "2026-11-29", "device": "card", "torch": "2.11.0"}
    return treat_table.page({**about, "workloads": workloads})


@pytest.fixture
def explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(treat_table.WHY, "slow", "for a reason")


@pytest.mark.usefixtures("explained")
def test_the_ratio_is_the_best_recipes_time_over_treats_and_the_lowest_stands_first() -> None:
    text = page(fast=workload(4e6, 6e6), slow=workload(10e6, 5e6))
    rows = [line for line in text.splitlines() if line.startswith(("| slow | a", "| fast | a"))]
    assert rows == [
        "| slow | a / b | 10.0 ms | 10.0 ms | tf32 | 5.00 ms | compile | 0 | 61 | 20 | 0.500 | the same |",
        "| fast | a / b | 10.0 ms | 4.00 ms | tf32 | 6.00 ms | compile | 0 | 61 | 20 | 1.500 | the same |",
    ]
    assert "At first sight, treat reached 97 % of the best recipe's speed on 1 of 2 workloads" in text
    assert "- slow (0.500 at first sight): for a reason." in text


@pytest.mark.usefixtures("explained")
def test_what_was_measured_anew_stands_beside_what_first_sight_gave() -> None:
    first = workload(10e6, 5e6, trial("tf32"))
    text = page(slow={**workload(5e6, 5e6, trial("compile")), "first_sight": first})
    assert "| 0.500 | 1.000 |" in text
    assert "Now, treat reached 97 % of the best recipe's speed on 1 of 1" in text
    assert "for a reason" in text
    assert "| slow, at first sight | tf32 |" in text
    assert "| slow | compile |" in text


def test_what_compiled_does_not_count_against_the_seconds_of_the_trials() -> None:
    assert treat_table.beside_compiling(workload(1e6, 1e6)) == 41.0


def test_what_the_time_did_not_reach_is_named() -> None:
    assert "The time did not reach the end of short." in page(short={"what": "x", "left": ["all"]})


def test_a_prediction_is_of_the_step_that_was_diagnosed_and_a_measurement_of_the_one_that_was_timed() -> None:
    one = trial("tf32", expected_ns=2e6, predicted_saving_ns=[1e6, 4e6])
    assert treat_table.predicted(one) == (0.25, 0.125, 0.5)
    assert treat_table.measured(one) == pytest.approx(0.4)
    assert treat_table.measured({**one, "work": 2.0}) == pytest.approx(0.7)
    text = page(slow=workload(1e6, 1e6, one, trial("x", timing=None, verdict="inconclusive")))
    assert "| slow | tf32 | 25 % (12 % to 50 %) | 40 % | helped |" in text
    assert "| slow | x | nothing predicts it |  | inconclusive |" in text


def test_the_page_is_current_and_whatever_stayed_behind_is_explained() -> None:
    results = json.loads(treat_table.RESULTS.read_text(encoding="utf-8"))
    assert treat_table.PAGE.read_text(encoding="utf-8") == treat_table.page(results)
    first = treat_table.held(treat_table.first_sight(results["workloads"]))
    assert {name for name, one in first.items() if (treat_table.ratio(one) or 0.0) < treat_table.REACHED} == set(
        treat_table.WHY
    )
