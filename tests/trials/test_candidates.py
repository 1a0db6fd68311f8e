from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gobrrr.analysis.events.observer import REPEATABLE
from gobrrr.doors import changes, pipeline
from gobrrr.model.profile import Profile
from gobrrr.model.treated import Timing, TrialRecord
from gobrrr.model.workload import Workload
from gobrrr.observe.trace import read_trace
from gobrrr.treatments.framework.way import TreatmentWay, UnfitWay
from gobrrr.trials import candidates
from gobrrr.trials.candidates import (
    FROM_BASIS,
    NOTHING_CHANGED,
    Basis,
    advice_of,
    candidates_of,
    predictor_of,
    step_of,
    ways_of,
)
from tests.analysis import tables
from tests.conftest import H100, H100_EXTRA


def apply(workload: Workload, kept: dict[str, Any]) -> AbstractContextManager[Workload]:
    return nullcontext(workload)


def way(name: str, *as_if: str, **more: Any) -> TreatmentWay:
    return TreatmentWay(
        name=name, treatment=name.partition(":")[0], apply=apply, code="", numerics="none", rank=0, as_if=as_if, **more
    )


@cache
def profile(name: str = "mlp_tiny.faulty") -> Profile:
    return read_trace(str(H100 / f"{name}.json.gz"))


def examined(name: str = "mlp_tiny.faulty") -> pipeline.Examined:
    return tables.examined(H100 / f"{name}.json.gz")


@pytest.mark.torch
@pytest.mark.parametrize("times", [1.0, 2.0])
def test_a_trial_is_told_what_is_predicted_for_the_step_as_it_was_timed(times: float):
    """Of what is not predicted, or was not timed, nothing."""
    pytest.importorskip("torch")
    from gobrrr.trials.bench import LocalRunner

    seen, ways = examined(), [way("g", "cuda-graph"), way("n")]
    here = LocalRunner.__new__(LocalRunner)
    here._predictor = predictor_of(seen, ways)
    graph, nothing = candidates_of(seen, ways)[0]
    step = times * (step_of(seen.diagnosis) or 0.0)
    timing = Timing(before_ns=step, after_ns=step, spread_ns=1.0, rounds=5, steps=10)
    plain = TrialRecord(way="g", treatment="g", kept=(), verdict="no_change", why="", timing=timing)
    made = here._as_timed(plain, graph)
    assert (made.step_ns, made.replayed_expected_ns) == pytest.approx((step, times * (graph.expected_ns or 0.0)))
    assert here._as_timed(plain, nothing) == plain
    untimed = msgspec.structs.replace(plain, timing=None)
    assert here._as_timed(untimed, graph) == untimed


@pytest.mark.parametrize("names", [("cuda-graph",), ("compile", "cuda-graph"), ("fused-optimizer",)], ids="+".join)
def test_a_prediction_is_that_of_a_what_if(names: tuple[str, ...]) -> None:
    """A what-if ends where the findings that name its treatments do; a trial is held against all that is foretold."""
    (found,), _ = candidates_of(examined(), [way("a", *names)])
    asked = changes.predict(profile(), names).what_if
    if found.unpredicted:
        assert asked.expected_ns == pytest.approx(0.0, abs=1.0)
        return
    most = asked.saving_ns[1]
    told = [min(max(ns or 0.0, 0.0), most) for ns in (found.expected_ns, found.low_ns, found.high_ns)]
    assert told == pytest.approx([asked.expected_ns, *asked.saving_ns])


def test_a_set_of_treatments_is_replayed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    foretold = candidates.Combiner.foretold
    monkeypatch.setattr(
        candidates.Combiner, "foretold", lambda self, names: (calls.append(names), foretold(self, names))[1]
    )
    candidates_of(examined(), [way("a", "cuda-graph"), way("b", "cuda-graph"), way("c", "cuda-graph", "sdpa")])
    assert calls == [["cuda-graph"]]


