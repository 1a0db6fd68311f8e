from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gobrrr.errors import UsageError
from gobrrr.model.treated import Treated, TrialRecord, Untried
from gobrrr.report import terminal
from gobrrr.report.treated import uncertain
from gobrrr.trials.choosing import SearchOptions
from gobrrr.trials.ledger import Ledger
from gobrrr.trials.search import ProcessDied, Search
from gobrrr.trials.treat import diagnosis_of, run
from tests.trials.benches import STEP, FakeBench, candidate


def treated(bench: FakeBench, ledger: Path | None = None, **options: Any) -> Treated:
    book = Ledger.open(ledger) if ledger is not None else Ledger(Path("/dev/null/none"))
    return run(bench, "w.py:workload", SearchOptions(**options), book)


def tried(bench: FakeBench) -> list[str]:
    return [way for _, way in bench.trials]


def why(found: Treated, way: str) -> str:
    return next(one.why for one in found.untried if one.way == way)


def test_the_largest_predicted_saving_is_tried_first() -> None:
    bench = FakeBench([candidate("small", 0.1), candidate("large", 0.3), candidate("middle", 0.2)])
    found = treated(bench)
    assert tried(bench) == ["large", "middle", "small"]
    assert found.kept == ()
    assert found.step_after_ns is None
    assert "nothing is left" in found.stopped


def test_what_helped_is_kept_and_all_is_predicted_anew() -> None:
    bench = FakeBench(
        [candidate("a", 0.4), candidate("b", 0.3)],
        saved={"a": 0.5, "b": 0.2},
        then={"a": [candidate("b", 0.01, 0.0), candidate("c", 0.1)]},
    )
    found = treated(bench)
    assert bench.trials == [((), "a"), (("a",), "c")]
    assert bench.looks == [(), ("a",)]
    assert found.kept == ("a",)
    assert found.step_after_ns == pytest.approx(0.5 * STEP)
    assert why(found, "b") == "predicted to save at most 10.0 us"


def test_what_a_step_of_more_work_saves_counts_per_unit_of_it_and_comes_last() -> None:
    bench = FakeBench([candidate("batch", 0.45, work=2.0), candidate("a", 0.1)], saved={"batch": 0.4})
    found = treated(bench)
    assert tried(bench) == ["a", "batch"]
    assert found.step_after_ns == pytest.approx(0.6 * STEP)


def test_a_way_without_a_prediction_comes_last_and_only_where_it_may_be_worth_it() -> None:
    ways = [candidate("dark", None), candidate("idle", None, why_not="its cost is not here"), candidate("a", 0.1)]
    bench = FakeBench(ways)
    found = treated(bench)
    assert tried(bench) == ["a", "dark"]
    assert why(found, "idle") == "its cost is not here"
    assert found.trials[-1].predicted_saving_ns is None
    assert found.trials[-1].expected_ns is None


def test_a_way_that_is_predicted_to_save_little_is_not_tried() -> None:
    bench = FakeBench([candidate("a", 0.005, 0.01), candidate("b", 0.015, 0.006)])
    treated(bench)
    assert tried(bench) == ["b"]


def test_what_conflicts_with_a_kept_way_is_left_out_and_listed() -> None:
    ways = [candidate("a", 0.4), candidate("b", 0.3, conflicts=("a",)), candidate("c", 0.2)]
    bench = FakeBench([*ways, candidate("d", 0.1)], saved={"a": 0.3, "c": 0.1})
    bench.candidates = [*ways, candidate("d", 0.1, conflicts=("c",))]
    found = treated(bench)
    assert tried(bench) == ["a", "c"]
    assert why(found, "b") == "can't be combined with a, which was kept"
    assert why(found, "d") == "can't be combined with c, which was kept"


def test_another_way_of_a_kept_treatment_is_not_tried_unless_more_is_predicted() -> None:
    ways = [candidate("compile", 0.4), candidate("compile:graphs", 0.3, as_if=("compile", "cuda-graph"))]
    bench = FakeBench(ways, saved={"compile": 0.3}, then={"compile": [ways[0], candidate("compile:graphs", 0.01, 0.1)]})
    found = treated(bench)
    assert tried(bench) == ["compile"]
    assert "no better" in why(found, "compile:graphs")


