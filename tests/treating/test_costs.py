"""What a trial is expected to take, in seconds, of those before it."""

from __future__ import annotations

import pytest

from gobrrr.treating.costs import Costs
from gobrrr.treating.search import Options, Search
from tests.treating.benches import FakeBench, candidate

PLAIN, OTHER = candidate("a"), candidate("b")
COMPILE, GRAPHS = candidate("compile", compiles=True), candidate("compile:reduce-overhead", compiles=True)


def test_nothing_is_known_before_the_first() -> None:
    costs = Costs()
    assert costs.of(PLAIN) == costs.of(COMPILE) == costs.joined([PLAIN, COMPILE]) == 0.0


def test_compiling_is_no_cost_of_what_does_not_compile() -> None:
    costs = Costs()
    costs.add(COMPILE, 50.0, 45.0)
    assert costs.of(PLAIN) == pytest.approx(5.0)
    assert costs.of(GRAPHS) == pytest.approx(50.0)
    costs.add(PLAIN, 7.0, None)
    costs.add(GRAPHS, 36.0, 30.0)
    assert costs.of(OTHER) == pytest.approx(6.0)
    assert costs.of(COMPILE) == pytest.approx(6.0 + 45.0)


def test_what_times_each_kernels_forms_compiles_for_longer() -> None:
    costs, tuned = Costs(), candidate("compile:max-autotune", compiles=True, slow=True)
    assert (costs.of(tuned), costs.of(COMPILE)) == (Costs.SLOW_S, 0.0)
    costs.add(COMPILE, 15.0, 10.0)
    assert costs.of(tuned) == pytest.approx(5.0 + Costs.SLOWER * 10.0)
    assert costs.of(GRAPHS) == pytest.approx(5.0 + 10.0)
    costs.add(tuned, 125.0, 120.0)
    assert costs.of(tuned) == pytest.approx(5.0 + 120.0)
    assert costs.of(GRAPHS) == pytest.approx(5.0 + 120.0 / Costs.SLOWER)


def test_settling_of_a_way_that_does_not_compile_is_its_own_cost() -> None:
    costs = Costs()
    costs.add(PLAIN, 7.0, 3.0)
    assert costs.of(OTHER) == pytest.approx(7.0)


def test_what_is_compiled_again_comes_from_the_cache() -> None:
    costs = Costs()
    costs.add(COMPILE, 50.0, 40.0)
    costs.add(PLAIN, 10.0, None)
    assert costs.joined([COMPILE, PLAIN]) == pytest.approx(10.0 + Costs.CACHED * 40.0)
    assert costs.joined([PLAIN, OTHER]) == pytest.approx(10.0)


def test_after_a_long_compilation_a_way_that_does_not_compile_still_fits_the_budget() -> None:
    now = [0.0]

    def spend(way: str) -> None:
        now[0] += 60.0 if way == "compile" else 4.0

    bench = FakeBench(
        [candidate("compile", 0.5, compiles=True), candidate("fused-optimizer", 0.3), candidate("tf32", 0.2)],
        saved={"compile": 0.4, "fused-optimizer": 0.2, "tf32": 0.1}, before_trial=spend, compile_s={"compile": 55.0},
    )  # fmt: skip
    found = Search(bench, bench.look(()), Options(budget_s=100), clock=lambda: now[0]).run()
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
    found = Search(bench, bench.look(()), Options(budget_s=100), clock=lambda: now[0]).run()
    assert [one.way for one in found.trials] == ["compile", "tf32", "sdpa"]
    assert found.left["compile:reduce-overhead"] == "the budget was spent before its turn"
    assert "a trial takes" in found.stopped


def test_what_both_trials_take_is_said_where_they_differ() -> None:
    bench = FakeBench([])
    search = Search(bench, bench.look(()), Options(budget_s=100), clock=lambda: 0.0, begun=-80.0)
    assert search._no_time(None, 4.0, 24.0).endswith(
        "a trial takes 4 s, the one of all that is kept 24 s: --budget 110"
    )
    assert "a trial takes 12 s, as does the one of all that is kept" in search._no_time(None, 12.0, 12.2)
