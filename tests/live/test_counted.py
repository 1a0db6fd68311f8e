"""FLOPs and bytes of a real step: against sums by hand and torch's own counter of FLOPs."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from gobrrr import cost  # noqa: E402
from gobrrr.analysis.pricing.dispatched import counted_live  # noqa: E402
from gobrrr.model.recording import RecordedCall, Recording  # noqa: E402
from gobrrr.model.work import OpCall  # noqa: E402
from gobrrr.observe.live.ops.dispatch import watch  # noqa: E402

pytestmark = pytest.mark.torch

BATCH, WIDTH, HIDDEN = 32, 64, 128


def torch_counts(step: Any) -> int:
    with FlopCounterMode(display=False) as counter:
        step()
    return int(counter.get_total_flops())


def products(step: Any) -> float:
    return sum(cost.contraction_flop(cost.price(one.call)) or 0.0 for one in watch(step).calls)


def test_a_product_by_hand() -> None:
    left, right = torch.randn(BATCH, WIDTH), torch.randn(WIDTH, HIDDEN)
    found = counted_live(watch(lambda: left @ right).recording())
    assert found.flop == 2 * BATCH * WIDTH * HIDDEN
    assert found.bytes == 4 * (BATCH * WIDTH + WIDTH * HIDDEN + BATCH * HIDDEN)
    assert (found.calls, found.unknown_calls) == (1, 0)


def test_a_training_step_of_products_alone_is_what_torch_counts() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, HIDDEN, bias=False), nn.Linear(HIDDEN, WIDTH, bias=False))
    x, gradient = torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)

    def step() -> None:
        model.zero_grad()
        model(x).backward(gradient)

    by_hand = 2 * BATCH * WIDTH * HIDDEN * 5  # two forward, two by weight, one by input
    assert counted_live(watch(step).recording()).flop == by_hand == torch_counts(step)


@pytest.mark.parametrize(
    ("name", "attended"),
    [
        ("convolutions", 0),
        # torch counts nothing for the CPU's attention: 4 FLOP a pair and channel, by hand
        ("attention", 4 * 2 * 4 * 16 * 16 * 8),
        ("encoder", 4 * 2 * 4 * 8 * 8 * 8),
    ],
)
def test_products_of_other_models_are_what_torch_counts(name: str, attended: int) -> None:
    step = {"convolutions": convolutions, "attention": attention, "encoder": encoder}[name]()
    oracle = torch_counts(step) + attended
    assert products(step) == oracle
    found = counted_live(watch(step).recording())
    assert found.flop is not None
    assert found.flop >= oracle  # with pointwise work beside them
    assert found.unknown_calls == 0


def convolutions() -> Any:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3))
    x = torch.randn(2, 3, 16, 16)
    return lambda: model(x).sum().backward()


def attention() -> Any:
    query = torch.randn(2, 4, 16, 8)
    return lambda: F.scaled_dot_product_attention(query, query, query)


def encoder() -> Any:
    layer, x = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), torch.randn(2, 8, 32)
    return lambda: layer(x)


def recording(known: int, unknown: int, **more: Any) -> Recording:
    plain = watch(lambda: torch.ones(4) + torch.ones(4)).calls[-1]
    strange = RecordedCall(call=OpCall(name="mine::strange"), phase="forward", site=0)
    return Recording(
        target="", calls=(plain,) * known + (strange,) * unknown, sites=(), peak_bytes=0, start_bytes=0, module_calls=0,
        on_cpu=True, **more,
    )  # fmt: skip


def test_a_few_unknown_operations_are_left_out_and_more_make_the_sums_unknown() -> None:
    few, many = counted_live(recording(98, 2)), counted_live(recording(97, 3))
    assert (few.flop, few.bytes, few.calls, few.unknown_calls) == (98 * 4.0, 98 * 48.0, 100, 2)
    assert (many.flop, many.bytes, many.calls, many.unknown_calls) == (None, None, 100, 3)


def test_a_step_of_which_a_part_is_missing_has_no_sums() -> None:
    found = counted_live(recording(5, 0, notes=("1 replays of CUDA graphs whose capture was not seen",)))
    assert (found.flop, found.bytes) == (None, None)
    assert "was not seen" in found.how


def test_what_an_operator_on_functions_runs_is_not_known() -> None:
    x = torch.ones(4)
    found = counted_live(watch(lambda: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))).recording())
    assert (found.flop, found.unknown_calls) == (None, 1)


def test_nothing_is_zero() -> None:
    assert counted_live(watch(lambda: None).recording()).flop == 0.0
