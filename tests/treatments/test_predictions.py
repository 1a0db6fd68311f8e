"""What every treatment owes: a plan with its words, None where it does not apply; and what plans save of a step."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from gobrrr.analysis.detect.norms import outside, own_norms
from gobrrr.analysis.findings.claims import NO_CLAIM, ClaimedFinding
from gobrrr.analysis.findings.path import path_of
from gobrrr.conditions import catalogue as conditions
from gobrrr.hardware.efficiency import load
from gobrrr.model.diagnosis import Finding, Place
from gobrrr.treatments import Treatment, catalogue
from gobrrr.treatments.framework.base import treatment_of
from tests.conditions.makers import extra, followed, seen_of, shipped
from tests.conditions.test_loops import LOOPED, cells, compiled
from tests.evidence import certain, evidence_from, found, predict
from tests.traces import Trace

NAMES = {
    "cuda-graph", "compile", "remove-sync", "dataloader-workers", "prefetch-pinned", "sdpa", "tf32", "bf16-autocast",
    "grouped-matmul", "larger-batch", "batched-loop", "cast-once", "channels-last", "comm-overlap", "eager-trace",
    "fused-norm", "fused-optimizer", "keep-order", "pad-dimensions", "record-shapes", "static-shapes", "warm-up",
}  # fmt: skip


def test_the_catalogue_holds_them():
    assert {one.name for one in catalogue()} >= NAMES


OWN = {
    "activation-budget": set(), "bf16-cast": {"C01"}, "checkpoint": set(), "fp8": set(), "int8-weights": set(),
    "max-autotune": set(), "set-to-none": set(),
    "allocator": {"O06"}, "batched-loop": {"O02", "O04"}, "bf16-autocast": {"C01", "C03"}, "bucket-or-pack": {"M11"},
    "cast-at-source": {"C04"}, "cast-once": {"M04", "M06"}, "channels-last": {"C06", "M03", "M05"},
    "comm-overlap": {"N01"}, "compile": {"C02", "M01", "M02", "M03", "M04", "M05", "O01", "O04"},
    "cuda-graph": {"M04", "O01", "O04"},
    "cudnn-benchmark": {"C06"}, "dataloader-workers": {"D01"}, "debug-off": {"O08"}, "eager-trace": {"Q03"},
    "fewer-groups": {"O03"},
    "foreach": {"O11"}, "fused-norm": {"M03"}, "fused-optimizer": {"O03"}, "gather-backward": {"M08"},
    "free-host": {"O13"}, "other-form": {"C07"}, "compute-once": {"R02"}, "kv-cache": {"R03"},
    "let-go": {"R04"},
    "gc-freeze": {"O07"}, "index-batch": {"D01"}, "hoist-product": {"O04"},
    "inference-mode": {"R05"}, "lighter-hook": {"O14"},
    "grouped-matmul": {"O01", "O04"}, "keep-order": {"M05", "M09"}, "larger-batch": {"O01"},
    "limit-threads": {"O09"}, "log-less": {"O12"}, "need-weights-false": {"M02"}, "no-barrier": {"N03"},
    "no-autocast": {"C08", "M04"}, "no-checkpoint": {"R01"}, "no-sync": {"N02"}, "pad-dimensions": {"C02"},
    "preallocate": {"M10"}, "prefetch-pinned": {"D01", "D02"}, "read-once": {"O02"}, "record-shapes": {"Q02"},
    "recurrent-layer": {"O04"}, "remove-sync": {"O02"},
    "reorder-contraction": {"C05"}, "sdpa": {"M02", "M12"}, "sparse-embedding": {"M07"}, "static-shapes": {"O05"},
    "tf32": {"C01", "C03"}, "warm-up": {"O05"}, "whole-graph": {"O10"},
}  # fmt: skip
NEEDS_MORE = {("limit-threads", "O09"), ("prefetch-pinned", "D01"), ("prefetch-pinned", "D02"), ("cast-once", "M04"),
              ("no-autocast", "M04"), ("no-autocast", "C08"), ("index-batch", "D01"),
              ("grouped-matmul", "O01"), ("grouped-matmul", "O04"), ("channels-last", "M03"), ("channels-last", "M05"),
              ("batched-loop", "O02"), ("batched-loop", "O04"), ("sdpa", "M12"), ("read-once", "O02"),
              ("recurrent-layer", "O04"), ("hoist-product", "O04")}  # fmt: skip
"""A finding alone is not enough for these: they look for threads, copies, loops, images or batch norms."""


def about(code: str, *treatments: str) -> ClaimedFinding:
    """A finding with nothing behind it."""
    finding = Finding(
        code=code, title="", where=[], at_stake_ns=(2e6, 4e6), certainty="high", treatments=list(treatments)
    )
    return ClaimedFinding(finding, NO_CLAIM)


@pytest.mark.parametrize("treatment", catalogue(), ids=lambda one: one.name)
def test_a_treatment_has_a_plan_for_its_own_findings_and_for_no_others(treatment: Treatment, launch_bound):
    codes = [one.code for one in conditions()]
    made = {code: treatment.predict(launch_bound, about(code, treatment.name)) for code in [*codes, "Z99"]}
    given = {code: plan for code, plan in made.items() if plan is not None}
    assert set(given) <= OWN[treatment.name]
    assert {(treatment.name, code) for code in OWN[treatment.name] - set(given)} <= NEEDS_MORE
    assert all(plan.how and plan.assumes for plan in given.values())


@pytest.mark.parametrize(("code", "name"), [("M04", "compile"), ("C02", "pad-dimensions"), ("O12", "log-less")])
def test_nothing_claimed_is_nothing_promised(code: str, name: str, launch_bound):
    """What a finding says is at stake promises nothing: what its claim takes out of the step does."""
    given = predict(name, launch_bound, about(code, name).finding)
    assert given is not None
    assert given.finding == code
    assert given.predicted_saving_ns == (0, 0)


@pytest.mark.parametrize(("code", "name"), [("Q02", "record-shapes"), ("Q03", "eager-trace")])
def test_what_makes_a_trace_say_more_makes_no_step_faster(code: str, name: str, launch_bound):
    plan = next(one for one in catalogue() if one.name == name).predict(launch_bound, about(code))
    assert plan is not None
    assert plan.effect is None


DEVICE_BOUND = [
    ("M01", "compile", "pointwise_chain.faulty"), ("M04", "compile", "gpt2_b8_s1024.fwd"),
    ("C01", "bf16-autocast", "gpt_fp32_notf32.faulty"), ("C02", "pad-dimensions", "holdout/odd_matmuls"),
    ("M05", "channels-last", "holdout/resnet_nchw"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "name", "trace"), DEVICE_BOUND)
def test_a_device_bound_step_gets_shorter_by_what_its_calls_lose(code: str, name: str, trace: str):
    seen = certain(extra(trace) if "/" in trace else shipped(trace))
    finding = found(code, seen)
    given = predict(name, seen, finding)
    assert given is not None
    assert given.expected_ns is not None
    # of a low end at nothing the pauses between calls that become one are left; a narrower type also shortens products
    # that are no fault
    low, high = given.predicted_saving_ns
    assert high == pytest.approx(finding.at_stake_ns[1], rel=0.02, abs=2e3)
    assert low == pytest.approx(finding.at_stake_ns[0], rel=0.06, abs=2e3)
    assert low < given.expected_ns <= high


def test_batch_norms_in_the_other_order_take_what_such_norms_were_measured_to_take():
    """By hand from the stored shares: floor over the share of the bandwidth, and the fixed part, for each call."""
    seen = certain(extra("holdout/resnet_nchw"))
    given = predict("channels-last", seen, found("M03", seen))
    assert given is not None
    assert given.expected_ns is not None
    own = own_norms(seen)
    norms, table, spread = own[outside(seen, own)], load().shares, 0.0
    after = 0.0
    for call in norms.tolist():
        group = seen.group_of(call)
        word = "native_batch_norm_backward" if "backward" in group.call.name else "native_batch_norm"
        share = table[f"{word}.train.nhwc|bfloat16"]
        assert group.floor is not None
        ns = share.fixed_ns + group.floor.ns / share.memory
        after += min(ns, float(seen.calls.ns[call]))
        spread = max(spread, share.spread)
    saved = (float(seen.calls.ns[norms].sum()) - after) / seen.steps.count
    assert given.expected_ns == pytest.approx(saved, rel=0.1)
    low, high = given.predicted_saving_ns
    assert 0 < low < given.expected_ns < high
    assert high - low < 4.5 * spread * after / seen.steps.count  # e^(2 s) to e^(-2 s) of what they take then


@pytest.mark.parametrize(("code", "name"), [("M04", "compile"), ("M05", "compile"), ("M05", "keep-order")])
def test_a_remedy_that_may_do_nothing_is_promised_nothing_for_sure(code: str, name: str):
    seen = certain(shipped("gpt_eager_attn.faulty"))
    given = predict(name, seen, found(code, seen))
    assert given is not None
    assert given.predicted_saving_ns[0] == 0 < given.predicted_saving_ns[1]


def test_tf32_goes_half_of_the_way_to_the_floor():
    seen = certain(shipped("gpt_fp32_notf32.faulty"))
    low, high = found("C01", seen).at_stake_ns
    given = predict("tf32", seen, found("C01", seen))
    assert given is not None
    assert given.predicted_saving_ns == pytest.approx((low, (low + high) / 2), rel=0.01)


def test_loading_modules_is_over_after_a_warm_up(tmp_path: Path):
    seen = certain(compiled(tmp_path, (0, 1, 2, 3), "cuModuleLoadData"))
    finding = found("O05", seen)
    given = predict("warm-up", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == (0, pytest.approx(finding.at_stake_ns[1], rel=0.01))


def test_a_loop_in_one_turn_takes_a_turn_s_launches(tmp_path: Path):
    seen = followed(certain(seen_of(tmp_path, cells)), 50, LOOPED)
    given = predict("batched-loop", seen, found("O04", seen))
    assert given is not None
    busy = seen.budget.busy_ns / seen.steps.count
    # at the least half of the host's time stays; at the most one of 50 turns', and what the kernels' floors say
    assert 0.4 * seen.wall_ns < given.predicted_saving_ns[0] < 0.6 * seen.wall_ns
    assert seen.wall_ns - busy <= given.predicted_saving_ns[1] < seen.wall_ns


@pytest.mark.parametrize(
    ("code", "name", "trace"),
    [("O01", "cuda-graph", "mlp_tiny.faulty"), ("O01", "cuda-graph", "dit_xl_b8_s256.fwdbwd"),
     ("O01", "compile", "mlp_tiny.faulty"), ("D01", "dataloader-workers", "holdout/loader_workers_0"),
     ("D01", "dataloader-workers", "resnet_slow_loader.faulty")],
)  # fmt: skip
def test_no_step_gets_shorter_than_what_its_device_does(code: str, name: str, trace: str):
    """However little is known of the host: these leave the device's work as it is."""
    seen = extra(trace) if "/" in trace else shipped(trace)
    given = predict(name, seen, found(code, seen))
    assert given is not None
    busy = seen.budget.busy_ns / seen.steps.count
    assert given.predicted_saving_ns[1] <= seen.wall_ns - 0.98 * busy