def test_a_better_way_of_a_kept_treatment_stands_in_its_place() -> None:
    ways = [candidate("compile", 0.4), candidate("compile:graphs", 0.3, as_if=("compile", "cuda-graph"))]
    bench = FakeBench(ways, saved={"compile": 0.3, "compile:graphs": 0.4})  # of what the one before leaves
    found = treated(bench)
    assert bench.trials == [((), "compile"), (("compile",), "compile:graphs")]
    assert found.kept == ("compile:graphs",)
    assert found.trials[-1].instead_of == "compile"
    assert bench.joined == [("compile:graphs",)]  # what is kept was never timed in turns with the step as it was
    assert (found.step_after_ns, found.faster) == pytest.approx((0.6 * STEP, 1 / 0.6))
    bench = FakeBench(ways, saved=bench.saved, verdicts={"all together": "inconclusive"})
    found = treated(bench)
    assert (found.step_after_ns, found.faster) == pytest.approx((0.7 * 0.6 * STEP, 1 / (0.7 * 0.6)))
    assert uncertain(found)


def test_a_way_that_helps_less_than_the_kept_one_does_not_stand_in_its_place() -> None:
    ways = [candidate("compile", 0.4), candidate("compile:graphs", 0.3, as_if=("compile", "cuda-graph"))]
    bench = FakeBench(ways, saved={"compile": 0.3, "compile:graphs": -0.1})
    found = treated(bench)
    assert bench.trials == [((), "compile"), (("compile",), "compile:graphs")]
    assert found.kept == ("compile",)
    assert found.step_after_ns == pytest.approx(0.7 * STEP)


def test_what_compiles_for_minutes_comes_after_what_does_not() -> None:
    """The more it is predicted the sooner, of each of the two; throughput comes after both."""
    ways = [candidate("slow", 0.6, slow=True), candidate("slower", 0.7, slow=True), candidate("a", 0.1)]
    bench = FakeBench([*ways, candidate("batch", 0.8, work=2.0)])
    found = treated(bench)
    assert tried(bench) == ["a", "slower", "slow", "batch"]
    assert "late, because it compiles for minutes" in found.order[1]


def test_a_way_that_is_predicted_the_same_as_a_refused_one_is_not_tried() -> None:
    bench = FakeBench([candidate("compile", 0.4), candidate("compile:tuned", 0.4)], saved={"compile": -0.1})
    found = treated(bench)
    assert tried(bench) == ["compile"]
    assert why(found, "compile:tuned") == "predicted the same as compile, which hurt"


def test_another_way_has_its_turn_where_the_first_could_not_be_judged() -> None:
    bench = FakeBench(
        [candidate("compile", 0.4), candidate("compile:regional", 0.4)],
        saved={"compile:regional": 0.3}, verdicts={"compile": "inconclusive"},
    )  # fmt: skip
    assert treated(bench).kept == ("compile:regional",)


def test_a_refused_way_is_tried_again_only_where_more_is_predicted_for_it_since() -> None:
    ways = [candidate("a", 0.4), candidate("b", 0.3)]
    same = FakeBench(ways, saved={"b": 0.1}, then={"b": [candidate("a", 0.41)]})
    treated(same)
    assert tried(same) == ["a", "b"]
    grown = FakeBench(ways, saved={"b": 0.1}, then={"b": [candidate("a", 0.45)]})
    treated(grown)
    assert tried(grown) == ["a", "b", "a"]


@pytest.mark.parametrize("verdict", ["unsafe", "inconclusive"])
def test_what_broke_is_not_tried_again(verdict: str) -> None:
    bench = FakeBench([candidate("a", 0.4), candidate("b", 0.3)], saved={"b": 0.1}, verdicts={"a": verdict},
                      then={"b": [candidate("a", 0.8)]})  # fmt: skip
    assert treated(bench).kept == ("b",)
    assert tried(bench) == ["a", "b"]


def test_a_trial_that_does_not_fit_the_budget_is_not_begun() -> None:
    now = [0.0]

    def lasts(way: str) -> None:
        now[0] += 40.0

    bench = FakeBench([candidate(name, 0.1) for name in "abcdef"], before_trial=lasts)
    search = Search(bench, bench.look(()), SearchOptions(budget_s=100), clock=lambda: now[0])
    found = search.run()
    assert len(bench.trials) == 2
    assert found.stopped == "the budget: 80 s of 100 s were spent; a trial takes about 40 s: --budget 150"
    assert found.left["c"] == "the budget was spent before its turn"


