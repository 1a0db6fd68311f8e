from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from gobrrr.model.treated import Treated
from gobrrr.report.treated import is_kept, uncertain
from gobrrr.treatments.framework.way import NotApplicable, TreatmentWay
from gobrrr.trials import sets
from gobrrr.trials.bench import stacked
from gobrrr.trials.candidate import Candidate
from gobrrr.trials.choosing import SearchOptions
from gobrrr.trials.ledger import Ledger
from gobrrr.trials.treat import run
from tests.trials.benches import STEP, FakeBench, candidate

SAVES = {"cast": 0.3, "graph": 0.5, "fused": 0.2, "loader": 0.0}


class Replay:
    """Each treatment leaves its own share of the step, whatever the others leave: the closed form."""

    def __init__(self, saves: Mapping[str, float]) -> None:
        self.saves = saves

    def left(self, names: Sequence[str]) -> float:
        return math.prod(1 - self.saves.get(one, 0.0) for one in names)

    def __call__(self, names: Sequence[str], work: float) -> tuple[float, float, float] | None:
        saved = (1 - self.left(names)) * STEP
        return (saved, 0.8 * saved, min(1.2 * saved, STEP)) if any(one in self.saves for one in names) else None


def ways(**changes: dict[str, Any]) -> list[Candidate]:
    return [candidate(name, share, rank=at, **changes.get(name, {})) for at, (name, share) in enumerate(SAVES.items())]


def best(found: Sequence[Candidate], saves: Mapping[str, float] = SAVES) -> list[Candidate]:
    return sets.best_sets(found, Replay(saves), STEP)


def test_the_best_set_is_the_one_that_saves_the_most_of_all_that_can_stand_together() -> None:
    (found, *_) = best(ways(graph={"conflicts": ("cast",)}))
    free = [
        one for size in (1, 2, 3, 4) for one in itertools.combinations(SAVES, size) if not {"graph", "cast"} <= {*one}
    ]
    most = min(Replay(SAVES).left(one) for one in free)
    assert found.members == ("graph", "fused")
    assert found.expected_ns == pytest.approx((1 - most) * STEP)


def test_what_each_member_adds_is_what_the_set_loses_without_it() -> None:
    (found, *_) = best(ways())
    assert found.members == ("cast", "graph", "fused")
    for name, adds in zip(found.members, found.adds, strict=True):
        rest = [one for one in found.members if one != name]
        assert adds[0] == pytest.approx((Replay(SAVES).left(rest) - Replay(SAVES).left(found.members)) * STEP)
        assert adds[1] <= adds[0] <= adds[2]


@pytest.mark.parametrize("changed", [{"work": 2.0}, {"slow": True}, {"fresh": True}, {"why_not": "not here"}])
def test_a_way_that_needs_minutes_a_process_or_more_work_is_in_no_set(changed: dict[str, Any]) -> None:
    (found, *_) = best(ways(graph=changed))
    assert found.members == ("cast", "fused")


def test_there_is_no_set_where_one_way_does_it_all() -> None:
    assert best(ways(), {"graph": 0.5}) == []


def test_what_experts_apply_is_among_the_sets() -> None:
    """Added one by one neither graph nor cast leads to it: the graph is the best alone and forbids the compiler."""
    saves = {"bf16-cast": 0.1, "cuda-graph": 0.5, "compile": 0.55, "tf32": 0.02}
    found = [
        candidate("bf16-cast", 0.1), candidate("cuda-graph", 0.5, conflicts=("compile",)),
        candidate("compile:reduce-overhead", 0.49, as_if=("compile",), compiles=True), candidate("tf32", 0.02),
    ]  # fmt: skip
    made = best(found, saves)
    assert {"bf16-cast", "compile:reduce-overhead"} <= set(made[0].members)
    assert made[0].compiles


def test_experts_fuse_the_optimizer_also_where_nothing_predicts_it() -> None:
    saves = {"bf16-autocast": 0.3, "compile": 0.5}
    found = [
        candidate("bf16-autocast", 0.3), candidate("compile:reduce-overhead", 0.5, as_if=("compile",)),
        candidate("fused-optimizer", None, as_if=("fused-optimizer",)),
    ]  # fmt: skip
    (made, *_) = best(found, saves)
    assert set(made.members) == {"bf16-autocast", "compile:reduce-overhead", "fused-optimizer"}
    assert sets.may_not_pay(made, STEP) == ["fused-optimizer"]


def test_what_experts_always_apply_also_joins_the_set_that_was_built_by_predictions() -> None:
    """A graph of the whole step saves more than the experts' sets: it still has the optimizer's passes in it."""
    saves = {"bf16-autocast": 0.3, "cuda-graph": 0.5, "compile": 0.1}
    found = [
        candidate("bf16-autocast", 0.3), candidate("cuda-graph", 0.5, conflicts=("compile:reduce-overhead",)),
        candidate("compile:reduce-overhead", 0.1, as_if=("compile",)),
        candidate("fused-optimizer", None, as_if=("fused-optimizer",)),
        candidate("prefetch-pinned", None, as_if=("prefetch-pinned",)),
    ]  # fmt: skip
    (made, *_) = best(found, saves)
    assert set(made.members) == {"bf16-autocast", "cuda-graph", "fused-optimizer", "prefetch-pinned"}
    assert made.expected_ns == pytest.approx(0.65 * STEP)


def test_no_set_is_made_of_one_way_and_what_nothing_predicts() -> None:
    found = [candidate("cuda-graph", 0.5), candidate("fused-optimizer", None, as_if=("fused-optimizer",))]
    assert best(found, {"cuda-graph": 0.5}) == []


# -- the search


