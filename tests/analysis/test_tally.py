"""FLOPs and bytes of steps that can be counted by hand, three ways each."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.analysis.pricing.tally import count, grouped
from gobrrr.model.work import OpCall, Scalar
from tests.recordings import add, item, mm, recorded, recording, relu, strange, tensor, view
from tests.spread import examples

N = 2**20
BF16 = 2
PRODUCT = 2 * 512**3
PRODUCT_BYTES = 3 * BF16 * 512**2


def test_products_and_pointwise_work():
    """Two products of 512^3, and three relus that read and write 2^20 numbers; a relu is one FLOP a number."""
    found = count(recording([mm(512, 512, 512), *[relu(N)] * 3, mm(512, 512, 512)]))
    assert found.flop_contraction == 2 * PRODUCT
    assert found.flop_model == found.flop_executed == found.flop_hardware
    assert found.flop_model == 2 * PRODUCT + 3 * N
    assert found.bytes_as_run == 2 * PRODUCT_BYTES + 3 * 2 * BF16 * N
    assert found.calls == {"exact": 5}
    assert found.unknown == {}
    assert (found.target, found.peak_bytes) == ("step.py:step", float(1 << 30))


def test_views_are_free_and_part_no_chain():
    plain, parted = count(recording([relu(N)] * 2)), count(recording([relu(N), view(N), relu(N)]))
    assert parted.bytes_as_run == plain.bytes_as_run == 4 * BF16 * N
    assert parted.bytes_fused == plain.bytes_fused == 2 * BF16 * N
    assert parted.calls == {"exact": 2, "view": 1}


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_chain_fused_reads_once_and_writes_once(length: int):
    found = count(recording([relu(N)] * length))
    assert found.bytes_as_run == length * 2 * BF16 * N
    assert found.bytes_fused == found.bytes_compulsory == 2 * BF16 * N


def test_in_training_the_intermediates_are_still_written():
    """Five relus, then a backward pass: four of the ten passes over the data are spared, the reads between them."""
    chain = [relu(N)] * 5
    backward = recorded(mm(512, 512, 512), phase="backward")
    found = count(recording([*chain, backward]))
    assert found.bytes_as_run - found.bytes_fused == 4 * BF16 * N
    assert found.bytes_as_run - found.bytes_compulsory == 8 * BF16 * N


def test_an_epilogue_is_spared_by_the_compulsory_bytes_only():
    """The relu behind a product: written and read again as run, neither if the product's kernel does it."""
    found = count(recording([mm(512, 512, 512), relu(512, 512)]))
    assert found.bytes_fused == found.bytes_as_run == PRODUCT_BYTES + 2 * BF16 * 512**2
    assert found.bytes_compulsory == found.bytes_as_run - 2 * BF16 * 512**2


def test_recomputed_work_is_hardware_s_alone():
    found = count(recording([mm(512, 512, 512), recorded(mm(512, 512, 512), phase="backward", recomputed=True)]))
    assert found.flop_model == found.flop_executed == found.flop_contraction == PRODUCT
    assert found.flop_hardware == 2 * PRODUCT
    assert found.bytes_as_run == 2 * PRODUCT_BYTES


def test_what_a_mask_leaves_out_is_executed_and_not_needed():
    found = count(recording([recorded(mm(512, 512, 512), needed=0.5)]))
    assert found.flop_model == found.flop_contraction == PRODUCT / 2
    assert found.flop_executed == found.flop_hardware == PRODUCT


def test_what_the_host_computes_or_waits_for_is_not_the_device_s():
    own = count(recording([relu(N)]))
    extra = [recorded(relu(N), place="host"), recorded(item(), waits=True)]
    assert count(recording([relu(N), *extra])) == own


def test_copies_over_the_link_are_no_bytes_of_the_device_s_memory():
    copy = recorded(OpCall(name="aten::_to_copy", inputs=(tensor(N),), outputs=(tensor(N),)), host_copy="HtoD")
    found = count(recording([relu(N), copy]))
    assert found.bytes_as_run == 2 * BF16 * N
    assert found.flop_model == N
    (row,) = [one for one in found.ops if one.op == "aten::_to_copy"]
    assert row.bytes == pytest.approx(BF16 * N)


