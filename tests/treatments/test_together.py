"""Treatments together: combinations that hold in any order, and steps whose times can be said by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.replay.graph import StepGraph
from gobrrr.analysis.replay.what_if import hosted, shortened
from gobrrr.analysis.savings.gains import Effect, TreatmentPlan
from gobrrr.analysis.savings.regions import as_graph, unwaiting
from gobrrr.doors.pipeline import Examined, examine
from gobrrr.guarded import GuardedParts
from gobrrr.hardware import find
from gobrrr.model.diagnosis import Wall, WhatIf
from gobrrr.observe.trace import read_trace
from gobrrr.treatments.framework.base import Planned
from gobrrr.treatments.framework.prescribing import plans
from gobrrr.treatments.framework.rank_plans import RankPlans
from gobrrr.treatments.framework.together import Combiner, as_uncertain
from tests.analysis.slow_simulator import every
from tests.analysis.tables import DDP, HOLDOUT, SHIPPED, examined, short
from tests.conftest import H100
from tests.spread import examples, some
from tests.traces import Trace

MATRIX = [[64, 64], [64, 64]]
EXAMPLES = some([*SHIPPED[3:28:5], *HOLDOUT[5:20:6], DDP[6]])
FAULTY = some([H100 / f"{name}.faulty.json.gz" for name in ("moe_host_loop", "resnet_slow_loader", "gpt_eager_attn")])


def seat_of(found: Examined) -> RankPlans:
    assert found.evidence is not None
    mine = tuple(plans(found.evidence, found.found, GuardedParts()))
    return RankPlans(found.evidence, mine, found.ranks[0].row_of_group)


@cache
def combiner(path: Path) -> Combiner:
    found = examined(path)
    return Combiner([seat_of(found)], found.diagnosis.unprofiled_wall_ns, spreads=())


def names_of(path: Path) -> list[str]:
    return list(dict.fromkeys(name for name, _, _ in combiner(path).seats[0].plans))


def holds(one: WhatIf, wall: float) -> None:
    """What every record of a combination owes."""
    assert 0.0 <= one.low_ns <= one.step_ns <= one.high_ns
    assert one.expected_ns == pytest.approx(wall - one.step_ns, abs=1.0)
    low, high = one.saving_ns
    assert low - 1.0 <= one.expected_ns <= high + 1.0
    assert high <= wall + 1.0
    assert sum(line.ns for line in one.lines) == pytest.approx(one.step_ns, rel=1e-6, abs=1.0)


# -- recorded steps ------------------------------------------------------------


@pytest.mark.parametrize("path", EXAMPLES, ids=short)
def test_no_treatment_is_the_step_of_the_diagnosis(path: Path):
    wall = examined(path).diagnosis.unprofiled_wall_ns
    one = combiner(path).combined(()).what_if
    assert (one.step_ns, one.low_ns, one.high_ns) == pytest.approx((wall.value, wall.low, wall.high))
    assert (one.expected_ns, *one.saving_ns) == pytest.approx((0.0, 0.0, 0.0), abs=1.0)
    assert (one.treatments, one.machine, one.ops, one.assumes, one.work) == ([], None, [], [], 1.0)
    assert one.regime == examined(path).diagnosis.regime
    holds(one, wall.value or 0.0)


@settings(max_examples=examples(25), deadline=None)
@given(st.sampled_from(EXAMPLES), st.randoms(use_true_random=False), st.sampled_from([None, "b200", "a100-80gb"]))
def test_every_combination_holds(path: Path, random, on: str | None):
    names = names_of(path)
    chosen = random.sample(names, random.randint(0, min(len(names), 4)))
    made = combiner(path).combined(chosen, find(on) if on else None).what_if
    holds(made, examined(path).diagnosis.unprofiled_wall_ns.value or 0.0)
    assert made.treatments == chosen
    assert made.machine == (find(on).name if on else None)


@pytest.mark.parametrize("path", FAULTY, ids=short)
def test_the_order_in_which_they_are_named_does_not_matter(path: Path):
    names = names_of(path)[:3]
    first, *others = [combiner(path).combined(one).what_if for one in permutations(names)]
    for other in others:
        assert (other.step_ns, other.low_ns, other.high_ns) == pytest.approx(
            (first.step_ns, first.low_ns, first.high_ns)
        )
        assert set(other.assumes) == set(first.assumes)


@pytest.mark.parametrize("path", FAULTY, ids=short)
def test_a_name_twice_is_that_name_once_and_an_unknown_one_nothing(path: Path):
    name = names_of(path)[0]
    once, twice = (combiner(path).combined(one).what_if for one in ((name,), (name, name)))
    assert twice.step_ns == once.step_ns
    assert (
        combiner(path).combined(("no such treatment",)).what_if.step_ns == combiner(path).combined(()).what_if.step_ns
    )


@pytest.mark.parametrize("path", FAULTY, ids=short)
def test_two_are_no_worse_than_the_better_one_by_much(path: Path):
    """They may stand in each other's way, a little."""
    names = [one for one in names_of(path) if one != "larger-batch"][:4]
    alone = {name: combiner(path).combined((name,)).what_if.expected_ns for name in names}
    step = examined(path).diagnosis.unprofiled_wall_ns.value or 0.0
    for one, other in combinations(names, 2):
        both = combiner(path).combined((one, other)).what_if.expected_ns
        assert both >= max(alone[one], alone[other], 0.0) - 0.05 * step, (one, other)


