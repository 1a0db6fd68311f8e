"""What a trial is expected to take, in seconds, of those before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gobrrr.trials import pace
from gobrrr.trials.choosing import SearchOptions, SearchState
from gobrrr.trials.costs import Costs
from gobrrr.trials.ledger import Ledger
from gobrrr.trials.search import Search
from tests.trials.benches import FakeBench, candidate

PLAIN, OTHER = candidate("a"), candidate("b")
COMPILE, GRAPHS = candidate("compile", compiles=True), candidate("compile:reduce-overhead", compiles=True)


SHORT = 0.001
"""A step, in seconds, whose trial costs nothing by itself."""
OWN = pace.trial_s(SHORT), pace.trial_s(SHORT, compiles=True)


def test_before_the_first_a_trial_takes_its_fewest_steps() -> None:
    costs = Costs()
    assert costs.of(PLAIN, SHORT) == OWN[0]
    assert costs.of(COMPILE, SHORT) == costs.joined([PLAIN, COMPILE], SHORT) == OWN[1]
    assert costs.look([PLAIN]) == 0.0
    assert costs.of(PLAIN, 1.3) == pytest.approx(47, abs=1)


def test_a_trial_of_a_slower_step_takes_no_less_than_its_steps() -> None:
    costs = Costs()
    costs.add(PLAIN, 5.0, None)
    assert costs.of(OTHER, SHORT) == 5.0
    assert costs.of(OTHER, 1.0) == pace.trial_s(1.0) > 30.0


def test_compiling_is_no_cost_of_what_does_not_compile() -> None:
    costs = Costs()
    costs.add(COMPILE, 50.0, 45.0)
    assert costs.of(PLAIN, SHORT) == pytest.approx(5.0)
    assert costs.of(GRAPHS, SHORT) == pytest.approx(50.0)
    costs.add(PLAIN, 7.0, None)
    costs.add(GRAPHS, 36.0, 30.0)
    assert costs.of(OTHER, SHORT) == pytest.approx(6.0)
    assert costs.of(COMPILE, SHORT) == pytest.approx(6.0 + 45.0)


def test_what_times_each_kernels_forms_compiles_for_longer() -> None:
    costs, tuned = Costs(), candidate("compile:max-autotune", compiles=True, slow=True)
    assert (costs.of(tuned, SHORT), costs.of(COMPILE, SHORT)) == (OWN[1] + Costs.SLOW_S, OWN[1])
    costs.add(COMPILE, 15.0, 10.0)
    assert costs.of(tuned, SHORT) == pytest.approx(5.0 + Costs.SLOWER * 10.0)
    assert costs.of(GRAPHS, SHORT) == pytest.approx(5.0 + 10.0)
    costs.add(tuned, 125.0, 120.0)
    assert costs.of(tuned, SHORT) == pytest.approx(5.0 + 120.0)
    assert costs.of(GRAPHS, SHORT) == pytest.approx(5.0 + 120.0 / Costs.SLOWER)


def test_what_was_ended_by_the_budget_takes_longer_than_it_had() -> None:
    costs = Costs()
    costs.ended(COMPILE, 80.0)
    assert costs.of(COMPILE, SHORT) == costs.of(GRAPHS, SHORT) == pytest.approx(80.0 + OWN[1])
    assert costs.of(PLAIN, SHORT) == OWN[0]


def test_settling_of_a_way_that_does_not_compile_is_its_own_cost() -> None:
    costs = Costs()
    costs.add(PLAIN, 7.0, 3.0)
    assert costs.of(OTHER, SHORT) == pytest.approx(7.0)


def test_what_is_compiled_again_comes_from_the_cache() -> None:
    costs = Costs()
    costs.add(COMPILE, 50.0, 40.0)
    costs.add(PLAIN, 10.0, None)
    costs.looked(3.0)
    assert costs.joined([COMPILE, PLAIN], SHORT) == pytest.approx(10.0 + Costs.CACHED * 40.0)
    assert costs.joined([PLAIN, OTHER], SHORT) == pytest.approx(10.0)
    assert costs.look([COMPILE, PLAIN]) == pytest.approx(3.0 + Costs.CACHED * 40.0)
    assert costs.look([PLAIN]) == 3.0


def test_after_a_long_compilation_a_way_that_does_not_compile_still_fits_the_budget() -> None:
    now = [0.0]

    def spend(way: str) -> None:
        now[0] += 60.0 if way == "compile" else 4.0

    bench = FakeBench(
        [candidate("compile", 0.5, compiles=True), candidate("fused-optimizer", 0.3), candidate("tf32", 0.2)],
        saved={"compile": 0.4, "fused-optimizer": 0.2, "tf32": 0.1}, before_trial=spend, compile_s={"compile": 55.0},
    )  # fmt: skip
    found = Search(bench, bench.look(()), SearchOptions(budget_s=110), clock=lambda: now[0]).run()
    assert [one.way for one in found.trials] == ["compile", "fused-optimizer", "tf32"]


def test_a_way_that_takes_too_long_does_not_end_the_search_for_those_that_fit() -> None:
    now = [0.0]

    def spend(way: str) -> None:
        now[0] += 55.0 if way.startswith("compile") else 3.0

    bench = FakeBench(
        [candidate("compile", 0.5, compiles=True), candidate("compile:reduce-overhead", 0.4, compiles=True),
         candidate("tf32", 0.2), candidate("sdpa", 0.1)],
        saved={"tf32": 0.1, "sdpa": 0.05}, before_trial=spend, compile_s={"compile": 50.0},
        verdicts={"compile": "inconclusive"},
    )  # fmt: skip
    found = Search(bench, bench.look(()), SearchOptions(budget_s=100), clock=lambda: now[0]).run()
    assert [one.way for one in found.trials] == ["compile", "tf32", "sdpa"]
    assert found.left["compile:reduce-overhead"] == "the budget was spent before its turn"
    assert "a trial takes" in found.stopped


def test_while_nothing_is_decided_what_compiles_leaves_time_for_what_does_not() -> None:
    """If it has to be ended its process is, and starting another takes 5 s."""
    now, within = [0.0], {}

    class Bench(FakeBench):
        def trial(self, kept: Any, way: Any, allowed: Any, instead_of: str = "") -> Any:
            within[way.way] = allowed.within_s
            now[0] += allowed.within_s if way.compiles else 2.0
            made = super().trial(kept, way, allowed, instead_of)
            return replace(made, verdict="inconclusive", timing=None, late=True) if way.compiles else made

    ways = [candidate("compile", 500.0, compiles=True), candidate("tf32", 200.0)]
    bench = Bench(ways, saved={"tf32": 0.1}, start_s=5.0, step=1e9)
    found = Search(bench, bench.look(()), SearchOptions(budget_s=100), clock=lambda: now[0]).run()
    assert within["compile"] == pytest.approx(100 - 100 * pace.GRACE_SHARE - 5 - pace.trial_s(1.0))
    assert [one.way for one in found.kept] == ["tf32"]
    alone = Bench(ways[:1], start_s=5.0, step=1e9)
    now[0] = 0.0
    found = Search(alone, alone.look(()), SearchOptions(budget_s=100), clock=lambda: now[0]).run()
    assert within["compile"] == 100
    assert not found.kept


def test_what_was_ended_in_an_earlier_run_is_not_begun_with_less(tmp_path: Path) -> None:
    class Bench(FakeBench):
        def trial(self, kept: Any, way: Any, allowed: Any, instead_of: str = "") -> Any:
            made = super().trial(kept, way, allowed, instead_of)
            return replace(made, verdict="inconclusive", timing=None, late=True, seconds=100.0)

    def run(budget_s: float) -> tuple[Bench, SearchState]:
        bench = Bench([candidate("compile", 0.5, compiles=True)])
        search = Search(
            bench, bench.look(()), SearchOptions(budget_s=budget_s), Ledger.open(tmp_path), clock=lambda: 0.0
        )
        return bench, search.run()

    assert run(110)[0].trials
    bench, found = run(90)
    assert not bench.trials
    assert found.stopped == "the budget: 0 s of 90 s were spent; a trial takes about 100 s: --budget 110"
    assert found.needs_s == 110
    assert run(200)[0].trials


def test_where_there_is_no_time_for_it_what_is_kept_is_not_diagnosed_again() -> None:
    now = [0.0]

    def spend(way: str) -> None:
        now[0] += 25.0

    bench = FakeBench([candidate("a", 0.5)], saved={"a": 0.4}, before_trial=spend, took=10.0)
    found = Search(bench, bench.look(()), SearchOptions(budget_s=30), clock=lambda: now[0]).run()
    assert [one.way for one in found.kept] == ["a"]
    assert bench.looks == [()]
    assert "the step with a was not diagnosed again: the budget was spent" in found.notes