def test_a_step_gets_no_shorter_than_its_host_needs():
    """The norms become one kernel each; the low end leaves the launches with the host, which needs 1.6 of 8.3 ms."""
    seen = certain(extra("holdout/rms_eager"))
    given = predict("fused-norm", seen, found("M03", seen))
    assert given is not None
    assert given.predicted_saving_ns[0] <= seen.wall_ns - 0.98 * path_of(seen).host


def test_every_treatment_that_a_condition_names_exists():
    known = {one.name for one in catalogue()}
    named = set()
    for path in (Path(__file__).parents[2] / "src" / "gobrrr" / "conditions").glob("*_*.py"):
        text = path.read_text(encoding="utf-8")
        listed_in_full = re.findall(r"treatments=(\[.*?\](?: if .*?\])?),$", text, flags=re.M)
        for listed in [*listed_in_full, *re.findall(r"^def _treatments.*?(?=\n\n\n|\Z)", text, flags=re.M | re.S)]:
            named |= set(re.findall(r'"([a-z0-9-]+)"', listed))
    assert {"sdpa", "compile", "fused-norm", "channels-last"} <= named <= known


def test_overhead_treatments_never_promise_the_busy_time(launch_bound):
    finding = found("O01", launch_bound)
    idle = launch_bound.wall_ns - launch_bound.budget.busy_ns / launch_bound.steps.count
    for name in finding.treatments:
        given = predict(name, launch_bound, finding)
        assert given is not None
        assert given.predicted_saving_ns[1] <= idle


