"""Half the bytes of float32: what operations save that only move it, on traces whose answer can be said by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.replay.what_if import FIXED_NS
from gobrrr.analysis.savings.gains import length
from gobrrr.analysis.savings.narrower import half_behind_contractions, half_the_bytes
from gobrrr.guarded import GuardedParts
from gobrrr.treatments import bf16_cast
from gobrrr.treatments.framework.asking import asked
from gobrrr.treatments.framework.rank_plans import RankPlans
from gobrrr.treatments.framework.together import Combiner
from tests.analysis.slow_simulator import unprofiled
from tests.conftest import H100, ROOT
from tests.traces import Trace
from tests.treatments.test_together import examined

LARGE = [[8192, 8192], [8192, 8192], []]
PLUS = ["", "", "1"]
US = 500.0
FLOOR = 3 * 8192 * 8192 * 4 / 3.35e12 * 1e6


def additions(folder: Path, types: list[str]) -> Evidence:
    """Three additions of 500 us a step on tensors of these types; an H100 needs 240 us for float32."""
    trace = Trace(device="NVIDIA H100 80GB HBM3")
    for number in range(3):
        with trace.step(number):
            for _ in range(3):
                trace.op("aten::add", LARGE, US, dtypes=[*types, "float32"], concrete=PLUS)
            trace.synchronize()
    return unprofiled(trace, folder)


def test_of_float32_at_the_most_half_of_the_time_is_saved_and_at_the_least_a_quarter_of_that_at_the_roof(tmp_path):
    evidence = additions(tmp_path, ["float32", "float32"])
    effect, now = half_the_bytes(evidence), length(evidence, evidence.graph) / 1e3
    most = 3 * 0.5 * (US - FIXED_NS / 1e3)
    assert now - length(evidence, effect(1.0)(evidence.graph)) / 1e3 == pytest.approx(most, rel=0.01)
    assert now - length(evidence, effect(0.0)(evidence.graph)) / 1e3 == pytest.approx(3 * 0.25 * FLOOR, rel=0.02)


def test_what_is_in_16_bit_already_has_nothing_to_halve(tmp_path: Path):
    assert half_the_bytes(additions(tmp_path, ["bfloat16", "bfloat16"])) is None


def test_of_two_types_only_the_float32_counts(tmp_path: Path):
    evidence = additions(tmp_path, ["float32", "bfloat16"])
    saved = length(evidence, evidence.graph) - length(evidence, half_the_bytes(evidence)(1.0)(evidence.graph))
    assert saved / 1e3 == pytest.approx(3 * 0.5 * (2 / 3) * (US - FIXED_NS / 1e3), rel=0.01)


def test_a_cast_of_a_chain_is_predicted_and_of_what_trains_it_is_not():
    chain = examined(H100 / "pointwise_chain.faulty.json.gz").evidence
    assert bf16_cast.unasked(chain) is not None
    assert bf16_cast.unasked(examined(H100 / "resnet50_b64_cl.fwdbwd.json.gz").evidence) is None


IMAGES, NORM = [[64, 256, 56, 56]], [[64, 256, 56, 56], [256], [256], [256], [256]]


def saved_behind(folder: Path, *ops: tuple[str, list[list[int]]]) -> float:
    """us that autocast's traffic saves at the most of a step with these operations, of 500 us each."""
    trace = Trace(device="NVIDIA H100 80GB HBM3")
    for number in range(3):
        with trace.step(number):
            for name, dims in ops:
                trace.op(name, dims, US, dtypes=["float32"] * len(dims))
            trace.synchronize()
    evidence = unprofiled(trace, folder)
    effect = half_behind_contractions(evidence)
    if effect is None:
        return 0.0
    return (length(evidence, evidence.graph) - length(evidence, effect(1.0)(evidence.graph))) / 1e3


HALF_US = 0.5 * (US - FIXED_NS / 1e3)


@pytest.mark.parametrize(
    ("ops", "halved"),
    [
        ([("aten::relu", IMAGES)], 1),
        ([("aten::gelu", [[8192, 4096]]), ("aten::native_layer_norm", [[8192, 4096], [4096]])], 1),  # in float32
        ([("aten::_softmax", [[8192, 4096]])], 0),
        ([("aten::add", [[8192, 4096], [8192, 4096]])], 0),  # of residuals that a norm gave: float32
        ([("aten::add_", [*IMAGES, *IMAGES]), ("aten::native_batch_norm", NORM)], 2),
        ([("aten::silu", IMAGES), ("aten::native_group_norm", IMAGES)], 0),  # the norm's result is float32
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "+".join(name for name, _ in value),
)
def test_autocast_halves_what_keeps_the_type_that_contractions_give_it(ops, halved: int, tmp_path: Path):
    assert saved_behind(tmp_path, *ops) == pytest.approx(halved * HALF_US, rel=0.02, abs=1.0)


def test_the_updates_of_weights_stay_in_float32(tmp_path: Path):
    """Weights of convolutions have four dimensions as images have."""
    weights = [[2048, 2048, 3, 3]] * 2
    trace = Trace(device="NVIDIA H100 80GB HBM3")
    for number in range(3):
        with trace.step(number):
            trace.op("aten::native_batch_norm", NORM, US, dtypes=["float32"] * len(NORM))
            trace.op("aten::addcmul", [*weights, weights[0]], US, dtypes=["float32"] * 3)
            with trace.annotated("Optimizer.step#AdamW.step"):
                for one in ("aten::mul_", "aten::add_", "aten::addcdiv_"):
                    trace.op(one, weights, US, dtypes=["float32"] * 2)
            trace.synchronize()
    evidence = unprofiled(trace, tmp_path)
    after = half_behind_contractions(evidence)(1.0)(evidence.graph)
    assert (length(evidence, evidence.graph) - length(evidence, after)) / 1e3 == pytest.approx(HALF_US, rel=0.02)


def test_bytes_and_fusions_are_saved_whatever_the_order_they_are_asked_in(tmp_path: Path):
    seen = examined(ROOT / "tests" / "data" / "h100" / "pairs" / "bf16_vision.faulty.json.gz")
    names = ("compile", "bf16-autocast")
    plans = {name: list(asked(name, seen.evidence, seen.found, GuardedParts())) for name in names}
    steps = []
    for order in (names, names[::-1]):
        mine = tuple(plan for name in order for plan in plans[name])
        watch = Combiner(
            [RankPlans(seen.evidence, mine, seen.ranks[0].row_of_group)], seen.diagnosis.unprofiled_wall_ns, spreads=()
        )
        steps.append(watch.combined(list(order)).what_if.step_ns)
    assert steps[0] == steps[1]


def test_half_the_bytes_and_a_fusion_multiply():
    """A chain that is fused moves what it reads and writes once, and in 16 bit half of that."""
    seen = examined(H100 / "pointwise_chain.faulty.json.gz")
    plans = {name: list(asked(name, seen.evidence, seen.found, GuardedParts())) for name in ("compile", "bf16-cast")}

    def after(*names: str) -> float:
        mine = tuple(plan for name in names for plan in plans[name])
        return (
            Combiner(
                [RankPlans(seen.evidence, mine, seen.ranks[0].row_of_group)],
                seen.diagnosis.unprofiled_wall_ns,
                spreads=(),
            )
            .combined(list(names))
            .what_if.step_ns
        )

    fused, both = after("compile"), after("compile", "bf16-cast")
    assert 0.5 * fused <= both <= 0.75 * fused