def test_an_interrupt_ends_the_search_with_what_is_known() -> None:
    def interrupt(way: str) -> None:
        if way == "b":
            raise KeyboardInterrupt

    ways = [candidate("a", 0.4), candidate("b", 0.3), candidate("c", 0.2)]
    bench = FakeBench(ways, saved={"a": 0.2}, before_trial=interrupt)
    found = treated(bench)
    assert found.stopped == "interrupted"
    assert found.kept == ("a",)
    assert [one.way for one in found.trials] == ["a"]
    assert why(found, "b") == "interrupted during its trial"
    assert why(found, "c") == "interrupted before its turn"
    assert all(one.way != "a" for one in found.untried)


def test_a_treated_step_that_cannot_be_diagnosed_again_does_not_end_the_search() -> None:
    def dies(kept: Any) -> None:
        if kept:
            raise ProcessDied("the process died: signal 9")

    bench = FakeBench([candidate("a", 0.4), candidate("b", 0.3)], saved={"a": 0.2, "b": 0.1}, before_look=dies)
    found = treated(bench)
    assert found.kept == ("a", "b")
    assert found.after is None
    assert any("signal 9" in one for one in found.notes)


@pytest.mark.parametrize("renews", [True, False])
def test_a_workload_that_was_left_changed_is_not_tried_on(renews: bool) -> None:
    bench = FakeBench([candidate("a", 0.4), candidate("b", 0.3)], verdicts={"a": "inconclusive"}, renews=renews,
                      whys={"a": "a could not be undone; the workload may be changed"})  # fmt: skip
    found = treated(bench)
    assert tried(bench) == (["a", "b"] if renews else ["a"])
    assert ("left the workload changed" in found.stopped) is not renews


def test_names_choose_what_is_tried() -> None:
    ways = [candidate("a", 0.4), candidate("b:one", 0.3), candidate("b:two", 0.2), candidate("c", 0.001, 0.0)]
    without, only, forced = (FakeBench(ways) for _ in range(3))
    treated(without, without=("b",))
    assert tried(without) == ["a"]
    treated(only, only=("b:two",))
    assert tried(only) == ["b:two"]
    treated(forced, only=("c",))
    assert tried(forced) == ["c"]


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="no way of a treatment is called nope; those here: a, unfit"):
        treated(FakeBench([candidate("a")], unfit=[Untried(way="unfit", why="no")]), only=("nope",))


def test_a_dry_run_tries_nothing_and_tells_the_order() -> None:
    bench = FakeBench([candidate("a", 0.1), candidate("b", 0.2), candidate("c", None)])
    found = treated(bench, dry_run=True)
    assert bench.trials == []
    assert [one.partition(":")[0] for one in found.order] == ["b", "a", "c"]
    assert "predicted to save 200 us (20 %), 150 to 250 us" in found.order[0]
    assert found.untried == ()


def test_a_trial_of_the_ledger_is_not_run_again_unless_asked(tmp_path: Path) -> None:
    ways = [candidate("a", 0.4), candidate("b", 0.3)]
    first, second, third = (FakeBench(ways, saved={"a": 0.2, "b": 0.1}) for _ in range(3))
    before = treated(first, tmp_path)
    after = treated(second, tmp_path)
    assert second.trials == []
    assert after.kept == before.kept == ("a", "b")
    assert all(one.from_ledger == one.date != "" for one in after.trials)
    assert treated(third, tmp_path, again=True).trials[0].from_ledger == ""
    assert tried(third) == ["a", "b"]


@pytest.mark.parametrize("died", [True, False])
def test_of_trials_that_could_not_be_judged_only_those_that_died_twice_are_taken(tmp_path: Path, died: bool) -> None:
    benches = [FakeBench([candidate("a")], verdicts={"a": "inconclusive"}, died=died) for _ in range(3)]
    for bench in benches:
        treated(bench, tmp_path)
    assert [len(bench.trials) for bench in benches] == ([1, 1, 0] if died else [1, 1, 1])