@pytest.mark.parametrize("path", FAULTY, ids=short)
def test_a_machine_and_a_treatment_are_no_longer_than_the_machine_alone(path: Path):
    name = next(one for one in names_of(path) if one != "larger-batch")
    alone, both = (combiner(path).combined(one, find("b200")).what_if for one in ((), (name,)))
    assert both.step_ns <= alone.step_ns * 1.01


# -- by hand ------------------------------------------------------------


def looked_at(trace: Trace, folder: Path) -> Examined:
    """A trace that nothing slowed down."""
    profile = read_trace(str(trace.write(folder)))
    return examine(replace(profile, ranks=tuple(replace(one, ends=(1.0, 1.0)) for one in profile.ranks)))


def plan(effect: Effect | None, **more) -> TreatmentPlan:
    return TreatmentPlan("how", "assumes", effect, **more)


def with_plans(found: Examined, *made: tuple[str, TreatmentPlan]) -> Combiner:
    """The step with plans of one's own."""
    assert found.evidence is not None
    planned: list[Planned] = [(name, found.found[0] if found.found else None, one) for name, one in made]  # type: ignore[misc]
    return Combiner(
        [RankPlans(found.evidence, tuple(planned), found.ranks[0].row_of_group)], found.diagnosis.unprofiled_wall_ns,
        spreads=(),
    )  # fmt: skip


def waiting(folder: Path) -> Examined:
    """20 launches of 100 us with kernels of 5 us, and behind every fifth a wait."""
    trace = Trace(shapes=False)
    for number in range(4):
        with trace.step(number):
            for at in range(20):
                trace.op("aten::mul", MATRIX, 5.0, host_us=100.0)
                if at % 5 == 2:
                    trace.item()
            trace.synchronize()
    return looked_at(trace, folder)


def test_a_graph_is_captured_once_the_waits_are_gone(tmp_path: Path):
    found = waiting(tmp_path)
    one = evidence(found)
    made = with_plans(
        found, ("cuda-graph", plan(as_graph(one), once=True)), ("remove-sync", plan(unwaiting(one), once=True))
    )
    step, graph, sync, both, turned = (
        made.combined(names).what_if.step_ns / 1e3
        for names in (
            (),
            ("cuda-graph",),
            ("remove-sync",),
            ("cuda-graph", "remove-sync"),
            ("remove-sync", "cuda-graph"),
        )
    )
    assert step > 20 * 100
    assert graph == pytest.approx(step)
    assert sync < step
    assert both == turned
    # a launch, 20 kernels of 5 us and 4 small copies, a pause of at most 1 us behind each, and the wait at the end
    assert both < 200


