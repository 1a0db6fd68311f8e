"""The stored shares: which entry a call gets, one name for one kernel, and nothing in the shipped table is absurd."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.cost import names, price
from gobrrr.hardware import find
from gobrrr.hardware.efficiency import SAME_KERNELS, Share, ShareKey, canonical, keys, load
from gobrrr.model.work import OpCall
from tests.recordings import add, mm, relu, share, stored
from tests.spread import examples

KIND = ShareKey("mm", "odd", "matmul", "bfloat16")


# From the specific to the general


def test_the_keys_of_a_kind():
    assert keys(KIND) == (
        "mm.odd|bfloat16", "mm.odd", "mm|bfloat16", "matmul.odd|bfloat16", "matmul.odd", "mm", "matmul|bfloat16",
        "matmul", "",
    )  # fmt: skip
    assert keys(ShareKey("mm", "", "matmul", "bfloat16")) == ("mm|bfloat16", "mm", "matmul|bfloat16", "matmul", "")


def test_each_key_answers_where_no_more_specific_one_is():
    for place, key in enumerate(keys(KIND)):
        only = {one: share(fixed_ns=1000.0 + at) for at, one in enumerate(keys(KIND)) if at >= place}
        found, entry = stored(only).share(KIND)
        assert found == key
        assert entry.fixed_ns == only[key].fixed_ns


def test_what_is_not_in_the_table_gets_the_general_entry():
    assert stored({"add": share()}).share(ShareKey("mylib_op", "", "unknown", "float32"))[0] == ""


WORDS = st.text(alphabet="abc._", max_size=4)


@settings(max_examples=examples(200), deadline=None)
@given(WORDS.filter(bool), WORDS, WORDS, WORDS)
def test_keys_are_each_once_and_end_with_everything(op: str, variant: str, family: str, dtype: str):
    found = keys(ShareKey(op, variant, family, dtype))
    assert found[-1] == ""
    assert len(set(found)) == len(found)


# One kernel, one name


@pytest.mark.parametrize(
    ("dispatcher", "profiler"),
    [
        ("aten::convolution", "aten::cudnn_convolution"),
        ("aten::convolution", "aten::_conv_depthwise2d"),
        ("aten::_scaled_dot_product_flash_attention", "aten::_flash_attention_forward"),
        ("aten::_scaled_dot_product_flash_attention_backward", "aten::_flash_attention_backward"),
        ("aten::_scaled_dot_product_efficient_attention", "aten::_efficient_attention_forward"),
        ("aten::_scaled_dot_product_cudnn_attention", "aten::_cudnn_attention_forward"),
        ("aten::_to_copy", "aten::copy_"),
        ("aten::clone", "aten::copy_"),
        ("aten::native_batch_norm", "aten::cudnn_batch_norm"),
        ("aten::native_batch_norm_backward", "aten::cudnn_batch_norm_backward"),
        ("aten::relu", "aten::clamp_min_"),
        ("aten::embedding", "aten::index_select"),
        ("aten::stack", "aten::cat"),
        ("aten::zeros_like", "aten::fill_"),
        ("aten::zeros", "aten::zero_"),
        ("aten::add.Tensor", "aten::add_"),
        ("aten::linear", "aten::addmm"),
        ("aten::lstm.input", "aten::_cudnn_rnn"),
        ("mylib::op.default", "mylib::op"),
    ],
)
def test_the_dispatcher_s_and_the_profiler_s_name_of_a_kernel_agree(dispatcher: str, profiler: str):
    assert canonical(dispatcher) == canonical(profiler)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("aten::mm", "aten::addmm"),
        ("aten::convolution", "aten::convolution_backward"),
        ("aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_efficient_attention"),
        ("aten::native_batch_norm", "aten::native_layer_norm"),
        ("aten::__and__", "aten::__or__"),
        ("aten::add", "aten::_foreach_add"),
    ],
)
def test_other_kernels_have_other_names(one: str, other: str):
    assert canonical(one) != canonical(other)


def test_canonical_names_stay_as_they_are():
    for name in (*SAME_KERNELS.values(), *(canonical(one) for one in names())):
        assert canonical(name) == name


def test_the_words_that_stand_for_the_same_are_operations_that_are_counted():
    """A misspelt name would never match."""
    counted = {name.partition("::")[2].removesuffix("_") for name in names() if name.startswith("aten::")}
    stale = [one for one in SAME_KERNELS if one not in counted and price(OpCall(name=f"aten::{one}")).note == ""]
    assert stale == []


# The shipped table


SHARES = load().shares


def sane(one: Share) -> bool:
    shares = 0 < one.compute <= 1 and 0 < one.memory <= 1 and 0 < one.cached <= 4
    return shares and one.fixed_ns >= 500 and one.kernels >= 1 and one.spread >= 0 and one.points >= 6


def test_every_shipped_share_is_sane():
    assert [key for key, one in SHARES.items() if not sane(one)] == []


def test_the_shipped_table_has_everything_that_it_promises():
    table = load()
    assert "" in table.shares
    assert find(table.datasheet).name == table.datasheet
    assert find(table.device).name == table.datasheet
    assert 500 <= table.least_ns <= 2000  # an H100's shortest kernel
    assert 0 < table.step_spread < 0.5
    assert table.command.startswith("python -m bench.")
    assert all(0 < one <= 1 for one in table.measured_over_datasheet.values())
    assert {"memory", "bfloat16", "tf32"} <= set(table.measured_over_datasheet)


def test_every_shipped_key_can_be_reached():
    """Before the variant and the element type stands an operation's canonical name, or its family."""
    rules = [name.replace("*", "x") for name in names()]
    heads = {canonical(one) for one in rules} | {price(OpCall(name=one)).family for one in rules}
    stale = {key.split("|")[0].split(".")[0] for key in SHARES} - heads - {""}
    assert {one for one in stale if not one.startswith("_foreach_")} == set()  # one rule stands for all of those


@pytest.mark.parametrize(
    ("call", "key"),
    [(mm(64, 64, 64), "mm|bfloat16"), (mm(64, 64, 63), "mm.odd|bfloat16"), (add(64), "add|bfloat16"),
     (relu(64), "clamp_min|bfloat16")],
)  # fmt: skip
def test_common_calls_get_an_entry_of_their_own(call: OpCall, key: str):
    from gobrrr.analysis.pricing.expected import kind_of

    assert load().share(kind_of(call, price(call)))[0] == key


def test_an_odd_product_is_slower_than_an_even_one():
    """cuBLAS has no 16-byte loads for it: under a half of the rate (bench/results/h100_ops.json)."""
    assert SHARES["mm.odd|bfloat16"].compute < 0.5 * SHARES["mm|bfloat16"].compute