def test_a_hang_by_another_limit_does_not_count(tmp_path: Path) -> None:
    benches = [FakeBench([candidate("a")], verdicts={"a": "inconclusive"}, died=True) for _ in range(4)]
    for bench, limit in zip(benches, (2.0, 2.0, 600.0, 2.0), strict=True):
        treated(bench, tmp_path, limit_s=limit)
    assert [len(bench.trials) for bench in benches] == [1, 1, 1, 0]


def test_a_refused_trial_of_the_ledger_comes_up_once_whatever_was_predicted_then(tmp_path: Path) -> None:
    treated(FakeBench([candidate("a", 0.03)]), tmp_path)
    second = FakeBench([candidate("a", 0.4)])
    found = treated(second, tmp_path)
    assert [one.from_ledger != "" for one in found.trials] == [True]
    assert second.trials == []
    assert "nothing is left" in found.stopped


def test_a_trial_of_a_step_that_took_far_longer_is_not_used_and_that_is_said(tmp_path: Path) -> None:
    treated(FakeBench([candidate("a", 0.4)], saved={"a": 0.2}), tmp_path)
    near, far = (FakeBench([candidate("a", 0.4)], saved={"a": 0.2}, step=STEP * by) for by in (1.4, 4.0))
    assert treated(near, tmp_path).trials[0].from_ledger
    found = treated(far, tmp_path)
    assert tried(far) == ["a"]
    assert any("its step took 1.00 ms, and takes 4.00 ms now" in one for one in found.notes)


def test_a_trial_of_a_slow_step_is_not_begun_where_it_does_not_fit_the_budget() -> None:
    bench = FakeBench([candidate("a", 400.0)], step=1e9)
    found = treated(bench, budget_s=30)
    assert bench.trials == []
    assert (
        found.stopped == "the budget: 0 s of 30 s were spent; a trial of a step of 1.00 s takes about 36 s: --budget 40"
    )
    assert found.needs_s == 40


def test_a_trial_is_given_no_more_than_what_is_left() -> None:
    now, given = [0.0], []

    class Bench(FakeBench):
        def trial(self, kept: Any, way: Any, allowed: Any, instead_of: str = "") -> Any:
            given.append((allowed.seconds, allowed.within_s))
            now[0] += 10.0
            return super().trial(kept, way, allowed, instead_of)

    bench = Bench([candidate(name, 0.1) for name in "abc"])
    Search(bench, bench.look(()), SearchOptions(budget_s=30, seconds=20.0), clock=lambda: now[0]).run()
    assert given == [pytest.approx(one) for one in [(20.0, 30.0), (20.0 / 1.5, 20.0), (10.0 / 1.5, 10.0)]]


@pytest.mark.parametrize(
    ("budget", "step_s", "seconds"), [(20, 0.001, 4.0), (300, 0.001, 30.0), (150, 0.001, 15.0), (300, 2.0, 80.0)]
)
def test_what_timing_may_take_follows_the_budget_and_the_step(budget: float, step_s: float, seconds: float) -> None:
    assert SearchOptions(budget_s=budget).trial_s(step_s * 1e9) == pytest.approx(seconds)


def test_time_is_kept_for_the_trial_of_all_that_is_kept() -> None:
    now = [0.0]

    def lasts(way: str) -> None:
        now[0] += 40.0

    bench = FakeBench([candidate(name, 0.1) for name in "abcd"], saved=dict.fromkeys("abcd", 0.1), before_trial=lasts)
    found = Search(bench, bench.look(()), SearchOptions(budget_s=150), clock=lambda: now[0]).run()
    assert tried(bench) == ["a", "b"]
    assert bench.joined == [("a", "b")]
    assert "a trial takes about 40 s, measuring all that is kept after it 40 s: --budget 190" in found.stopped


def test_where_nothing_that_was_named_fits_its_reasons_are_said_first() -> None:
    bench = FakeBench([candidate("a", 0.4)], unfit=[Untried(way="fp8", why="needs a GPU"), Untried(way="z", why="no")])
    found = treated(bench, only=("fp8",))
    assert found.stopped == "nothing that --only names can be tried here: fp8: needs a GPU"
    assert [one.way for one in found.untried] == ["fp8", "a", "z"]