def test_a_larger_batch_promises_nothing_certain(launch_bound):
    given = predict("larger-batch", launch_bound, found("O01", launch_bound))
    assert given is not None
    assert given.predicted_saving_ns[0] == 0


@pytest.mark.parametrize(("shape", "dimension", "promised"), [
    ([32, 512], 0, False), ([32, 3, 8, 8], 0, False), ([32, 64, 512], 0, True), ([64, 32, 512], 1, True),
])  # fmt: skip
def test_a_loop_over_the_elements_of_a_batch_grows_with_it(
    shape: list[int], dimension: int, promised: bool, tmp_path: Path
):
    """Over vectors or images of the first dimension; over steps in time, [T, B, D] or [B, T, D], it does not."""

    def body(trace: Trace) -> None:
        for turn in range(32):
            trace.view("aten::select", shape, [str(dimension), str(turn)])
            trace.op("aten::mm", [[1, 512], [512, 512]], 2.0, dtype="float32", host_us=30.0)

    seen = certain(seen_of(tmp_path, body))
    assert (predict("larger-batch", seen, found("O01", seen)) is not None) is promised


def test_a_batch_that_is_hardly_larger_is_no_remedy(tmp_path: Path):
    def seen(kernel_us: float):
        trace = Trace()
        for number in range(4):
            with trace.step(number):
                for _ in range(40):
                    trace.op("aten::relu", [[64, 64]], kernel_us, host_us=40.0)
        return certain(evidence_from(trace.write(tmp_path)))

    finding = Finding(code="O01", title="", where=[], at_stake_ns=(0, 1e6), certainty="high", treatments=[])
    assert predict("larger-batch", seen(21.0), finding) is None
    given = predict("larger-batch", seen(0.5), finding)
    assert given is not None
    assert "more than 16 times" in given.how
    assert "throughput" in given.how


