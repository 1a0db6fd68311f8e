"""Treatments by the names that they are asked for: a size, a part, and one that no finding is for."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from gobrrr.doors import changes, pipeline
from gobrrr.errors import UsageError
from gobrrr.guarded import GuardedParts
from gobrrr.observe.trace import read_trace
from gobrrr.treatments.framework.asking import asked, word_of
from tests.conftest import H100
from tests.evidence import certain, evidence_from
from tests.traces import Trace

SHAPE = [4096, 4096]
TF32_KERNEL = "sm90_xmma_gemm_f32f32_tf32f32"


@cache
def examined() -> pipeline.Examined:
    return pipeline.examine(read_trace(str(H100 / "mlp_tiny.faulty.json.gz")))


def step(*names: str) -> float:
    return changes.predict(read_trace(str(H100 / "mlp_tiny.faulty.json.gz")), names).what_if.step_ns


@pytest.mark.parametrize(
    ("name", "word"), [("compile", "compile"), ("larger-batch=4", "larger-batch"), ("cuda-graph:model", "cuda-graph")]
)
def test_a_name_begins_with_its_treatment(name: str, word: str):
    assert word_of(name) == word


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no-such", "no treatment is called no-such"), ("", "no treatment is called"), ("compile=2", "has no size"),
        ("larger-batch=0", "a factor from"), ("larger-batch=nan", "a factor from"), ("larger-batch=x", "a factor"),
        ("cuda-graph:half", "it has model"), ("compile:half", "it has none"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_refused_in_one_line(name: str, said: str):
    evidence = examined().evidence
    assert evidence is not None
    with pytest.raises(UsageError, match=said):
        asked(name, evidence, examined().found, GuardedParts())


@pytest.mark.usefixtures("replay_alone")
def test_a_batch_of_twice_the_size_costs_a_launch_bound_step_nothing():
    assert step("larger-batch=2") == pytest.approx(step() / 2, rel=0.02)
    assert step("larger-batch=1") == pytest.approx(step(), rel=0.02)


@pytest.mark.usefixtures("replay_alone")
def test_a_graph_of_the_model_leaves_its_optimizer_outside(tmp_path: Path):
    """20 launches of 100 us in the model, 10 in the optimizer: those are left; of the whole step one launch is."""
    trace = Trace(shapes=False)
    for number in range(3):
        with trace.step(number):
            for _ in range(20):
                trace.op("aten::mul", [[64, 64]], 5.0, host_us=100.0)
            with trace.annotated("Optimizer.step#AdamW.step"):
                for _ in range(10):
                    trace.op("aten::addcmul_", [[64, 64]], 5.0, host_us=100.0)
    profile = read_trace(str(trace.write(tmp_path)))
    now, model, whole = (changes.predict(profile, names).what_if.step_ns
                         for names in ((), ("cuda-graph:model",), ("cuda-graph",)))  # fmt: skip
    assert model == pytest.approx(now / 3, rel=0.1)
    assert whole < 0.7 * model


@pytest.mark.usefixtures("replay_alone")
def test_a_graph_of_the_model_leaves_its_loss_outside(tmp_path: Path):
    """10 launches of 100 us in a module, 20 that are in none, as a loss that is written out: only the 10 are gone."""
    trace = Trace(shapes=False)
    for number in range(3):
        with trace.step(number):
            begin = trace.now
            for _ in range(10):
                trace.op("aten::mul", [[64, 64]], 5.0, host_us=100.0)
            trace._add("python_function", "nn.Module: Net_0", begin, trace.now - begin)
            for _ in range(20):
                trace.op("aten::mul", [[64, 64]], 5.0, host_us=100.0)
    profile = read_trace(str(trace.write(tmp_path)), python=True)
    now, model = (changes.predict(profile, names).what_if.step_ns for names in ((), ("cuda-graph:model",)))
    assert model == pytest.approx(2 / 3 * now, rel=0.1)


@pytest.mark.usefixtures("replay_alone")
def test_what_runs_as_tf32_may_be_asked_to_run_in_16_bit(tmp_path: Path):
    """No condition calls TF32 a fault. 4096^3 products of 300 us: 494.7 TFLOP/s against 989.4."""
    trace = Trace()
    for number in range(3):
        with trace.step(number):
            for _ in range(8):
                trace.op(
                    "aten::mm",
                    [SHAPE, SHAPE],
                    300.0,
                    dtype="float32",
                    host_us=10.0,
                    kernel="sm90_xmma_gemm_f32f32_tf32f32",
                )
    seen = certain(evidence_from(trace.write(tmp_path)))
    assert not [one for one in pipeline.examine(read_trace(str(tmp_path / "trace.json"))).found
                if one.finding.code in ("C01", "C03")]  # fmt: skip
    ((name, found, plan),) = asked("bf16-autocast", seen, [], GuardedParts())
    assert (name, found) == ("bf16-autocast", None)
    assert plan.effect is not None
    one = changes.predict(read_trace(str(tmp_path / "trace.json")), ["bf16-autocast"]).what_if
    assert one.saving_ns[0] == pytest.approx(8 * 300e3 / 4, rel=0.05)
    assert one.saving_ns[1] == pytest.approx(8 * 300e3 / 2, rel=0.05)
    assert asked("sdpa", seen, [], GuardedParts()) == []


def lists(folder: Path, kind: str, *names: str) -> list[float]:
    """What the fused form of an optimizer is asked to save, us: its list operations take 400 us of the device each."""
    trace = Trace(shapes=False)
    for number in range(3):
        with trace.step(number):
            trace.op("aten::mm", [[64, 64], [64, 64]], 1_000.0, host_us=10.0)
            with trace.annotated(f"Optimizer.step#{kind}.step"):
                for name in names:
                    trace.op(f"aten::{name}", [[64, 64]], 400.0, host_us=10.0)
    found = changes.predict(read_trace(str(trace.write(folder))), ["fused-optimizer"]).what_if
    return [one / 1e3 for one in found.saving_ns]


@pytest.mark.usefixtures("replay_alone")
def test_a_fused_adam_goes_over_its_parameters_once(tmp_path: Path):
    """torch's AdamW in lists reads or writes each parameter's size 20 times, the fused one 7 times."""
    operations = ("mul_", "lerp_", "mul_", "addcmul_", "sqrt", "div_", "add_", "addcdiv_")
    low, high = lists(tmp_path, "AdamW", *(f"_foreach_{one}" for one in operations))
    assert high == pytest.approx(8 * 400 * 13 / 20, rel=0.02)
    assert 0 < low < high / 10


@pytest.mark.usefixtures("replay_alone")
def test_what_is_fused_or_no_adam_has_nothing_to_fuse(tmp_path: Path):
    assert lists(tmp_path, "AdamW", "_fused_adamw_") == [0.0, 0.0]
    assert lists(tmp_path, "SGD", "_foreach_add_") == [0.0, 0.0]
