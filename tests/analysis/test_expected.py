"""The time of one call: never faster than light, its shares and ceilings in it as documented, what is unknown said."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gobrrr.analysis.pricing.expected import NO_WORK_TIME, Expected, contiguous, expect, kind_of, parts_of
from gobrrr.cost import price
from gobrrr.hardware import efficiency, find
from gobrrr.hardware.efficiency import Efficiency
from gobrrr.hardware.match import known
from gobrrr.model.machine import Machine
from gobrrr.model.work import DTYPE_BYTES, OpCall, Scalar, Tensor, TensorList
from tests.recordings import (
    MATRIX_FLOP_PER_S,
    MEMORY_BYTES_PER_S,
    VECTOR_FLOP_PER_S,
    add,
    ceiling,
    machine,
    mm,
    relu,
    share,
    stored,
    strange,
    tensor,
    view,
)
from tests.spread import examples


def asked(call: OpCall, on: Machine | None = None, table: Efficiency | None = None) -> Expected:
    return expect(call, price(call), on or machine(), table or stored())


# By hand


def test_a_pointwise_operation_moves_its_bytes_at_a_share_of_the_bandwidth():
    """Two reads and one write of 64 Mi elements of 2 bytes at half of 2 TB/s, and 2 us."""
    moved = 3 * 2 * 2**26
    assert asked(add(2**26)).ns == pytest.approx(2000 + moved / (MEMORY_BYTES_PER_S / 2) * 1e9)


def test_a_product_of_whole_waves_runs_at_a_share_of_the_peak():
    """100 tiles of 256 x 128 on 100 processors: no edge, so 2 m n k at half of 1 PFLOP/s, and 2 us."""
    m, k, n = 2560, 8192, 1280
    assert asked(mm(m, k, n)).ns == pytest.approx(2000 + 2 * m * n * k / (MATRIX_FLOP_PER_S / 2) * 1e9)


def test_what_fits_half_the_cache_runs_at_the_cached_share():
    """6 MB with a cache of 12 MB: at the cached share (1) and not the memory's (1/2); of 6 MB: at the memory's."""
    moved = 3 * 2 * 10**6
    for size, reached in ((12e6, 1.0), (6e6, 0.5), (8e6, 0.75)):
        on = machine(cache_bytes=ceiling(size))
        assert asked(add(10**6), on).ns == pytest.approx(2000 + moved / (MEMORY_BYTES_PER_S * reached) * 1e9)


def test_a_tiny_call_takes_the_fixed_part_or_the_least_that_was_seen():
    assert asked(add(1)).ns == pytest.approx(2000, rel=1e-3)
    assert asked(add(1), table=stored(least_ns=3500.0)).ns == 3500.0


def test_a_share_that_promises_too_much_is_held_by_the_floor():
    """Shares above what exists (a faulty table) still give no time below the roofline."""
    fast = stored({"": share(fixed_ns=0.0, compute=40.0, memory=40.0, cached=40.0)}, least_ns=0.0)
    assert asked(add(2**26), table=fast).ns == pytest.approx(3 * 2 * 2**26 / MEMORY_BYTES_PER_S * 1e9)
    assert asked(mm(2560, 8192, 1280), table=fast).ns == pytest.approx(2 * 2560 * 8192 * 1280 / MATRIX_FLOP_PER_S * 1e9)


def test_the_most_specific_share_counts_and_names_the_kind():
    table = stored({"add": share(fixed_ns=5000.0, spread=0.4), "add|bfloat16": share(fixed_ns=7000.0, spread=0.7)})
    assert (asked(add(1), table=table).kind, asked(add(1), table=table).spread) == ("add|bfloat16", 0.7)
    assert asked(add(1, dtype="float32"), table=table).kind == "add"
    assert asked(relu(1), table=table).kind == ""


def test_kernels_are_whole_and_at_least_one():
    for given_, whole in ((0.2, 1), (1.0, 1), (2.6, 3), (402.0, 402)):
        assert asked(add(1), table=stored({"": share(kernels=given_)})).kernels == whole


# What is free, what is unknown


@pytest.mark.parametrize("call", [view(8, 8), OpCall(name="aten::t", inputs=(tensor(8, 8),))])
def test_views_are_free(call: OpCall):
    assert asked(call) == NO_WORK_TIME
    assert (NO_WORK_TIME.ns, NO_WORK_TIME.kernels, NO_WORK_TIME.guessed) == (0.0, 0, False)


def test_unknown_work_is_guessed_as_moving_its_data_once_and_says_so():
    """2 x 2^24 elements of 2 bytes at half the bandwidth."""
    found = asked(strange(2**24))
    assert found.guessed
    assert found.ns == pytest.approx(2000 + 2 * 2 * 2**24 / (MEMORY_BYTES_PER_S / 2) * 1e9)
    assert not asked(add(2**24)).guessed


def test_unknown_work_with_lists_counts_every_tensor():
    one = tensor(2**20, dtype="float32")
    call = OpCall(name="mylib::all", inputs=(TensorList((one, one, one)), Scalar("1")), outputs=(one,))
    assert asked(call).ns == pytest.approx(2000 + 4 * 4 * 2**20 / (MEMORY_BYTES_PER_S / 2) * 1e9)


def test_a_machine_without_a_ceiling_gives_the_fixed_part():
    bare = Machine(name="bare")
    assert asked(add(2**20), bare).ns == 2000.0
    assert asked(mm(512, 512, 512), bare).ns == 2000.0


# Ceilings


RAISED: list[tuple[str, Any]] = [
    ("matrix_flop_per_s", {"bfloat16": ceiling(2 * MATRIX_FLOP_PER_S)}),
    ("vector_flop_per_s", {"float32": ceiling(2 * VECTOR_FLOP_PER_S), "float64": ceiling(VECTOR_FLOP_PER_S)}),
    ("memory_bytes_per_s", ceiling(2 * MEMORY_BYTES_PER_S)),
]


@pytest.mark.parametrize(("field", "value"), RAISED, ids=lambda one: one if isinstance(one, str) else "")
@pytest.mark.parametrize("call", [mm(4096, 4096, 4096), mm(8, 4096, 4096), add(2**26), strange(2**24)], ids=str)
def test_a_higher_ceiling_never_slows_a_call(field: str, value: Any, call: OpCall):
    assert asked(call, replace(machine(), **{field: value})).ns <= asked(call).ns


def test_the_ceiling_that_binds_is_the_one_that_counts():
    compute, memory = mm(4096, 4096, 4096), add(2**26)
    for call, field in ((compute, "matrix_flop_per_s"), (memory, "memory_bytes_per_s")):
        raised = dict(RAISED)[field]
        assert asked(call, replace(machine(), **{field: raised})).ns < 0.6 * asked(call).ns


def test_a_measured_ceiling_counts_for_as_much_of_the_datasheet_s_as_it_was_of_that_card_s():
    """The reference card measured 80 % of its sheet: a card that measures 80 % of the same sheet is that card."""
    table = stored(measured_over_datasheet={"memory": 0.8, "bfloat16": 0.75})
    sheet = machine()
    same = machine(
        memory_bytes_per_s=ceiling(0.8 * MEMORY_BYTES_PER_S, "measured"),
        matrix_flop_per_s={"bfloat16": ceiling(0.75 * MATRIX_FLOP_PER_S, "measured")},
    )
    better = replace(same, memory_bytes_per_s=ceiling(0.88 * MEMORY_BYTES_PER_S, "measured"))
    call = add(2**28)
    assert asked(call, same, table).ns == pytest.approx(asked(call, sheet, table).ns)
    assert asked(mm(2560, 8192, 1280), same, table).ns == pytest.approx(asked(mm(2560, 8192, 1280), sheet, table).ns)
    assert asked(call, better, table).ns - 2000 == pytest.approx((asked(call, sheet, table).ns - 2000) / 1.1)


def test_a_measured_ceiling_without_a_reference_stands_as_it_is():
    on = machine(memory_bytes_per_s=ceiling(MEMORY_BYTES_PER_S / 2, "measured"))
    assert asked(add(2**26), on).ns == pytest.approx(2000 + 3 * 2 * 2**26 / (MEMORY_BYTES_PER_S / 4) * 1e9)


# Work beside an operation's own kernel


def layer_norm(data: Tensor) -> OpCall:
    width = data.shape[-1]
    weight = tensor(width, dtype=data.dtype)
    inputs = (data, Scalar(f"[{width}]"), weight, weight, Scalar("1e-05"))
    return OpCall(name="aten::native_layer_norm", inputs=inputs)


def test_a_norm_copies_a_turned_operand_into_rows_first():
    """Read and written once more, as a copy does: 2 x 2 bytes x 2^24, and the copy's own 2 us."""
    shape = (16, 1024, 1024)
    turned = Tensor(shape, "bfloat16", (1024 * 1024, 1, 1024))
    more = asked(layer_norm(turned)).ns - asked(layer_norm(tensor(*shape))).ns
    assert more == pytest.approx(2000 + 2 * 2 * math.prod(shape) / (MEMORY_BYTES_PER_S / 2) * 1e9)