def evidence(found: Examined) -> Evidence:
    assert found.evidence is not None
    return found.evidence


def halved(share_of_it: float = 0.5) -> Effect:
    def effect(share: float):
        def change(graph: StepGraph) -> StepGraph:
            return shortened(graph, every(graph), np.full(len(graph.duration), 1 - share * (1 - share_of_it) * 2))

        return change

    return effect


def busy(folder: Path) -> Examined:
    """20 kernels of 400 us, a step, with the host ahead."""
    trace = Trace(shapes=False)
    for number in range(3):
        with trace.step(number):
            for _ in range(20):
                trace.op("aten::mul", MATRIX, 400.0, host_us=10.0)
            trace.synchronize()
    return looked_at(trace, folder)


def test_of_plans_that_stand_for_all_findings_one_is_applied(tmp_path: Path):
    found = busy(tmp_path)
    twice = lambda _: lambda graph: shortened(graph, every(graph), np.full(len(graph.duration), 2.0))  # noqa: E731
    step = found.diagnosis.unprofiled_wall_ns.value or 0.0
    once = with_plans(found, *[("one", plan(twice, once=True))] * 3).combined(("one",)).what_if
    each = with_plans(found, *[("one", plan(twice))] * 3).combined(("one",)).what_if
    assert once.step_ns == pytest.approx(2 * step, rel=0.03)
    assert each.step_ns == pytest.approx(8 * step, rel=0.03)


def test_of_two_savings_of_the_same_work_the_larger_one_counts(tmp_path: Path):
    """What one remedy has spared is not there for another: half of the device's time is left, neither a quarter nor
    nothing."""
    found = busy(tmp_path)
    half = lambda _: lambda graph: shortened(graph, every(graph), np.full(len(graph.duration), 0.5))  # noqa: E731
    step = found.diagnosis.unprofiled_wall_ns.value or 0.0
    made = with_plans(found, ("one", plan(half)), ("other", plan(half)))
    assert made.combined(("one",)).what_if.step_ns == pytest.approx(step / 2, rel=0.01)
    assert made.combined(("one", "other")).what_if.step_ns == pytest.approx(step / 2, rel=0.01)


def test_the_ends_of_a_combination_are_those_of_its_effects(tmp_path: Path):
    """Nothing at the least, half expected, all at the most; what a step repeats to is added to them."""
    found = busy(tmp_path)
    step = found.diagnosis.unprofiled_wall_ns.value or 0.0
    one = with_plans(found, ("one", plan(halved(0.5)))).combined(("one",)).what_if
    assert one.step_ns == pytest.approx(0.5 * step, rel=0.02)
    # 0.2 of 8 ms are the launches, which are left when all is gone
    assert one.low_ns == pytest.approx(0.0, abs=0.03 * step)
    assert one.high_ns == pytest.approx(step, rel=0.02)
    assert one.saving_ns == pytest.approx((0.0, step), abs=0.03 * step)