def test_a_way_that_changes_nothing_that_was_found_says_so() -> None:
    (found,), _ = candidates_of(examined(), [way("a", "sdpa")])
    assert found.unpredicted
    assert found.why_not == NOTHING_CHANGED
    assert found.expected_ns is None


def test_a_way_without_a_prediction_asks_whether_it_is_worth_a_trial() -> None:
    ways = [way("a"), way("b", worth=lambda diagnosis: f"not on {diagnosis.device}")]
    (dark, asked), _ = candidates_of(examined(), ways)
    assert (dark.unpredicted, dark.why_not) == (True, "")
    assert asked.why_not.startswith("not on NVIDIA H100")


def test_a_step_that_cannot_be_replayed_falls_back_on_what_is_at_stake_and_says_so() -> None:
    one = examined()
    assert one.evidence is not None
    stuck = replace(one, ranks=())
    (found, other), notes = candidates_of(stuck, [way("a", "cuda-graph"), way("b", "sdpa")])
    prescribed = [it for it in one.diagnosis.prescriptions if it.treatment == "cuda-graph"]
    assert found.low_ns == max(it.predicted_saving_ns[0] for it in prescribed)
    assert found.low_ns is not None
    assert found.high_ns is not None
    assert found.expected_ns == (found.low_ns + found.high_ns) / 2
    assert other.why_not == NOTHING_CHANGED
    assert "can't be replayed" in notes[0]


def test_a_larger_batch_is_predicted_for_its_size_also_on_top_of_a_graph() -> None:
    """Small kernels in a graph do twice the work in the same time, which no finding of the step as it was says."""
    seen, step = examined(), step_of(examined().diagnosis)
    assert step is not None
    graph, twice = way("g", "compile", "cuda-graph:compiled"), way("b", "larger-batch=2", work=2.0)
    added = Basis(seen, [graph, twice]).beyond([graph], twice, step)
    assert added is not None
    expected, low, high = added
    assert 0.4 * step < expected <= high <= (1.0 - (1.0 - REPEATABLE) / 2) * step + 1
    assert low >= -0.05 * step