def test_where_the_treated_step_was_not_looked_at_another_way_must_save_more_than_the_kept_one() -> None:
    def dies(kept: Any) -> None:
        if kept:
            raise ProcessDied("signal 9")

    ways = [candidate("compile", 0.4), candidate("compile:graphs", 0.3, as_if=("compile", "cuda-graph"))]
    bench = FakeBench(ways, saved={"compile": 0.3}, before_look=dies)
    assert "predicted to save nothing" in why(treated(bench), "compile:graphs")


def test_earlier_errors_widen_what_is_predicted_and_the_ledger_keeps_the_replays_own(tmp_path: Path) -> None:
    for at in range(5):
        found = treated(FakeBench([candidate("a", 0.3)], saved={"a": 0.02}), tmp_path, again=True).trials[0]
        for path in tmp_path.glob("*.json"):  # as if each were of another workload
            path.write_text(path.read_text().replace('"fingerprint": "f"', f'"fingerprint": "f{at}"'))
    assert found.replayed_expected_ns == found.expected_ns == pytest.approx(0.3 * STEP)
    assert found.replayed_saving_ns == pytest.approx((0.25 * STEP, 0.35 * STEP))
    assert found.predicted_saving_ns is not None
    assert found.predicted_saving_ns[0] < 0.2 * STEP


def test_a_trial_is_held_against_what_is_predicted_for_the_step_as_it_was_timed(tmp_path: Path) -> None:
    """It was diagnosed as half as long: the way leaves 0.2 ms of it either way."""

    class Slower(FakeBench):
        def trial(self, *given: Any) -> TrialRecord:
            made = super().trial(*given)
            then = {"replayed_expected_ns": 0.8 * STEP, "replayed_saving_ns": (0.7 * STEP, 0.9 * STEP)}
            return replace(made, step_ns=STEP, **then)

    bench = Slower([candidate("a", 0.3)], saved={"a": 0.78}, step=STEP / 2)
    treated_now = treated(bench, tmp_path)
    found = treated_now.trials[0]
    assert (found.expected_ns, found.step_ns) == (0.8 * STEP, STEP)
    assert found.predicted_saving_ns == (0.7 * STEP, 0.9 * STEP)
    (error,) = Ledger.open(tmp_path).errors("a", "GPU")
    assert error == pytest.approx(-0.02)
    assert any("are for the step as it was timed" in one for one in treated_now.caveats)


def test_the_diagnosis_holds_every_trial_also_those_without_a_prediction_or_a_time() -> None:
    ways = [candidate("a", 0.4), candidate("b", 0.3), candidate("c", None)]
    found = treated(FakeBench(ways, saved={"a": 0.2}, verdicts={"b": "inconclusive"}))
    made = diagnosis_of(found)
    assert [(one.treatment, one.verdict, one.after_ns) for one in made.trials] == [
        ("a", "helped", 0.8 * STEP), ("b", "inconclusive", None), ("c", "no_change", 0.8 * STEP),
    ]  # fmt: skip
    assert made.trials[2].predicted_saving_ns is None
    shown = terminal.for_print(made)
    for name, verdict in (("a", "helped"), ("b", "unclear"), ("c", "no change")):
        assert re.search(rf"^ +{name}  .*{verdict}", shown, re.MULTILINE)


def test_the_diagnosis_begins_with_what_was_kept() -> None:
    ways = [candidate("z", 0.5), candidate("a", 0.4, code="import torch\nx = 1"), candidate("b", 0.3)]
    made = diagnosis_of(treated(FakeBench([*ways, candidate("c", None)], saved={"a": 0.3, "b": 0.2, "c": 0.1})))
    assert [one.treatment for one in made.trials] == ["all together", "a", "b", "c", "z"]
    assert made.notes[0].startswith("treated: 1.00 ms a step -> 600 us with a + b + c: 1.67 times as fast")
    assert made.notes[1].startswith("to paste:\nimport torch\n")


def test_several_kept_ways_are_measured_all_at_once() -> None:
    ways = [candidate("a", 0.4), candidate("b", 0.3)]
    one, two = FakeBench(ways, saved={"a": 0.3}), FakeBench(ways, saved={"a": 0.3, "b": 0.2})
    assert treated(one).together is None
    found = treated(two)
    assert two.joined == [("a", "b")]
    assert found.step_after_ns == pytest.approx(0.6 * STEP)
    assert found.together is not None


