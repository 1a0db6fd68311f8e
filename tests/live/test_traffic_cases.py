"""Reproductions of memory traffic and loops of updates, each sick and healthy, run and diagnosed on this CPU."""

from __future__ import annotations

from importlib import import_module

import pytest

torch = pytest.importorskip("torch")

from tests.live.look import codes, diagnosed  # noqa: E402

pytestmark = pytest.mark.torch

CASES = [
    "l13_autocast_inference", "m04_norm_weight_casts", "m17_dense_embedding_gradient", "m18_duplicate_index_backward",
    "m21_strided_elementwise", "m10_cache_by_cat", "m12_attention_weights", "m15_naive_attention", "l09_ema_loop",
    "padding_waste", "m01_unfused_rms_norm",
]  # fmt: skip
"""m03_rope_round_trips compiles its healthy form, which takes a compiler and seconds."""


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", CASES)
def test_the_sick_form_is_named_and_the_healthy_one_is_not(name: str) -> None:
    case = import_module(f"bench.cases.{name}")
    assert case.CODE in codes(diagnosed(case.faulty()))
    assert case.CODE not in codes(diagnosed(case.fixed()))


def test_rotary_positions_by_hand_are_a_chain() -> None:
    case = import_module("bench.cases.m03_rope_round_trips")
    assert case.CODE in codes(diagnosed(case.faulty()))


def test_attention_weights_that_nobody_reads_need_not_be_asked_for() -> None:
    case = import_module("bench.cases.m12_attention_weights")
    found = next(one for one in diagnosed(case.faulty()).findings if one.code == "M02")
    assert found.treatments == ["need-weights-false"]
    assert "m12_attention_weights.py" in (found.where[0].source or "")