@pytest.mark.parametrize(("name", "dtype"), [("tf32", "tf32"), ("bf16-autocast", "bfloat16")])
@pytest.mark.parametrize("on", ["mi300x", "b200", "a100-80gb"])
def test_products_of_another_type_follow_that_types_ceiling(tmp_path: Path, name: str, dtype: str, on: str):
    """Float32 products that run as TF32 or bfloat16: on another machine it is not float32's ceiling that counts."""
    trace = Trace()
    for number in range(3):
        with trace.step(number):
            for _ in range(10):
                trace.op("aten::mm", [[4096, 4096], [4096, 4096]], 2_500.0, dtype="float32", kernel="sgemm_128x128")
            trace.synchronize()
    found = looked_at(trace, tmp_path)
    made = Combiner([seat_of(found)], found.diagnosis.unprofiled_wall_ns, spreads=())
    here, there = (made.combined((name,), machine).what_if for machine in (None, find(on)))
    peaks = [one.matrix_flop_per_s[dtype].value for one in (evidence(found).machine, find(on))]  # type: ignore[union-attr]
    assert here.step_ns < 0.4 * (found.diagnosis.unprofiled_wall_ns.value or 0.0)
    assert there.step_ns == pytest.approx(here.step_ns * peaks[0] / peaks[1], rel=0.06)
    assert there.step_ns > 10 * 2 * 4096**3 / peaks[1] * 1e9


def test_a_bound_that_is_not_in_the_graph_holds_for_all_of_them(tmp_path: Path):
    found = busy(tmp_path)
    step = found.diagnosis.unprofiled_wall_ns.value or 0.0

    def none(_: float):
        return lambda graph: hosted(
            shortened(graph, every(graph), np.zeros(len(graph.duration))), graph.at[:1], graph.at[-1:], 0.0
        )

    bounded = plan(lambda _: lambda graph: graph, least_ns=(0.3 * step, 0.3 * step))
    made = with_plans(found, ("one", plan(none)), ("other", bounded))
    assert made.combined(("one",)).what_if.step_ns < 0.05 * step
    assert made.combined(("one", "other")).what_if.step_ns == pytest.approx(0.3 * step)


def test_more_work_a_step_is_counted_for_todays(tmp_path: Path):
    found = busy(tmp_path)
    step = found.diagnosis.unprofiled_wall_ns.value or 0.0
    made = with_plans(found, ("one", plan(lambda _: lambda graph: graph, work=4.0)))
    one = made.combined(("one",)).what_if
    assert one.work == 4.0
    assert one.step_ns == pytest.approx(step / 4)


def test_what_is_saved_outside_of_the_steps_is_taken_off_once(tmp_path: Path):
    found = busy(tmp_path)
    step = found.diagnosis.unprofiled_wall_ns.value or 0.0
    one = with_plans(found, ("one", plan(None, beyond=4_000.0, beyond_low=2_000.0))).combined(("one",)).what_if
    assert one.step_ns == pytest.approx(step - 3_000.0)
    assert one.saving_ns == pytest.approx((2_000.0, 4_000.0))
    holds(one, step)


def test_nothing_takes_less_than_no_time(tmp_path: Path):
    found = busy(tmp_path)
    step = found.diagnosis.unprofiled_wall_ns.value or 0.0
    one = with_plans(found, ("one", plan(None, beyond=3 * step, beyond_low=2 * step))).combined(("one",)).what_if
    assert (one.step_ns, one.low_ns) == (0.0, 0.0)
    assert one.lines == []
    assert (one.expected_ns, *one.saving_ns) == pytest.approx((step, step, step))


@pytest.mark.parametrize(
    ("expected", "low", "high"),
    [
        (9.0, 4.0, 10.0),  # one of ten is left: of a step of 4 that may be nothing
        (10.0, 4.0, 10.0),
        (2.0, 1.9, 5.0),  # 6 less may all be of the 8 that are left; 15 more make the saving as many times as large
        (0.0, -0.1, 0.1),
        (-2.0, -2.1, -1.9),
    ],
)
def test_a_saving_is_no_surer_than_the_step(expected: float, low: float, high: float) -> None:
    wall, given = Wall(value=10.0, low=4.0, high=25.0, how="estimated"), (expected - 0.1, expected + 0.1)
    assert as_uncertain(expected, given, 10.0, wall) == (low, high)
    sure = Wall(value=10.0, low=10.0, high=10.0, how="measured")
    assert as_uncertain(expected, given, 10.0, sure) == (given[0], min(given[1], 10.0))
