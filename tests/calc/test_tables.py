"""The article's tables as data, held against its text and against each other."""

from __future__ import annotations

import math

import pytest

from gobrrr import envelope
from gobrrr.envelope.generations import generations
from gobrrr.envelope.tables import a100, bert, doubling, numbers
from gobrrr.hardware import find

HALF_STEP = 0.005
HALF_TENTH = 0.05
TOLERANCE = 1e-9


def test_the_a100_table() -> None:
    assert [(row.unit, row.tflop_per_s, row.tflop_per_s_sparse) for row in a100()] == [
        ("FP64", 9.7, None),
        ("FP64 Tensor Core", 19.5, None),
        ("FP32", 19.5, None),
        ("Tensor Float 32 (TF32)", 156, 312),
        ("BFLOAT16 Tensor Core", 312, 624),
        ("FP16 Tensor Core", 312, 624),
    ]
    assert all(row.tflop_per_s_sparse in (None, 2 * row.tflop_per_s) for row in a100())


def test_the_articles_machine_is_the_datasheets_but_for_the_rounded_bandwidth() -> None:
    article, sheet = envelope.article_machine(), find("a100-40gb")
    for dtype, ceiling in article.matrix_flop_per_s.items():
        assert ceiling.value == sheet.matrix_flop_per_s[dtype].value
    for dtype, ceiling in article.vector_flop_per_s.items():
        assert ceiling.value == sheet.vector_flop_per_s[dtype].value
    assert article.memory_bytes_per_s is not None
    assert sheet.memory_bytes_per_s is not None
    assert (article.memory_bytes_per_s.value, sheet.memory_bytes_per_s.value) == (1.5e12, 1.555e12)


def test_the_texts_numbers() -> None:
    assert {name: one.value for name, one in numbers().items()} == {
        "memory_bandwidth": 1.5e12,
        "vector_peak": 19.5e12,
        "matrix_peak": 312e12,
        "python_additions": 32e6,
        "pytorch_operations": 280e3,
        "peak_without_fma": 9.75e12,
    }


def test_bert_adds_up() -> None:
    assert sum(row.flop_percent for row in bert()) == pytest.approx(100)
    assert sum(row.runtime_percent for row in bert()) == pytest.approx(100)


def columns(row: int) -> dict[str, float | None]:
    one = doubling()[row]
    return {"processor": one.processor, "memory": one.memory_module, "lan": one.lan, "disk": one.disk}


def test_the_doubling_table() -> None:
    assert [tuple(columns(row).values()) for row in range(6)] == [
        (1.22, 1.06, 1.13, 1.09),
        (None, 1.49, None, 1.37),
        (1.55, 1.30, 1.78, 1.29),
        (1.6, 2.7, 1.2, 2.7),
        (None, 2.9, None, 2.4),
        (1.4, 1.2, 1.2, 1.3),
    ]


@pytest.mark.parametrize("name", ["processor", "memory", "lan", "disk"])
def test_its_times_follow_from_its_factors(name: str) -> None:
    """ln 2 / ln of some factor that rounds to the printed one rounds to the printed years."""
    factor, years = columns(2)[name], columns(3)[name]
    assert factor is not None
    assert years is not None
    least, most = (math.log(2) / math.log(factor + off) for off in (HALF_STEP, -HALF_STEP))
    assert least <= years + HALF_TENTH + TOLERANCE
    assert years - HALF_TENTH - TOLERANCE <= most


@pytest.mark.parametrize(("yearly", "meanwhile"), [(0, 5), (1, 4)])
@pytest.mark.parametrize("name", ["processor", "memory", "lan", "disk"])
def test_its_last_rows_follow_from_the_others(name: str, yearly: int, meanwhile: int) -> None:
    """A factor a year to the power of the years in which the bandwidth doubles."""
    factor, total, bandwidth = columns(yearly)[name], columns(meanwhile)[name], columns(2)[name]
    if factor is None:
        assert total is None
        return
    assert total is not None
    assert bandwidth is not None
    years = [math.log(2) / math.log(bandwidth + off) for off in (HALF_STEP, -HALF_STEP)]
    least, most = (factor - HALF_STEP) ** years[0], (factor + HALF_STEP) ** years[1]
    assert least <= total + HALF_TENTH + TOLERANCE
    assert total - HALF_TENTH - TOLERANCE <= most


def test_generations() -> None:
    ratios = {one.name: (one.year, round(one.matrix_ratio)) for one in generations()}
    assert ratios["V100-SXM2-32GB"] == (2017, 139)  # 125 / 0.9
    assert ratios["A100-40GB-SXM4"] == (2020, 201)  # 312 / 1.555
    assert ratios["H100-SXM5-80GB"] == (2022, 295)  # 989.4 / 3.35
    assert ratios["H200-SXM5-141GB"] == (2023, 206)  # 989.4 / 4.8
    assert ratios["MI300X"] == (2023, 247)  # 1307.4 / 5.3
    years = [one.year for one in generations()]
    assert years == sorted(years)


def test_the_successor_has_three_times_the_flop_and_twice_the_bandwidth() -> None:
    """A reader's note on the article: the H100 beside the A100."""
    by_name = {one.name: one for one in generations()}
    new, old = by_name["H100-SXM5-80GB"], by_name["A100-40GB-SXM4"]
    assert round(new.matrix_flop_per_s / old.matrix_flop_per_s) == 3
    assert round(new.memory_bytes_per_s / old.memory_bytes_per_s) == 2