def test_what_has_no_rule_is_named_and_never_zero():
    found = count(recording([strange(N), strange(N), relu(N), OpCall(name="mylib::other")]))
    assert found.unknown == {"mylib::strange": 2, "mylib::other": 1}
    assert found.calls == {"unknown": 3, "exact": 1}
    (row,) = [one for one in found.ops if one.op == "mylib::strange"]
    assert (row.flop, row.bytes, row.calls) == (None, None, 2)
    assert row.note


def test_rows_are_kinds_of_calls_with_most_flop_first():
    found = count(recording([relu(N), mm(512, 512, 512), relu(N), mm(64, 64, 64), mm(512, 512, 512)]))
    assert [(one.op, one.calls, one.flop) for one in found.ops] == [
        ("aten::mm", 2, 2 * PRODUCT), ("aten::relu", 2, 2 * N), ("aten::mm", 1, 2 * 64**3),
    ]  # fmt: skip
    assert found.ops[0].shapes.count("512") == 4
    assert sum(one.flop or 0.0 for one in found.ops) == found.flop_hardware


def test_an_empty_step_is_nothing():
    found = count(recording([]))
    assert (found.flop_model, found.bytes_as_run, found.bytes_fused, found.ops, found.calls) == (0, 0, 0, [], {})


def test_notes_of_the_door_are_kept():
    assert count(recording([relu(N)], notes=("as it was found",))).notes == ["as it was found"]


CALLS = st.sampled_from(
    [
        relu(64), relu(N), add(64), mm(8, 8, 8), mm(512, 512, 512), view(8), strange(8),
        recorded(mm(8, 8, 8), phase="backward", recomputed=True), recorded(mm(8, 8, 8), needed=0.5),
        OpCall(name="aten::_softmax", inputs=(tensor(64, 64), Scalar("-1"), Scalar("False"))),
        recorded(relu(64), phase="backward"), recorded(relu(8), place="host"),
    ]
)  # fmt: skip
STEPS = st.lists(CALLS, max_size=12)


@settings(max_examples=examples(200), deadline=None)
@given(STEPS)
def test_the_three_ways_are_ordered(calls: list[OpCall]):
    found = count(recording(calls))
    flop = [found.flop_contraction, found.flop_model, found.flop_executed, found.flop_hardware]
    moved = [found.bytes_compulsory, found.bytes_fused, found.bytes_as_run]
    for sums in (flop, moved):  # all known or, of a step in which nothing is, none
        known = [one for one in sums if one is not None]
        assert len(known) in (0, len(sums))
        assert known == sorted(known)
        assert all(one >= 0 for one in known)
    assert sum(found.calls.values()) == sum(one.calls for one in found.ops)


@settings(max_examples=examples(100), deadline=None)
@given(STEPS, STEPS)
def test_work_adds(one: list[OpCall], other: list[OpCall]):
    both, first, second = (count(recording(calls)) for calls in ([*one, *other], one, other))
    for field in ("flop_model", "flop_executed", "flop_hardware", "flop_contraction", "bytes_as_run"):
        parts = (getattr(first, field) or 0.0) + (getattr(second, field) or 0.0)
        assert (getattr(both, field) or 0.0) == pytest.approx(parts)
    most = (first.bytes_compulsory or 0.0) + (second.bytes_compulsory or 0.0)
    assert (both.bytes_compulsory or 0.0) <= most * (1 + 1e-12)


def test_what_is_alike_is_one_group():
    calls = [recorded(relu(8)), recorded(relu(8), phase="backward"), recorded(relu(8), recomputed=True)]
    groups, of_call = grouped(calls)
    assert len(groups) == 2
    assert of_call.tolist() == [0, 0, 1]


def test_a_step_of_unknown_operations_alone_has_no_sums() -> None:
    found = count(recording([recorded(OpCall(name="mylib::nobody_knows"))]))
    assert found.unknown == {"mylib::nobody_knows": 1}
    assert (found.flop_model, found.flop_contraction, found.bytes_as_run, found.bytes_fused) == (None,) * 4
