"""M06: weights converted in every call, in traces and in live runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.model.live import TensorUse
from tests.conditions.lives import ran
from tests.conditions.makers import seen_of, shipped, what_its_calls_lose
from tests.conditions.test_traffic import linear
from tests.evidence import certain, check, findings, found, predict
from tests.traces import Trace

ROW, MATRIX = [4096], [16384, 4096]


def use(**given: object) -> TensorUse:
    first = {"kind": "weight_cast", "op": "autocast", "source": "train.py(3): step", "module": "Linear", "total": 4}
    return TensorUse(**{"shapes": "4 x [4096, 4096] float32 -> bfloat16", "share": 1.0, "bytes": 4e8, **first, **given})  # type: ignore[arg-type]


def test_weights_cast_in_every_step_of_an_inference_can_be_cast_once(tmp_path: Path):
    seen = certain(seen_of(tmp_path, linear))
    finding = found("M06", seen)
    # four conversions of 40 us, and nothing idle in front of them
    assert finding.at_stake_ns == (pytest.approx(160e3, rel=0.05), pytest.approx(160e3, rel=0.05))
    assert finding.certainty == "medium"  # inferred from the shapes
    assert check("M04", seen) is None
    given = predict("cast-once", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == what_its_calls_lose(finding)


def test_in_training_a_trace_does_not_tell_that_they_could_be_kept(tmp_path: Path):
    seen = seen_of(tmp_path, lambda trace: linear(trace, True))
    assert check("M06", seen) is None
    assert check("M04", seen) is not None


def norms(trace: Trace, taken: bool = True) -> None:
    for _ in range(4):
        for _ in range(2):
            trace.op("aten::copy_", [ROW, ROW], 30.0, dtypes=["float32", "bfloat16"], host_us=10.0)
        weight = ROW if taken else [1]
        trace.op("aten::native_layer_norm", [MATRIX, [], weight, weight, []], 200.0, dtype="float32", host_us=10.0)


def test_a_norm_that_converts_its_weights(tmp_path: Path):
    finding = found("M06", certain(seen_of(tmp_path, norms)))
    assert finding.at_stake_ns[1] == pytest.approx(8 * 30e3, rel=0.05)


def test_rows_that_no_norm_takes_are_no_weights(tmp_path: Path):
    assert check("M06", seen_of(tmp_path, lambda trace: norms(trace, False))) is None


def test_a_live_run_knows_the_weights_and_the_line(tmp_path: Path):
    seen = ran(tmp_path, linear, uses=(use(),))
    finding = found("M06", seen)
    assert finding.certainty == "high"
    assert finding.where[0].source == "train.py(3): step"
    assert finding.at_stake_ns[1] == pytest.approx(160e3, rel=0.05)


def test_what_a_live_run_did_not_see_is_no_weight(tmp_path: Path):
    assert check("M06", ran(tmp_path, linear, uses=())) is None
    assert check("M06", ran(tmp_path, linear, uses=(use(share=0.0),))) is None


def test_of_two_conversions_in_a_training_step_one_is_spared(tmp_path: Path):
    seen = ran(tmp_path, lambda trace: linear(trace, True), uses=(use(share=0.5, count=2),))
    assert found("M06", seen).at_stake_ns[1] == pytest.approx(80e3, rel=0.05)


def test_activations_of_a_weights_shape_do_not_count(tmp_path: Path):
    # a live run saw two conversions of weights, the trace has four of that shape and type
    assert found("M06", ran(tmp_path, linear, uses=(use(total=2),))).at_stake_ns[1] == pytest.approx(80e3, rel=0.05)


def test_launching_them_counts_where_the_device_waits(tmp_path: Path):
    def body(trace: Trace) -> None:
        for _ in range(20):
            begin = trace.now
            trace.op("aten::copy_", [[256, 256]] * 2, 2.0, dtypes=["bfloat16", "float32"], host_us=40.0)
            trace.op("aten::mm", [[8, 256], [256, 256]], 2.0, host_us=40.0)
            arguments = {"Input Dims": [[8, 256], [256, 256], []], "Input type": ["float", "float", ""]}
            trace._add("cpu_op", "aten::linear", begin - 0.5, trace.now - begin + 1.0, arguments)

    seen = certain(seen_of(tmp_path, body))
    finding = found("M06", seen)
    # about half of the step is launching conversions, hardly any of it converting
    assert 0.3 * seen.wall_ns < finding.at_stake_ns[1] < 0.6 * seen.wall_ns
    settled = {one.code: one for one in findings(seen)}
    assert sum(one.at_stake_ns[1] for one in settled.values()) <= seen.wall_ns * 1.001


@pytest.mark.parametrize("name", ["vit_b16_b64.fwd", "bert_base_b32_s512.fwd", "gpt2_b8_s1024.fwdbwd"])
def test_16_bit_models_have_none(name: str):
    assert check("M06", shipped(name)) is None