def three() -> tuple[list[Candidate], list[Candidate]]:
    found = ways()
    return found, best(found)


def treated(bench: FakeBench, **options: Any) -> Treated:
    return run(bench, "w.py:workload", SearchOptions(**options), Ledger(Path("/dev/null/none")))


def tried(bench: FakeBench) -> list[str]:
    return [way for _, way in bench.trials]


def test_the_set_is_tried_at_once_and_all_of_it_is_kept() -> None:
    found, made = three()
    bench = FakeBench(found, sets=made, saved={"cast + graph + fused": 0.7}, then={"cast+graph+fused": []})
    told = treated(bench)
    assert tried(bench)[0] == "cast + graph + fused"
    assert told.kept == ("cast", "graph", "fused")
    assert told.step_after_ns == pytest.approx(0.3 * STEP)
    assert told.faster == pytest.approx(1 / 0.3)
    assert bench.joined == []
    assert not uncertain(told)
    assert is_kept(told.trials[0], told)
    assert "the set that is predicted to save the most" in told.order[0]


def test_a_set_that_failed_is_halved_and_its_ways_are_tried() -> None:
    found, made = three()
    bench = FakeBench(found, sets=made, verdicts={"cast + graph + fused": "unsafe"}, saved={"graph": 0.5})
    told = treated(bench)
    assert tried(bench)[:2] == ["cast + graph + fused", "cast + graph"]
    assert told.kept == ("graph",)


def test_a_member_that_cannot_be_applied_leaves_the_rest_of_its_set() -> None:
    found, made = three()
    whole = "cast + graph + fused"
    bench = FakeBench(
        found, sets=made, verdicts={whole: "inconclusive"}, unapplied={whole: "graph"},
        whys={whole: f"{whole} can't be applied: it reads the device"}, saved={"cast + fused": 0.4},
    )  # fmt: skip
    told = treated(bench)
    assert tried(bench)[:2] == [whole, "cast + fused"]
    assert told.kept == ("cast", "fused")
    assert "graph" not in tried(bench)
    assert next(one.why for one in told.untried if one.way == "graph") == "it reads the device"


def test_what_is_predicted_to_save_something_comes_before_what_may_not_pay_and_that_before_the_rest() -> None:
    found, made = three()
    made = [sets.replace(made[0], adds=(*made[0].adds[:2], (0.0, -0.1 * STEP, 0.1 * STEP)))]
    layout, other = candidate("layout", 0.03), candidate("other", -0.01, width=0.05)
    bench = FakeBench(
        found, sets=made, saved={"cast + graph + fused": 0.7, "without fused": -0.1},
        then={"cast+graph+fused": [layout, other]},
    )  # fmt: skip
    treated(bench)
    assert tried(bench) == ["cast + graph + fused", "layout", "without fused", "other"]


def test_a_way_for_the_work_that_a_kept_one_does_has_no_trial() -> None:
    narrow, tf32 = candidate("bf16-autocast", 0.3), candidate("tf32", 0.1)
    bench = FakeBench([narrow, tf32], saved={"bf16-autocast": 0.3})
    told = treated(bench)
    assert tried(bench) == ["bf16-autocast"]
    assert next(one.why for one in told.untried if one.way == "tf32") == (
        "bf16-autocast, which was kept, does the same work"
    )


@pytest.mark.parametrize(
    ("without", "verdict", "kept"),
    [
        (-0.1, "hurt", ("cast", "graph", "fused")),
        (-0.045, "no_change", ("cast", "graph", "fused")),
        (-0.01, "no_change", ("cast", "graph")),
        (0.0, "no_change", ("cast", "graph")),
    ],
)
def test_a_member_that_may_not_pay_is_left_out_and_stays_only_where_it_is_missed(
    without: float, verdict: str, kept: tuple[str, ...]
) -> None:
    """4.5 % slower, give or take 5.5: chance may have done it, and so may the missing member."""
    found, made = three()
    made = [sets.replace(made[0], adds=(*made[0].adds[:2], (0.0, -0.1 * STEP, 0.1 * STEP)))]
    bench = FakeBench(
        found, sets=made, saved={"cast + graph + fused": 0.7, "without fused": without}, then={"cast+graph+fused": []},
        verdicts={"without fused": verdict},
    )  # fmt: skip
    told = treated(bench)
    assert tried(bench)[:2] == ["cast + graph + fused", "without fused"]
    assert told.kept == kept
    assert bench.joined == ([kept] if len(kept) == 2 else [])


@pytest.mark.parametrize("options", [{"without": ("graph",)}, {"only": ("cast", "fused")}])
def test_a_set_with_a_way_that_the_user_leaves_out_is_not_tried(options: dict[str, Any]) -> None:
    found, made = three()
    bench = FakeBench(found, sets=made[:1])
    treated(bench, **options)
    assert not any("graph" in one for one in tried(bench))


def test_no_set_is_told_as_untried() -> None:
    found, made = three()
    told = treated(FakeBench(found, sets=made), dry_run=True)
    assert not any(sets.JOINED in one.way for one in told.untried)
    assert told.order[0].startswith("cast + graph + fused: predicted to save")


def test_of_several_ways_the_one_that_cannot_be_applied_is_named() -> None:
    def refuses(workload: Any, kept: dict[str, Any]) -> Any:
        raise NotApplicable("no")

    def way(name: str, apply: Any) -> TreatmentWay:
        return TreatmentWay(name=name, treatment=name, apply=apply, code="", numerics="none", rank=0)

    both = stacked([way("a", lambda workload, kept: nullcontext(workload)), way("b", refuses)])
    with pytest.raises(NotApplicable) as caught, both.apply(None, {}):  # type: ignore[arg-type]
        pass
    assert caught.value.way == "b"