def test_other_operations_take_a_turned_operand_as_it_is():
    turned = Tensor((16, 1024, 1024), "bfloat16", (1024 * 1024, 1, 1024))
    call = OpCall(name="aten::relu", inputs=(turned,))
    assert asked(call).ns == asked(replace(call, inputs=(tensor(16, 1024, 1024),))).ns


def test_zeros_that_an_operation_fills_beside_its_kernel_are_a_fill_of_their_own():
    """A recorder sees embedding_dense_backward whole: its table of 2^16 x 1024 is zeroed before the rows are added."""
    gradient, indices = tensor(64, 1024, dtype="float32"), tensor(64, dtype="int64")
    inputs = (gradient, indices, Scalar(str(2**16)), Scalar("-1"), Scalar("False"))
    alone = OpCall(name="aten::embedding_dense_backward", inputs=inputs)
    whole = replace(alone, outputs=(tensor(2**16, 1024, dtype="float32"),))
    beside = price(whole).bytes - price(alone).bytes  # type: ignore[operator]
    assert beside >= 0
    more = 2000 + beside / (MEMORY_BYTES_PER_S / 2) * 1e9 if beside else 0.0
    assert asked(whole).ns == pytest.approx(asked(alone).ns + more)


@pytest.mark.parametrize(("shape", "steps"), [((), ()), ((5,), (1,)), ((2, 3, 4), (12, 4, 1)), ((2, 0, 4), (4, 4, 1))])
def test_strides_in_rows(shape: tuple[int, ...], steps: tuple[int, ...]):
    assert contiguous(shape) == steps