def test_both_steps_are_as_they_were_timed_in_turns_and_a_host_that_drifts_is_told() -> None:
    """Diagnosed with 0.5 ms; timed, the step as it was took 1 ms, and half of that for twice the work."""
    ways = [candidate("a", 0.4), candidate("batch", 0.3, work=2.0)]
    found = treated(
        FakeBench(ways, saved={"a": 0.3, "batch": 0.2}, verdicts={"all together": "inconclusive"}, step=5e5)
    )
    assert (found.step_before_ns, found.step_after_ns) == (STEP, pytest.approx(0.7 * 0.8 * STEP))
    assert any(
        "took 500 us when it was diagnosed" in one and "1.00 ms when a trial timed it in turns" in one
        for one in found.caveats
    )
    found = treated(FakeBench(ways, saved={"a": 0.3}))
    assert (found.step_before_ns, found.step_after_ns) == (STEP, 0.7 * STEP)
    assert not any("when it was diagnosed" in one for one in found.caveats)
    found = treated(FakeBench(ways, step=5e5))
    assert (found.step_before_ns, found.step_after_ns) == (5e5, None)


def test_of_several_trials_how_much_faster_is_what_they_gave_one_upon_the_other() -> None:
    """The host was twice as slow in the first trial, for both of its arms."""

    class Bench(FakeBench):
        def trial(self, kept: Any, way: Any, allowed: Any, instead_of: str = "") -> Any:
            made = super().trial(kept, way, allowed, instead_of)
            slow = 1.0 if kept else 2.0
            timing = replace(made.timing, before_ns=slow * made.timing.before_ns, after_ns=slow * made.timing.after_ns)
            return replace(made, timing=timing)

    verdicts = {"all together": "inconclusive"}
    ways = [candidate("a", 0.4), candidate("batch", 0.3, work=2.0)]
    found = treated(Bench(ways, saved={"a": 0.3, "batch": 0.2}, verdicts=verdicts))
    assert (found.step_before_ns, found.step_after_ns) == pytest.approx((2 * STEP, 0.7 * 0.8 * STEP))
    assert found.faster == pytest.approx(1 / (0.7 * 0.8))


def test_a_way_that_turns_out_not_to_apply_is_no_trial(tmp_path: Path) -> None:
    class Bench(FakeBench):
        def trial(self, kept: Any, way: Any, allowed: Any, instead_of: str = "") -> Any:
            made = super().trial(kept, way, allowed, instead_of)
            if way.way != "graph":
                return made
            why = "graph can't be applied: the host waits inside it"
            return replace(made, verdict="inconclusive", why=why, timing=None, unapplied=True)

    bench = Bench([candidate("graph", 0.5), candidate("a", 0.3)], saved={"a": 0.3})
    found = treated(bench, ledger=tmp_path)
    assert tried(bench) == ["graph", "a"]
    assert [one.way for one in found.trials] == ["a"]
    assert why(found, "graph") == "the host waits inside it"
    assert [one.way for one in Ledger.open(tmp_path).records] == ["a"]


def test_where_all_at_once_cannot_be_judged_the_trials_count_and_it_is_said() -> None:
    ways = [candidate("a", 0.4), candidate("b", 0.3)]
    verdicts = {"all together": "inconclusive"}
    found = treated(FakeBench(ways, saved={"a": 0.3, "b": 0.2}, verdicts=verdicts))
    assert found.step_after_ns == pytest.approx(0.7 * 0.8 * STEP)
    assert any("could not be judged all at once: w" in one for one in found.notes)


def test_the_code_to_paste_has_each_import_once() -> None:
    ways = [candidate("a", 0.4, code="import torch\nx = 1", rank=50), candidate("b", 0.3, code="import torch\ny = 2")]
    found = treated(FakeBench(ways, saved={"a": 0.2, "b": 0.2}))
    assert found.code == "import torch\n\n# b\ny = 2\n\n# a\nx = 1"


def test_how_later_predictions_were_made_is_told_once() -> None:
    bench = FakeBench([candidate("a"), candidate("b", 0.1)], saved={"a": 0.2, "b": 0.1}, notes={"a": ("from before",)})
    found = Search(bench, bench.look(()), SearchOptions()).run()
    assert found.notes.count("from before") == 1
