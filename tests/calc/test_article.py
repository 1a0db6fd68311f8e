"""The article's own numbers, as it prints them, against what calc computes."""

from __future__ import annotations

import pytest

import gobrrr
from gobrrr import envelope
from gobrrr.envelope.article import rounds_to
from gobrrr.model.envelope import ArticleFigure, Balance, Envelope

N = 67_108_864


def computed(part: str) -> ArticleFigure:
    (found,) = [claim for claim in envelope.claims() if part in claim.quote]
    return found


def balance(one: Envelope) -> Balance:
    assert one.balance is not None
    return one.balance


def test_numbers_loaded_while_twenty_trillion_operations_run() -> None:
    """1.5e12 B/s over 4 B is 375e9, which the article rounds to one digit: 400 billion; 19.5e12 so to 20 trillion."""
    assert 1.5e12 / 4 == 375e9
    assert (computed("400 billion").claimed, computed("400 billion").computed) == ("400 billion", "375 billion")
    assert (computed("20 trillion").claimed, computed("20 trillion").computed) == ("20 trillion", "19.5 trillion")
    assert rounds_to(375e9, 400e9)
    assert rounds_to(19.5e12, 20e12)


def test_about_a_hundred_operations() -> None:
    """19.5e12 FLOP/s over (1.5e12 B/s over 8 B read and written) = 104; half of it without FMA."""
    found = balance(gobrrr.calc("x * 2", shape=N, on="article"))
    assert found.needed == pytest.approx(104)
    assert found.needed_without_fma == pytest.approx(52)
    assert (found.operations, found.bytes_per_element) == (1, 8)
    # of the 40 GB card's own 1,555 GB/s
    assert balance(gobrrr.calc("x * 2", shape=N, on="a100-40gb")).needed == pytest.approx(19.5e12 / (1.555e12 / 8))


def test_crossover_of_208() -> None:
    found = gobrrr.calc("mm", 4096, 4096, 4096, dtype="bf16", on="article")
    assert [roof.ridge for roof in found.roofs] == pytest.approx([312e12 / 1.5e12])
    assert found.roofs[0].ridge == pytest.approx(208)


def test_python_against_the_a100() -> None:
    assert 312e12 / 32e6 == 9.75e6
    assert computed("9.75 million").computed == "9.75 million"


def test_peak_without_fma() -> None:
    assert computed("our peak of 9.75").computed == "9.75 TFLOP/s"


def test_the_sweep_starts_at_a_fifth_of_a_teraflop() -> None:
    """One FLOP for each 8 bytes: 1.5e12 / 8 = 0.1875e12."""
    assert computed("measly").computed == "0.1875 TFLOP/s"
    once = gobrrr.calc("pointwise", ops=1, shape=N, on="article").fused
    assert once.floor_ns is not None
    assert once.flop / once.floor_ns * 1e9 == pytest.approx(0.1875e12)


@pytest.mark.parametrize(("repeat", "bound"), [(1, "memory"), (32, "memory"), (103, "memory"), (105, "compute")])
def test_the_sweep_turns(repeat: int, bound: str) -> None:
    found = gobrrr.calc("pointwise", ops=repeat, shape=N, on="article")
    assert found.fused.bound == bound
    assert found.unfused.bound == "memory"
    assert found.unfused.launches == repeat


def test_cos_cos() -> None:
    """4 reads and writes of the tensor, 2 when fused: twice as fast."""
    found = gobrrr.calc("x.cos().cos()", shape=N, on="a100-40gb")
    assert found.unfused.bytes == 4 * 4 * N
    assert found.fused.bytes == 2 * 4 * N
    assert found.speedup == 2
    assert found.unfused.floor_ns == pytest.approx(16 * N / 1.555e12 * 1e9)
    assert found.saved_ns == pytest.approx(8 * N / 1.555e12 * 1e9)
    assert (found.unfused.launches, found.fused.launches) == (2, 1)
    alone = gobrrr.calc("x.cos()", shape=N, on="a100-40gb")
    assert alone.fused.floor_ns == found.fused.floor_ns


def test_gelu_takes_as_long_as_relu() -> None:
    gelu, relu = (gobrrr.calc(f"F.{name}(x)", shape=N, on="article") for name in ("gelu", "relu"))
    assert gelu.fused.flop == 5 * relu.fused.flop
    assert gelu.fused.floor_ns == relu.fused.floor_ns


def test_bert() -> None:
    """(99.80 / 61.0) / (0.17 / 25.5) = 245 and (99.80 / 61.0) / (0.03 / 13.5) = 736."""
    assert float(computed("250x").computed) == pytest.approx(245.4, abs=0.05)
    assert float(computed("700x").computed) == pytest.approx(736.2, abs=0.05)
    assert computed("0.2%").agrees


def test_all_claims_agree_but_one() -> None:
    """312 / 19.5 is 16, where the article says 15x."""
    assert [claim.quote for claim in envelope.claims() if not claim.agrees] == [
        "our GPU computes non-matmul ops 15x slower"
    ]
    assert computed("15x").computed == "16"


@pytest.mark.parametrize(
    ("value", "claimed", "holds"),
    [
        (375e9, 400e9, True),
        (449e9, 400e9, True),
        (451e9, 400e9, False),
        (104, 100, True),
        (151, 100, False),
        (16, 15, False),
        (0.1875, 0.2, True),
        (9.754e6, 9.75e6, True),
        (9.756e6, 9.75e6, False),
        (208.4, 208, True),
        (2.0, 2, True),
    ],
)
def test_rounding(value: float, claimed: float, holds: bool) -> None:
    assert rounds_to(value, claimed) is holds