def test_a_copy_is_told_apart_by_both_its_types():
    cast = OpCall(name="aten::_to_copy", inputs=(tensor(8),), outputs=(tensor(8, dtype="float32"),))
    into = OpCall(name="aten::copy_", inputs=(tensor(8), tensor(8, dtype="float32")))
    assert kind_of(cast, price(cast)).dtype == "bfloat16>float32"
    assert kind_of(into, price(into)).dtype == "float32>bfloat16"
    assert kind_of(mm(8, 8, 8), price(mm(8, 8, 8))).dtype == "bfloat16"


def test_a_recurrence_pays_its_fixed_part_every_step():
    parts = parts_of(add(8), price(add(8)), machine())
    one, many = parts._replace(repeats=1), parts._replace(repeats=50)
    assert many.time(share()) - one.time(share()) == pytest.approx(49 * 2000)


# Laws, over shapes, element types and every machine of the table


MACHINES = st.sampled_from(known()).map(find)
SIZES = st.one_of(st.integers(1, 130), st.sampled_from([256, 1000, 1024, 4096, 50257, 65536]))
TYPES = st.sampled_from(["bfloat16", "float16", "float32", "float64", "int8", "tf32"])


@st.composite
def calls(draw: st.DrawFn) -> OpCall:
    dtype = draw(TYPES)
    m, k, n = draw(SIZES), draw(SIZES), draw(SIZES)
    kind = draw(st.sampled_from(["mm", "addmm", "bmm", "add", "relu", "sum", "softmax", "norm", "copy", "fill", "cat"]))
    data = tensor(m, k, dtype=dtype)
    if kind == "mm":
        return mm(m, k, n, dtype)
    if kind == "addmm":
        return OpCall(name="aten::addmm", inputs=(tensor(n, dtype=dtype), data, tensor(k, n, dtype=dtype)))
    if kind == "bmm":
        return OpCall(name="aten::bmm", inputs=(tensor(3, m, k, dtype=dtype), tensor(3, k, n, dtype=dtype)))
    if kind == "add":
        turned = Tensor((m, k), dtype, (1, m)) if draw(st.booleans()) else data
        return OpCall(name="aten::add", inputs=(data, turned, Scalar("1")))
    if kind == "sum":
        return OpCall(name="aten::sum", inputs=(data, Scalar(f"[{draw(st.integers(-2, 1))}]"), Scalar("False")))
    if kind == "softmax":
        return OpCall(name="aten::_softmax", inputs=(data, Scalar("-1"), Scalar("False")))
    if kind == "norm":
        return layer_norm(tensor(4, m, k, dtype=dtype))
    if kind == "cat":
        return OpCall(name="aten::cat", inputs=(TensorList((data, data)), Scalar("0")))
    if kind == "fill":
        return OpCall(name="aten::fill_", inputs=(data, Scalar("0")))
    return OpCall(name="aten::copy_" if kind == "copy" else "aten::relu", inputs=(data, data)[: 1 + (kind == "copy")])


