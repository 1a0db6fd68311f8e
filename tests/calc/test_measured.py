"""Envelopes against what an H100 did (data/h100/article.json): a floor is never above a time that was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gobrrr

N = 2**26


@pytest.fixture(scope="module")
def measured(h100: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((h100 / "article.json").read_text())
    return found


def floor_ms(one: gobrrr.Envelope, plan: str = "fused") -> float:
    ns = getattr(one, plan).floor_ns
    assert ns is not None
    return float(ns) / 1e6


def test_cos_and_cos_cos(measured: dict[str, Any]) -> None:
    """Eager, two kernels take twice as long as one; fused, as long: the envelope's 2, to 1 %."""
    twice, once = (gobrrr.calc(text, shape=N, on="h100") for text in ("x.cos().cos()", "x.cos()"))
    assert measured["coscos_eager"] / measured["coscos_fused"] == pytest.approx(twice.speedup, rel=0.01)
    assert measured["coscos_fused"] == pytest.approx(measured["cos_fused"], rel=0.01)
    for time, floor in (
        (measured["coscos_eager"], floor_ms(twice, "unfused")),
        (measured["coscos_fused"], floor_ms(twice)),
        (measured["cos_eager"], floor_ms(once)),
    ):
        assert 0.85 < floor / time < 1


@pytest.mark.parametrize("name", ["gelu", "relu", "silu", "tanh"])
def test_activations_take_the_time_of_their_bytes(measured: dict[str, Any], name: str) -> None:
    one = gobrrr.calc(f"x.{name}()", shape=N, on="h100")
    assert one.fused.bound == "memory"
    assert 0.85 < floor_ms(one) / measured[name] < 1


def test_the_sweep_turns_where_the_envelope_says(measured: dict[str, Any]) -> None:
    """Multiplications alone: 66.9 / 2 TFLOP/s over 3.35 TB/s / 8 bytes is 80; flat up to 64, growing from 128 on."""
    times = {repeat: ms for repeat, ms, *_ in measured["sweep"]}
    balance = gobrrr.calc("x * 2", shape=N, on="h100").balance
    assert balance is not None
    assert 64 < balance.needed_without_fma < 128
    assert times[64] == pytest.approx(times[1], rel=0.01)
    assert times[128] > 1.5 * times[64]


def test_no_point_of_the_sweep_beats_its_floor(measured: dict[str, Any]) -> None:
    for repeat, ms, *_ in measured["sweep"]:
        assert floor_ms(gobrrr.calc("pointwise", ops=repeat, shape=N, on="h100")) < ms


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "tf32", "fp32", "fp64"])
@pytest.mark.parametrize("size", [4096, 8192])
def test_no_product_beats_its_floor(measured: dict[str, Any], dtype: str, size: int) -> None:
    one = gobrrr.calc("mm", size, size, size, dtype=dtype, on="h100")
    assert one.fused.bound == "compute"
    assert 2 * size**3 / (measured[f"mm_{dtype}_{size}"] * 1e12) * 1e3 > floor_ms(one)
