"""Whole models, one forward pass: closed forms worked out apart from this code (contractions only, GFLOP)."""

from __future__ import annotations

import pytest

from gobrrr.cost import price
from gobrrr.cost.build import contraction_flop
from gobrrr.model.work import OpCall, Scalar, Tensor

BERT_BASE_B8_S512 = 773.10  # torch's FlopCounterMode on the CPU says 0.900 of it: attention has no formula there
RESNET50_B8 = 65.43


def linear(tokens: int, inputs: int, outputs: int) -> float:
    given, weight = Tensor((tokens, inputs), "float16"), Tensor((outputs, inputs), "float16")
    return price(OpCall(name="aten::linear", inputs=(given, weight))).matrix_flop or 0.0


def conv(batch: int, inputs: int, outputs: int, size: int, kernel: int, stride: int) -> float:
    given, weight = Tensor((batch, inputs, size, size), "float16"), Tensor((outputs, inputs, kernel, kernel), "float16")
    setting = (
        Scalar(f"[{stride}, {stride}]"),
        Scalar(f"[{kernel // 2}, {kernel // 2}]"),
        Scalar("[1, 1]"),
        Scalar("1"),
    )
    return price(OpCall(name="aten::conv2d", inputs=(given, weight, Scalar(""), *setting))).matrix_flop or 0.0


def test_bert_base() -> None:
    tokens = 8 * 512
    query = Tensor((8, 12, 512, 64), "float16")
    attention = price(OpCall(name="aten::scaled_dot_product_attention", inputs=(query,) * 3)).matrix_flop or 0.0
    layer = 4 * linear(tokens, 768, 768) + linear(tokens, 768, 3072) + linear(tokens, 3072, 768) + attention
    pooler = linear(8, 768, 768)
    assert (12 * layer + pooler) / 1e9 == pytest.approx(BERT_BASE_B8_S512, abs=0.01)


def test_resnet50() -> None:
    total, channels, size = conv(8, 3, 64, 224, 7, 2), 64, 56
    for blocks, width, stride in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for block in range(blocks):
            step = stride if block == 0 else 1
            small = size // step
            total += conv(8, channels, width, size, 1, 1) + conv(8, width, width, size, 3, step)
            total += conv(8, width, 4 * width, small, 1, 1)
            total += conv(8, channels, 4 * width, size, 1, step) if block == 0 else 0.0
            channels, size = 4 * width, small
    assert (total + linear(8, 2048, 1000)) / 1e9 == pytest.approx(RESNET50_B8, abs=0.01)


def test_depthwise_backward_is_divided_by_its_groups() -> None:
    # FlopCounterMode 2.13 says 11.33 times the closed form for forward and backward together.
    given, weight, out = (Tensor(shape, "float16") for shape in ((8, 32, 16, 16), (32, 1, 3, 3), (8, 32, 16, 16)))
    one = Scalar("[1, 1]")
    rest = (
        Scalar("[0]"),
        one,
        one,
        one,
        Scalar("False"),
        Scalar("[0, 0]"),
        Scalar("32"),
        Scalar("[True, True, False]"),
    )
    work = price(OpCall(name="aten::convolution_backward", inputs=(out, given, weight, *rest)))
    assert work.flop == contraction_flop(work) == 2 * 2 * 8 * 32 * 16 * 16 * 9