def light_ns(call: OpCall, on: Machine) -> float:
    """The roofline by hand: FLOPs at the peak of their unit; bytes at the bandwidth, one cache full of them free."""
    work = price(call)
    compute = 0.0
    if work.matrix_flop and work.matrix_dtype in on.matrix_flop_per_s:
        compute = work.matrix_flop / on.matrix_flop_per_s[work.matrix_dtype].value
    spared = on.cache_bytes.value if on.cache_bytes is not None else 0.0
    moved = max((work.bytes or 0.0) - spared, 0.0)
    return max(compute, moved / on.memory_bytes_per_s.value if on.memory_bytes_per_s is not None else 0.0) * 1e9


@settings(max_examples=examples(600), deadline=None)
@given(calls(), MACHINES)
def test_never_below_the_speed_of_light(call: OpCall, on: Machine):
    found = expect(call, price(call), on, efficiency.load())
    assert found.ns >= light_ns(call, on) * (1 - 1e-12)
    assert math.isfinite(found.ns)
    assert found.ns >= 0
    assert found.kernels >= 1
    assert found.kind in efficiency.load().shares


@settings(max_examples=examples(300), deadline=None)
@given(calls(), MACHINES, st.sampled_from(["matrix", "vector", "memory"]), st.floats(1.0, 8.0))
def test_no_ceiling_that_rises_slows_a_call(call: OpCall, on: Machine, which: str, factor: float):
    def raised(one: Any) -> Any:
        return replace(one, value=one.value * factor)

    if which == "memory":
        better = replace(on, memory_bytes_per_s=raised(on.memory_bytes_per_s))
    else:
        field = f"{which}_flop_per_s"
        better = replace(on, **{field: {key: raised(one) for key, one in getattr(on, field).items()}})
    table = efficiency.load()
    assert expect(call, price(call), better, table).ns <= expect(call, price(call), on, table).ns * (1 + 1e-12)


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(1, 2**28), st.integers(1, 2**28), st.sampled_from(["bfloat16", "float32"]))
def test_more_elements_never_take_less_time_within_a_kind(one: int, other: int, dtype: str):
    """On the round machine without a cache, where nothing but size differs."""
    small, large = sorted((one, other))
    assert asked(relu(small, dtype=dtype)).ns <= asked(relu(large, dtype=dtype)).ns


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 8), st.integers(1, 8))
def test_a_larger_product_never_takes_less_time_within_a_kind(m: int, n: int, more_m: int, more_n: int):
    """Tiles and waves only ever add: along m, n and (below the first split) k."""
    table = stored()
    small, large = mm(8 * m, 512, 8 * n), mm(8 * m * more_m, 512, 8 * n * more_n)
    assert asked(small, table=table).ns <= asked(large, table=table).ns * (1 + 1e-12)
    assert asked(mm(8 * m, 512, 8 * n)).ns <= asked(mm(8 * m, 1024, 8 * n)).ns


def test_every_element_type_is_priced_on_every_machine():
    for name in known():
        for dtype in DTYPE_BYTES:
            found = expect(mm(64, 64, 64, dtype), price(mm(64, 64, 64, dtype)), find(name), efficiency.load())
            assert math.isfinite(found.ns)
            assert found.ns > 0


def test_the_shipped_shares_give_a_large_product_on_an_h100():
    """aten::mm of 8192^3 in bfloat16 took 1.40 to 1.47 ms there (bench/results/h100_ops.json)."""
    call = mm(8192, 8192, 8192)
    assert expect(call, price(call), find("h100"), efficiency.load()).ns == pytest.approx(1.435e6, rel=0.15)