@pytest.mark.parametrize(
    ("op", "said"),
    [("aten::item", "keep the result of aten::item"), ("hipDeviceSynchronize", "take hipDeviceSynchronize out"),
     ("cudaMemcpyAsync", "pinned")],
)  # fmt: skip
def test_what_to_do_about_a_wait_depends_on_who_waits(op: str, said: str, launch_bound):
    finding = Finding(code="O02", title="", where=[Place(op=op)], at_stake_ns=(0, 1e5), certainty="high", treatments=[])
    given = predict("remove-sync", launch_bound, finding)
    assert given is not None
    assert said in given.how


def test_there_is_no_grouped_matmul_without_a_loop(launch_bound):
    assert predict("grouped-matmul", launch_bound, found("O01", launch_bound)) is None


def expert(trace: Trace, host_us: float, back: str = "aten::index_add_") -> None:
    """Four products of an expert, and its rows put back: six launches."""
    for name in (*["aten::mm"] * 4, "aten::gelu", back):
        trace.op(name, [[64, 1024], [1024, 1024]], 3.0, host_us=host_us)


@pytest.mark.parametrize(("wait", "back"), [("aten::item", "aten::index_add_"), ("aten::nonzero", "aten::tanh")])
def test_a_decode_loop_does_not_get_one(wait: str, back: str, tmp_path: Path):
    """It asks for a number in each turn, or for rows that it puts nowhere."""
    trace = Trace()
    for number in range(3):
        with trace.step(number):
            for _ in range(16):
                with trace.inside(wait):
                    trace.item()
                expert(trace, 40.0, back)
    seen = certain(evidence_from(trace.write(tmp_path)))
    assert predict("grouped-matmul", seen, found("O01", seen)) is None


def test_a_loop_over_experts_gets_one(tmp_path: Path):
    trace = Trace()
    for number in range(3):
        with trace.step(number):
            for _ in range(16):
                with trace.inside("aten::nonzero"):
                    trace.item()
                expert(trace, 40.0)
    seen = certain(evidence_from(trace.write(tmp_path)))
    given = predict("grouped-matmul", seen, found("O01", seen))
    assert given is not None
    assert "16" in given.how
    assert given.predicted_saving_ns[0] > 0.2 * seen.wall_ns


def test_a_turn_that_waits_twice_is_one_turn(tmp_path: Path):
    """16 turns of two waits and 6 launches, nearly all of the step: 30 of 128 launches are kept, or twice as many."""
    trace = Trace()
    for number in range(3):
        with trace.step(number):
            trace.op("aten::mm", [[64, 1024], [1024, 1024]], 3.0, host_us=100.0)
            for _ in range(16):
                trace.item()
                with trace.inside("aten::nonzero"):
                    trace.item()
                expert(trace, 100.0)
    seen = certain(evidence_from(trace.write(tmp_path)))
    given = predict("grouped-matmul", seen, found("O01", seen))
    assert given is not None
    assert "16" in given.how
    kept = 30 / (16 * 8)  # with the copies that the waits are for
    assert given.predicted_saving_ns[1] == pytest.approx(seen.wall_ns * (1 - kept), rel=0.05)
    assert given.predicted_saving_ns[0] == pytest.approx(seen.wall_ns * (1 - 2 * kept), rel=0.05)


def test_a_batch_of_a_size_that_is_asked_for(launch_bound):
    by = next(one for one in catalogue() if one.name == "larger-batch").by
    assert by is not None
    assert by(launch_bound, 4.0).work == 4.0
    assert "4 times" in by(launch_bound, 4.0).how


def _module(**given: object) -> ModuleType:
    module = ModuleType("gobrrr.treatments.some_thing", "Some thing.")
    form = {"NAME": "some-thing", "CODE": "pass", "NUMERICS": "none", "predict": lambda evidence, finding: None}
    for key, value in {**form, **given}.items():
        setattr(module, key, value)
    return module


def test_a_module_of_the_right_form_is_a_treatment():
    assert treatment_of(_module()).name == "some-thing"


@pytest.mark.parametrize(
    "given", [{"NAME": "other"}, {"CODE": None}, {"NUMERICS": "perhaps"}, {"predict": 1}, {"__doc__": None}]
)
def test_a_module_of_a_wrong_form_fails_with_its_name(given: dict[str, object]):
    with pytest.raises(TypeError, match=r"gobrrr\.treatments\.some_thing"):
        treatment_of(_module(**given))
