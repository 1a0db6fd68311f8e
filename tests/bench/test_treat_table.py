"""The page of treated workloads is made from the results, with what failed, what was missed and what is not known."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench import treat_table
from bench.treat_misses import EXPLAINED


def trial(way: str, before: float, after: float | None, expected: float | None, **more: Any) -> dict[str, Any]:
    """A trial as the results have it: what is None is not there. Times in ns."""
    row: dict[str, Any] = {"way": way, "treatment": way.partition(":")[0], "kept": [], "why": "", "seconds": 2.0}
    row |= {"verdict": "helped", "work": 1.0}
    if after is not None:
        row["timing"] = {"before_ns": before, "after_ns": after, "spread_ns": 1e3, "rounds": 9, "steps": 90}
    if expected is not None:
        row |= {"expected_ns": expected, "predicted_saving_ns": [0.5 * expected, 1.5 * expected]}
    return row | more


def treated(*trials: dict[str, Any], **more: Any) -> dict[str, Any]:
    row = {"kept": [one["way"] for one in trials if one["verdict"] == "helped"], "trials": list(trials), "untried": []}
    row |= {
        "step_before_ns": 10e6,
        "step_after_ns": 4e6,
        "seconds": 61.0,
        "regime": "compute",
        "regime_after": "memory",
    }
    return {**row, "device": "card", "date": "2026-11-28", **more}


def results(**workloads: Any) -> dict[str, Any]:
    about = {"device": "card", "driver": "580.1", "torch": "2.11.0", "date": "2026-11-28"}
    filled = {name: {"what": "a | b", "gains": True, **one} for name, one in workloads.items()}
    return {**about, "command": "python -m bench.gpu.treat OUT", "tiny": False, "workloads": filled}


def row_of(page: str, start: str) -> list[str]:
    """The cells of the one row that begins so."""
    (found,) = (line for line in page.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in found.strip("|").split("|")]


GOOD = trial("compile", 10e6, 6e6, 4.5e6, memory_before_bytes=2_000_000_000, memory_after_bytes=1_500_000_000,
             numerics={"ok": True, "reference": "float64", "output": {"treated": 0.001}})  # fmt: skip
MISSED = trial("tf32", 6e6, 5.7e6, 3e6, kept=["compile"], verdict="no_change")


def test_a_trial_is_a_row_with_its_prediction_and_its_error_in_points():
    page = treat_table.page(results(gpt={"treat": treated(GOOD)}))
    assert row_of(page, "gpt | compile") == [
        "gpt", "compile", "45 % (22 % to 68 %)", "40 %", "+5", "ok 1.0e-03", "2.00 GB to 1.50 GB", "helped",
    ]  # fmt: skip
    assert "1 of 1 predicted savings (100 %) within 10 points" in page


def test_a_miss_is_listed_and_counted():
    page = treat_table.page(results(gpt={"treat": treated(GOOD, MISSED)}))
    assert "1 of 2 predicted savings (50 %) within 10 points of the measured one, median error 25.0 points" in page
    assert (
        "- gpt, tf32 (after compile): 50 % expected, 5 % measured, outside the predicted interval (45 points)" in page
    )


def test_steps_are_as_they_were_timed_in_turns_not_as_they_were_diagnosed():
    """By hand: 10 to 6 ms, then 6 to 8 ms for the work of two: 10/6 times 6/4; at once 11 and 9 ms for two."""
    larger = trial("larger-batch", 6e6, 8e6, 2e6, work=2.0, kept=["compile"])
    one = treated(GOOD, larger, step_before_ns=9e6, step_after_ns=3e6)
    assert treat_table.step_times(one) == pytest.approx((10e6, 4e6, 2.5))
    slower = trial("larger-batch", 12e6, 16e6, 2e6, work=2.0, kept=["compile"])  # the host, for both arms
    assert treat_table.step_times(treated(GOOD, slower)) == pytest.approx((10e6, 8e6, 2.5))
    assert row_of(treat_table.page(results(gpt={"treat": one})), "gpt | a / b")[3:6] == ["10.0 ms", "4.00 ms", "2.50"]
    whole = trial("all together", 11e6, 9e6, None, work=2.0)
    assert treat_table.step_times({**one, "together": whole}) == (11e6, 4.5e6, 11 / 4.5)
    assert treat_table.step_times({**one, "together": {**whole, "verdict": "inconclusive"}})[0] == 10e6
    assert treat_table.step_times(treated(kept=[], step_before_ns=9e6)) == (9e6, None, None)
    instead = trial("compile:graphs", 6e6, 5e6, 1e6, kept=["compile"], instead_of="compile")
    assert treat_table.step_times(treated(GOOD, instead, kept=["compile:graphs"])) == pytest.approx((10e6, 5e6, 2.0))
    assert "compile:graphs (in place of compile)" in treat_table.page(results(gpt={"treat": treated(GOOD, instead)}))


def test_a_larger_batch_is_measured_per_unit_of_work():
    found = trial("larger-batch", 10e6, 16e6, None, work=2.0)
    assert treat_table.measured(found) == pytest.approx(0.2)
    assert treat_table.error(found) is None


def test_a_trial_that_was_not_timed_has_no_saving_and_says_why():
    page = treat_table.page(results(gpt={"treat": treated(trial("x", 1e6, None, 5e5, verdict="inconclusive",
                                                                why="out of memory"))}))  # fmt: skip
    cells = row_of(page, "gpt | x")
    assert cells[2:5] == ["none", "", ""]
    assert cells[-1] == "inconclusive: out of memory"
    assert "None." in page


def test_times_that_scatter_too_much_to_tell_are_no_measurement():
    page = treat_table.page(results(gpt={"treat": treated(trial("x", 1e6, 0.0, 5e5, verdict="inconclusive"))}))
    assert row_of(page, "gpt | x")[2:5] == ["50 % (25 % to 75 %)", "", ""]
    assert "predicted savings" not in page


def test_a_failed_workload_is_a_row_with_its_error_that_cannot_break_the_table():
    page = treat_table.page(results(bad={"treat": {"error": "ended | with status 1"}}, gpt={"treat": treated(GOOD)}))
    assert row_of(page, "bad |")[2] == "failed: ended / with status 1"


def test_trials_of_a_workload_that_failed_later_are_shown_all_the_same():
    page = treat_table.page(results(gpt={"treat": {"error": "ended after its limit of 99 s", "trials": [GOOD]}}))
    assert row_of(page, "gpt | a / b")[2] == "failed: ended after its limit of 99 s"
    assert row_of(page, "gpt | compile")[3] == "40 %"


def test_treat_is_held_against_the_best_combination():
    found = {
        "trials": [{"ways": ["compile"], "verdict": "helped"}] * 16, "left": [["a", "b"]], "best": ["compile", "tf32"],
        "treat_kept": ["compile"], "turns_ns": {"untreated": 10e6, "treat": 4e6, "best": 3.9e6}, "ratio": 0.975,
    }  # fmt: skip
    page = treat_table.page(results(gpt={"treat": treated(GOOD, MISSED), "exhaustive": found}))
    assert row_of(page, "gpt | 10.0 ms")[3:8] == ["3.90 ms", "0.975", "2", "16 (1 left out)", "12 %"]
    assert "reached 97 % of the best combination's speed on 1 of 1 workloads" in page
    assert "on 1 of them in under a fifth of the trials" in page
    assert "not known why" not in page
    slower = treat_table.page(results(gpt={"treat": treated(GOOD), "exhaustive": {**found, "ratio": 0.9}}))
    assert slower.rstrip().endswith("- gpt: not known why")


def test_nothing_kept_where_nothing_is_to_be_gained_is_said():
    page = treat_table.page(results(idle={"gains": False, "treat": treated({**GOOD, "verdict": "no_change"})}))
    assert "- idle, where nothing is to be gained: nothing was kept" in page


def test_no_results_make_a_page_without_numbers():
    page = treat_table.page(results())
    assert "0 trials over 0 workloads: none" in page
    assert "Not run." in page


def test_where_the_run_ended_before_the_last_comparison_each_counts_by_its_own_trial():
    kept = trial("compile", 10e6, 8e6, 4.5e6, work=2.0)  # twice the batch: 4 ms for the work of one
    found = {
        "trials": [{"ways": ["tf32"], "verdict": "helped", "after_ns": 5e6}, {"ways": ["x"], "verdict": "no_change"}],
        "begun": ["compile:max-autotune"], "error": "ended after its limit of 295 s",
    }  # fmt: skip
    page = treat_table.page(results(gpt={"treat": treated(kept, kept=["compile"]), "exhaustive": found}))
    cells = ["gpt", "", "4.00 ms", "5.00 ms", "1.250", "1", "2 (compile:max-autotune not ended)", "50 %"]
    assert f"| {' | '.join(cells)} | compile | tf32 |" in page


def test_a_miss_says_why_where_that_is_known():
    page = treat_table.page(results(gpt={"treat": treated(GOOD, MISSED)}), {("gpt", "tf32"): "for a reason"})
    assert "(45 points): for a reason" in page


@pytest.mark.parametrize("stem", list(treat_table.PAGES))
def test_the_pages_are_current(stem: str):
    results_of = json.loads((treat_table.RESULTS / f"{stem}.json").read_text(encoding="utf-8"))
    text = treat_table.page(results_of, EXPLAINED[stem])
    assert (treat_table.DOCS / treat_table.PAGES[stem]).read_text(encoding="utf-8") == text


@pytest.mark.parametrize("stem", list(treat_table.PAGES))
def test_only_what_missed_is_explained(stem: str):
    results_of = json.loads((treat_table.RESULTS / f"{stem}.json").read_text(encoding="utf-8"))
    missed = {
        (name, one["way"])
        for name, one in treat_table.trials(results_of)
        if abs(treat_table.error(one) or 0.0) > treat_table.WITHIN
    }
    entries = results_of["workloads"].items()
    short = {
        (name, treat_table.AGAINST)
        for name, one in entries
        if one.get("exhaustive", {}).get("ratio", 1.0) < treat_table.REACHED
    }
    assert set(EXPLAINED[stem]) <= missed | short
    assert short <= set(EXPLAINED[stem])