def test_a_treatment_that_cannot_read_a_workload_does_not_end_the_others() -> None:
    def broken(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
        raise KeyError("odd")
        yield

    treatments: Any = [
        SimpleNamespace(name="x", ways=broken),
        SimpleNamespace(name="y", ways=lambda workload: iter([way("y"), UnfitWay("y:two", "no")])),
        SimpleNamespace(name="z", ways=None),
    ]
    fit, unfit = ways_of(Workload(), treatments)
    assert [one.name for one in fit] == ["y"]
    assert [(one.name, one.why) for one in unfit] == [
        ("x", "gobrrr could not check it on this workload: KeyError: 'odd'"), ("y:two", "no"),
    ]  # fmt: skip


def test_what_no_way_can_carry_out_is_advice_with_its_line() -> None:
    found = pipeline.examine(profile("gpt_eager_attn.faulty"))
    told = advice_of(found.diagnosis, [])
    assert {one.treatment for one in told} == {one.treatment for one in found.diagnosis.prescriptions}
    assert all(one.how for one in told)
    fewer = advice_of(found.diagnosis, [way(told[0].treatment)])
    assert told[0].treatment not in {one.treatment for one in fewer}


def test_what_is_advised_has_the_code_of_its_treatment() -> None:
    told = advice_of(examined().diagnosis, [])
    assert all(one.code for one in told)


def test_the_way_crosses_to_another_process_without_its_functions() -> None:
    (found,), _ = candidates_of(examined(), [way("a:b", "cuda-graph", conflicts=frozenset({"x", "w"}), fresh=True)])
    assert (found.treatment, found.conflicts, found.fresh) == ("a", ("w", "x"), True)


@pytest.mark.usefixtures("replay_alone")
def test_what_a_graph_hides_is_predicted_by_what_it_adds_to_the_step_as_it_was():
    """The step in a graph has no operations to find anything in: what else helps is what helps beside the graph."""
    seen = examined()
    graph, other = way("g", "cuda-graph"), way("o", "compile")
    basis = Basis(seen, [graph, other])
    step = step_of(seen.diagnosis)
    assert step is not None
    predictor = {name: candidates_of(seen, [way("w", *names)])[0][0] for name, names in
                 {"g": ["cuda-graph"], "both": ["cuda-graph", "compile"]}.items()}  # fmt: skip
    alone, both = predictor["g"].expected_ns, predictor["both"].expected_ns
    assert alone is not None
    assert both is not None
    then = 0.5 * step  # what it was measured to take then, which is not what was predicted
    found = basis.beyond([graph], other, then)
    assert found is not None
    assert found[0] == pytest.approx((both - alone) / (step - alone) * then)
    assert found[1] <= found[0] <= found[2]
    # in the place of a kept way of its treatment it adds what it saves beyond that one
    instead = basis.beyond([graph], way("g:2", "cuda-graph"), step)
    assert instead is not None
    assert instead[0] == pytest.approx(0.0)
    # and a way that no plan is known of adds nothing that is known
    assert basis.beyond([graph], way("x", "sdpa"), step) is None


def test_every_way_is_predicted_from_the_step_as_it_was_once_a_graph_is_kept():
    seen = examined()
    ways = [way("g", "cuda-graph"), way("o", "compile")]
    (graph, other), notes = candidates_of(seen, ways, [ways[0]], Basis(seen, ways))
    assert FROM_BASIS in notes
    assert graph.expected_ns is not None
    assert other.expected_ns is not None
    added = Basis(seen, ways).beyond([ways[0]], ways[1], step_of(seen.diagnosis) or 0.0)
    assert added is not None
    assert other.expected_ns == pytest.approx(added[0])


def test_what_stays_beside_a_graph_is_predicted_from_the_step_with_the_graph_in_it():
    """The optimizer that steps one parameter at a time is still there to be seen."""
    path = Path(__file__).parents[1] / "data" / "h200" / "nanogpt.reduce_overhead.json.gz"
    seen = pipeline.examine(read_trace(str(path)))
    ways = [way("g", "cuda-graph:model"), way("f", "fused-optimizer")]
    alone = candidates_of(seen, ways)[0][1]
    other = candidates_of(seen, ways, [ways[0]], Basis(seen, ways))[0][1]
    assert alone.expected_ns is not None
    assert other.expected_ns == pytest.approx(alone.expected_ns)


GRAPHED = ("compile", "cuda-graph:compiled")


@cache
def decoding() -> pipeline.Examined:
    return pipeline.examine(read_trace(str(H100_EXTRA / "holdout" / "llama_decode.json.gz")))


def test_where_a_mode_does_nothing_here_its_way_is_predicted_as_if_it_were_another() -> None:
    ways = [way("compile:tuned", "compile", "max-autotune", "cuda-graph:compiled")]
    (found,), _ = candidates_of(decoding(), ways)
    assert found.as_if == ("compile", "max-autotune", "cuda-graph:compiled")
    (found,), _ = candidates_of(examined("pointwise_chain.faulty"), ways)
    assert found.as_if == GRAPHED


@pytest.mark.usefixtures("replay_alone")
def test_beyond_a_graph_tuned_products_of_one_vector_save_half_of_the_way_to_the_roof() -> None:
    """By hand: 113 products, each from its time to that of its bytes at the roof and 2 us a launch; 16 have two."""
    kept, tuned = way("compile:graphs", *GRAPHED), way("compile:tuned", *GRAPHED, "max-autotune")
    basis, step = Basis(decoding(), [kept, tuned]), 1.4e6
    found = basis.beyond([kept], tuned, step)
    assert found is not None
    products = [one for one in decoding().diagnosis.ops if one.op == "aten::mm"]
    most = sum(one.ns - one.floor_ns - 2_000.0 * one.calls for one in products) - 16 * 2_000.0
    share = most / 2 / (step_of(decoding().diagnosis) - basis.predictor.saving(GRAPHED)[0])
    assert found[0] == pytest.approx(step * share, rel=0.01)
    assert found[1] == pytest.approx(0.0, abs=step * 0.005)
