"""Half the bytes of float32: what operations save that only move it, on traces whose answer can be said by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import length
from gobrrr.analysis.narrower import half_the_bytes
from gobrrr.analysis.what_if import FIXED_NS
from gobrrr.treatments import bf16_cast
from tests.analysis.slow_simulator import unprofiled
from tests.conftest import H100
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
