"""Matrix products in whole tiles and waves, against counting the tiles one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gobrrr.analysis.pricing.tiles import LEAST_DEPTH, SPLITS, TILES, MatrixProduct, Tile, padded_flop, product_of
from gobrrr.cost import price
from gobrrr.model.work import OpCall, Scalar, Tensor
from tests.recordings import add, mm, tensor
from tests.spread import examples


def flop(call: OpCall, processors: int | None = 100) -> float:
    return padded_flop(call, price(call), processors)


def own(call: OpCall) -> float:
    found = price(call).matrix_flop
    assert found is not None
    return found


def dealt_out(batch: int, m: int, n: int, k: int, processors: int, tile: Tile, split: int) -> float:
    """Deal the tiles of every slice out to the processors one by one: as if all had worked as long as the busiest."""
    queues = [0] * processors
    place = 0
    for _ in range(batch * split):
        for _ in range(0, m, tile.rows):
            for _ in range(0, n, tile.columns):
                queues[place % processors] += 1
                place += 1
    depth = -(-k // split)
    return max(queues) * processors * depth * 2.0 * tile.rows * tile.columns / tile.rate


def by_hand(batch: int, m: int, n: int, k: int, processors: int) -> float:
    """The best tile and the best split, by trying all of them."""
    allowed = [one for one in SPLITS if one == 1 or k >= one * LEAST_DEPTH]
    ways = (dealt_out(batch, m, n, k, processors, tile, split) for tile in TILES for split in allowed)
    return max(2.0 * batch * m * n * k, min(ways))


SIZE = st.integers(1, 700)


@settings(max_examples=examples(80), deadline=None)
@given(SIZE, SIZE, st.one_of(SIZE, st.integers(1000, 9000)), st.integers(1, 150))
def test_it_is_the_best_of_all_ways_to_deal_the_tiles_out(m: int, n: int, k: int, processors: int):
    assert flop(mm(m, k, n), processors) == pytest.approx(by_hand(1, m, n, k, processors), rel=1e-12)


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 20), st.integers(1, 300), st.integers(1, 300), st.integers(1, 64), st.integers(1, 150))
def test_a_batch_is_so_many_products(batch: int, m: int, n: int, k: int, processors: int):
    call = OpCall(name="aten::bmm", inputs=(tensor(batch, m, k), tensor(batch, k, n)))
    assert flop(call, processors) == pytest.approx(by_hand(batch, m, n, k, processors), rel=1e-12)


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(1, 100_000), st.integers(1, 100_000), st.integers(1, 100_000), st.integers(1, 400))
def test_never_below_the_product_s_own(m: int, n: int, k: int, processors: int):
    call = mm(m, k, n)
    assert flop(call, processors) >= own(call)


@pytest.mark.parametrize("waves", [1, 2, 7])
@pytest.mark.parametrize(("rows", "columns"), [(128, 256), (256, 128), (192, 192), (256, 192)])
def test_whole_waves_of_whole_tiles_cost_nothing_more(rows: int, columns: int, waves: int):
    """10 x 10 tiles on 100 processors fill a wave; so do their multiples."""
    call = mm(10 * rows, 512, 10 * columns * waves)
    assert flop(call) == own(call)


def test_one_tile_too_many_costs_a_wave():
    """101 tiles of 256 x 128 on 100 processors, and no other tile does better than two waves' worth of the worst."""
    whole, more = mm(256 * 100, 512, 128), mm(256 * 100 + 1, 512, 128)
    assert flop(whole) == own(whole)
    assert flop(more) > 1.05 * own(more)


def test_a_row_costs_as_much_as_a_tile_of_rows():
    """A product with a vector still loads whole tiles: 64 rows of the smallest at half the rate."""
    one, more = mm(1, 512, 6400), mm(64, 512, 6400)
    assert flop(one) == flop(more) == 100 * 64 * 64 * 512 * 2 / 0.5


def test_a_deep_product_with_few_tiles_is_split():
    """Four tiles of 64 x 128, at 3/4 of the rate, would leave 96 of 100 processors idle; in 16 slices they leave 36."""
    deep, shallow = mm(128, 16 * LEAST_DEPTH, 256), mm(128, LEAST_DEPTH, 256)
    assert flop(deep) == pytest.approx(100 / 64 / 0.75 * own(deep))
    assert flop(shallow) > 10 * own(shallow)


def test_unknown_sizes_or_processors_leave_the_count_alone():
    call = mm(100, 100, 100)
    assert flop(call, None) == own(call)
    assert flop(call, 0) == own(call)
    assert padded_flop(add(4096), replace(price(call), matrix_flop=7.0), 100) == 7.0
    empty = mm(0, 16, 16)
    assert flop(empty) == 0.0


@pytest.mark.parametrize(
    ("call", "sizes"),
    [
        (mm(2, 3, 4), MatrixProduct(1, 2, 4, 3)),
        (OpCall(name="aten::addmm", inputs=(tensor(4), tensor(2, 3), tensor(3, 4))), MatrixProduct(1, 2, 4, 3)),
        (OpCall(name="aten::bmm", inputs=(tensor(5, 2, 3), tensor(5, 3, 4))), MatrixProduct(5, 2, 4, 3)),
        (
            OpCall(name="aten::baddbmm", inputs=(tensor(5, 2, 4), tensor(5, 2, 3), tensor(5, 3, 4))),
            MatrixProduct(5, 2, 4, 3),
        ),
        (OpCall(name="aten::mm.out", inputs=(tensor(2, 3), tensor(3, 4))), MatrixProduct(1, 2, 4, 3)),
        (OpCall(name="aten::_scaled_mm", inputs=(tensor(2, 3), tensor(3, 4))), MatrixProduct(1, 2, 4, 3)),
        (OpCall(name="aten::mm", inputs=(tensor(2, 3),)), None),
        (OpCall(name="aten::mm", inputs=(tensor(2, 3), Scalar("1"))), None),
        (OpCall(name="aten::mm", inputs=(tensor(2, 3), tensor(5, 3, 4))), None),
        (OpCall(name="aten::mm", inputs=(Tensor((), "float32"), Tensor((), "float32"))), None),
        (add(4), None),
    ],
)
def test_the_sizes_of_a_product(call: OpCall, sizes: MatrixProduct | None):
    assert product_of(call) == sizes
