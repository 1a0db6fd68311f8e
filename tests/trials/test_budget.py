"""A budget is a promise: it is kept within a tenth, and has a decided trial in it, or says what it takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from gobrrr.model.treated import Treated  # noqa: E402
from gobrrr.trials.ledger import Ledger  # noqa: E402
from tests.spread import examples  # noqa: E402
from tests.trials.fakes import one_thread  # noqa: E402, F401
from tests.trials.simulated import Kind, Simulated, treated  # noqa: E402

pytestmark = pytest.mark.torch

NOWHERE = Path("/dev/null/none")


def decided(found: Treated) -> bool:
    return any(one.verdict in ("helped", "hurt", "no_change", "unsafe") for one in found.trials)


def named(found: Treated | str) -> float | None:
    """The budget that is said to be needed."""
    text = found if isinstance(found, str) else found.stopped
    told = re.search(r"--budget (\d+)", text)
    if isinstance(found, Treated) and told is not None and found.needs_s is not None:
        assert found.needs_s == float(told[1])
    return float(told[1]) if told else None


def kept_promise(bench: Simulated) -> Treated | str:
    """One run, which is held against what was promised."""
    found = treated(bench, Ledger(NOWHERE))
    assert bench.now <= 1.1 * bench.budget_s
    if isinstance(found, str):
        assert named(found) is not None
    elif not decided(found):
        assert named(found) is not None
        assert found.needs_s is not None
    return found


STEPS = (0.001, 0.03, 0.2, 0.45, 0.6, 1.3, 2.5, 5.0)
COMPILING = (0.0, 10.0, 60.0, 150.0, 300.0)
BUDGETS = (20.0, 45.0, 75.0, 120.0, 300.0, 600.0)


def ways(compile_s: float, saves: float, other: bool) -> list[Kind]:
    found = [Kind("compile", 0.5, saves, compile_s)]
    return [*found, Kind("fused", 0.1, 0.08), Kind("tf32", 0.05, -0.3)] if other else found


@given(
    step=st.sampled_from(STEPS[3:]), compile_s=st.sampled_from(COMPILING), budget=st.sampled_from(BUDGETS),
    load=st.sampled_from([2.0, 8.0]), saves=st.sampled_from([0.4, 0.0, -1.0]), other=st.booleans(),
    seed=st.integers(0, 1000), busy=st.sampled_from([1.0, 1.0, 2.0, 4.0]),
)  # fmt: skip
@settings(max_examples=examples(8), deadline=None)
def test_a_budget_is_kept_within_a_tenth_and_decides_a_trial_or_says_what_it_takes(
    step: float, compile_s: float, budget: float, load: float, saves: float, other: bool, seed: int, busy: float
) -> None:
    """Other programs may take the machine once the first steps were seen: then all is some times as slow."""
    kept_promise(Simulated(budget, step, ways(compile_s, saves, other), load_s=load, load=busy, seed=seed))


@pytest.mark.slow
@pytest.mark.parametrize("other", [True, False], ids=["others", "alone"])
@pytest.mark.parametrize("step", STEPS)
def test_the_same_of_every_step_compile_time_and_budget(step: float, other: bool) -> None:
    for compile_s in COMPILING:
        for budget in BUDGETS if step >= 0.1 else BUDGETS[:4]:  # many steps fit a long one
            for saves in (0.4, -1.0):
                kept_promise(Simulated(budget, step, ways(compile_s, saves, other)))


FUSED, COMPILE = Kind("fused", 0.3, 0.2), Kind("compile", 0.4, 0.3, 10.0)


@pytest.mark.parametrize("once", [0.0, 15.0], ids=["", "once"])
@pytest.mark.parametrize("kinds", [[FUSED], [FUSED, COMPILE]], ids=["fused", "compile"])
@pytest.mark.parametrize("step", [0.6, 1.3, 5.0])
@pytest.mark.parametrize("budget", [20.0, 45.0])
def test_the_budget_that_is_named_has_a_decided_trial_in_it(
    step: float, budget: float, kinds: list[Kind], once: float
) -> None:
    """`once`: the larger budget has room for what is measured once on a machine, and measures it."""
    found = kept_promise(Simulated(budget, step, kinds, once_s=once))
    if isinstance(found, Treated) and decided(found):
        return
    needs = named(found)
    assert needs is not None
    again = kept_promise(Simulated(needs, step, kinds, once_s=once, seed=1))
    assert isinstance(again, Treated)
    assert decided(again)
    assert again.kept


@pytest.mark.parametrize(("budget", "least"), [(75.0, 1), (150.0, 2)])
def test_a_step_of_1_3_seconds_is_treated_in_a_minute_and_a_quarter(budget: float, least: int) -> None:
    """Such a step asked for 116 s a trial. Of two, both have to be timed at once in the end."""
    found = kept_promise(Simulated(budget, 1.3, [Kind("bf16", 0.5, 0.5), Kind("fused", 0.2, 0.2)]))
    assert isinstance(found, Treated)
    assert sum(one.verdict == "helped" for one in found.trials) >= least


def test_a_compiler_that_does_not_end_is_ended_and_another_way_is_decided() -> None:
    bench = Simulated(120.0, 0.03, ways(300.0, 0.4, other=True))
    found = kept_promise(bench)
    assert isinstance(found, Treated)
    first = found.trials[0]
    assert (first.way, first.verdict, first.late) == ("compile", "inconclusive", True)
    assert bench.starts == 2
    assert found.kept == ("fused",)


def test_what_is_said_where_a_compiler_alone_takes_too_long_is_how_much_more_it_may_take() -> None:
    found = kept_promise(Simulated(120.0, 0.03, ways(300.0, 0.4, other=False)))
    assert isinstance(found, Treated)
    assert found.stopped.startswith("no trial was decided in the time: compile was ended after 1")
    assert found.stopped.endswith(" s, --budget 270 gives it twice as long")
