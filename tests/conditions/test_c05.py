"""C05: products in an expensive order, einsums, summed outer products; and the orders that are cheap already."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.analysis.detect.chains import cheapest, cheapest_path
from tests.conditions.makers import seen_of, what_its_calls_lose
from tests.evidence import certain, check, found, predict
from tests.traces import Trace


def product(trace: Trace, left: list[int], right: list[int], us: float) -> None:
    name = "aten::bmm" if len(left) == 3 else "aten::mm" if len(right) == 2 else "aten::mv"
    trace.op(name, [left, right], us, dtype="float32", host_us=10.0)


def times_vector(trace: Trace) -> None:
    product(trace, [4096, 2048], [2048, 3072], 900.0)
    product(trace, [4096, 3072], [3072], 25.0)


def test_a_matrix_that_only_a_vector_needs(tmp_path: Path):
    seen = certain(seen_of(tmp_path, times_vector))
    finding = found("C05", seen)
    assert finding.certainty == "high"
    # A (B v): 2 x (2048 x 3072 + 4096 x 2048) FLOP; 2 x 4096 x 2048 x 3072 and more now
    assert "takes 51.6 GFLOP" in finding.evidence[1]
    assert "A (B C)" in finding.evidence[1]
    assert "29.4 MFLOP" in finding.evidence[1]
    assert 0.9 * 925e3 < finding.at_stake_ns[0] <= finding.at_stake_ns[1] < 925e3
    given_ = predict("reorder-contraction", seen, finding)
    assert given_ is not None
    assert given_.predicted_saving_ns == what_its_calls_lose(finding)


def test_square_matrices_can_t_be_told_by_their_shapes(tmp_path: Path):
    def body(trace: Trace) -> None:
        product(trace, [4096, 4096], [4096, 4096], 2600.0)
        product(trace, [4096, 4096], [4096], 25.0)

    finding = found("C05", certain(seen_of(tmp_path, body)))
    assert finding.certainty == "low"
    assert "another tensor has the same shape" in finding.evidence[-1]


def test_attention_without_a_softmax(tmp_path: Path):
    def body(trace: Trace) -> None:
        product(trace, [64, 1024, 64], [64, 64, 1024], 200.0)
        product(trace, [64, 1024, 1024], [64, 1024, 64], 200.0)

    assert found("C05", certain(seen_of(tmp_path, body))).certainty == "high"


def healthy_lora(trace: Trace) -> None:
    product(trace, [4096, 4096], [4096, 16], 60.0)
    product(trace, [4096, 16], [16, 4096], 60.0)


def healthy_softmax(trace: Trace) -> None:
    product(trace, [64, 1024, 64], [64, 64, 1024], 200.0)
    trace.op("aten::_softmax", [[64, 1024, 1024], [], []], 200.0, dtype="float32", host_us=10.0)
    product(trace, [64, 1024, 1024], [64, 1024, 64], 200.0)


def healthy_layers(trace: Trace) -> None:
    """Two linear layers without an activation: their weights stay."""
    for left, right in (([8192, 256], [256, 1024]), ([8192, 1024], [1024, 256])):
        with trace.inside("aten::linear"):
            product(trace, left, right, 200.0)


def healthy_recurrence(trace: Trace) -> None:
    """As many products as a recurrence has steps: every order costs the same."""
    for _ in range(500):
        product(trace, [1024, 1024], [1024, 1024], 30.0)


def test_a_long_recurrence_with_a_vector(tmp_path: Path):
    """((W W) W) ... v, where W (W ... v) would do: found in pieces, each with an order of its own."""

    def body(trace: Trace) -> None:
        for _ in range(60):
            product(trace, [4096, 4096], [4096, 4096], 2600.0)
        product(trace, [4096, 4096], [4096], 25.0)

    assert found("C05", certain(seen_of(tmp_path, body))).at_stake_ns[1] > 2e6


def healthy_read_again(trace: Trace) -> None:
    times_vector(trace)
    trace.op("aten::relu", [[4096, 3072]], 30.0, dtype="float32", host_us=10.0)


def healthy_order(trace: Trace) -> None:
    product(trace, [2048, 3072], [3072], 20.0)
    product(trace, [4096, 2048], [2048], 20.0)


def healthy_backward(trace: Trace) -> None:
    with trace.inside("autograd::engine::evaluate_function: MmBackward0"), trace.inside("MmBackward0"):
        times_vector(trace)


@pytest.mark.parametrize(
    "body",
    [
        healthy_lora,
        healthy_softmax,
        healthy_layers,
        healthy_recurrence,
        healthy_read_again,
        healthy_order,
        healthy_backward,
    ],
)
def test_ordinary_stacks_are_healthy(tmp_path: Path, body):
    assert check("C05", certain(seen_of(tmp_path, body))) is None


@pytest.mark.parametrize("name", ["aten::bmm", "aten::mul"])
def test_an_outer_product_that_is_summed(tmp_path: Path, name: str):
    def body(trace: Trace) -> None:
        trace.op(name, [[512, 1024, 1], [512, 1, 1024]], 700.0, dtype="float32", host_us=10.0)
        given_ = ["", "[0]", "False", ""]
        trace.op("aten::sum", [[512, 1024, 1024], [], [], []], 700.0, dtype="float32", host_us=10.0, concrete=given_)

    finding = found("C05", certain(seen_of(tmp_path, body)))
    assert "outer product that is then summed" in finding.evidence[1]
    assert finding.at_stake_ns[1] > 1.3e6


def distances(trace: Trace, right: list[int], exponent: str = "2") -> None:
    concrete = {"aten::pow": ["", exponent], "aten::sum": ["", "[-1]", "False", ""]}
    pairs = [4096, 1024, 64]
    trace.op("aten::sub", [[4096, 1, 64], right], 400.0, dtype="float32", host_us=10.0)
    trace.op("aten::pow", [pairs, []], 600.0, dtype="float32", host_us=10.0, concrete=concrete["aten::pow"])
    trace.op("aten::sum", [pairs, [], [], []], 300.0, dtype="float32", host_us=10.0, concrete=concrete["aten::sum"])


def test_distances_from_the_differences_of_all_pairs_are_a_product_written_out(tmp_path: Path):
    finding = found("C05", certain(seen_of(tmp_path, lambda trace: distances(trace, [1, 1024, 64]))))
    assert finding.title == "pairwise distances computed from all differences"
    assert finding.where[0].op == "aten::sub"
    assert 1.2e6 < finding.at_stake_ns[1] < 1.3e6


def test_the_norm_of_the_differences_of_all_pairs_is_such_a_product_as_well(tmp_path: Path):
    def body(trace: Trace) -> None:
        trace.op("aten::sub", [[4096, 1, 64], [1, 1024, 64]], 400.0, dtype="float32", host_us=10.0)
        given_ = ["", "2", "[-1]", "False", ""]
        shapes = [[4096, 1024, 64], [], [], [], []]
        trace.op("aten::linalg_vector_norm", shapes, 300.0, dtype="float32", host_us=10.0, concrete=given_)

    assert found("C05", certain(seen_of(tmp_path, body))).where[0].op == "aten::sub"


@pytest.mark.parametrize(("right", "exponent"), [([4096, 1024, 64], "2"), ([1, 1, 64], "2"), ([1, 1024, 64], "3")])
def test_differences_that_are_no_pairs_or_no_squares_are_no_product(tmp_path: Path, right: list[int], exponent: str):
    assert check("C05", certain(seen_of(tmp_path, lambda trace: distances(trace, right, exponent)))) is None


def test_a_multiplication_that_broadcasts_a_row_is_no_outer_product(tmp_path: Path):
    def body(trace: Trace) -> None:
        trace.op("aten::mul", [[512, 1024, 1024], [1024]], 700.0, dtype="float32", host_us=10.0)
        given_ = ["", "[0]", "False", ""]
        trace.op("aten::sum", [[512, 1024, 1024], [], [], []], 700.0, dtype="float32", host_us=10.0, concrete=given_)

    assert check("C05", certain(seen_of(tmp_path, body))) is None


@given(st.lists(st.integers(1, 50), min_size=3, max_size=6))
def test_the_cheapest_order_is_that_of_trying_all(sizes: list[int]):
    """Multiply neighbours in every order, one after another."""
    cuts = range(1, len(sizes) - 1)
    costs = []
    for order in permutations(cuts):
        left, cost = list(enumerate(sizes)), 0
        for cut in order:
            at = [place for place, _ in left].index(cut)
            cost += 2 * left[at - 1][1] * left[at][1] * left[at + 1][1]
            del left[at]
        costs.append(cost)
    assert cheapest(tuple(sizes))[0] == min(costs)


def test_the_cheapest_path_of_an_einsum():
    """ij,jk,bk->bi with i = j = k = 100 and b = 1: (jk, bk) first, 2 x 2 x 100 x 100 FLOP."""
    operands = (frozenset({1, 2}), frozenset({2, 3}), frozenset({0, 3}))
    assert cheapest_path(operands, frozenset({0, 1}), (1, 100, 100, 100))[0] == 4 * 100 * 100
