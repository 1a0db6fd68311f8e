"""Ops without a rule that torch calls pointwise or a view; the file that says so needs no torch to be read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gobrrr.cost import price
from gobrrr.cost.registry import find
from gobrrr.cost.tags import TAGS_FILE, tags
from gobrrr.model.work import OpCall, Scalar, Tensor


def test_a_pointwise_op_without_a_rule_is_counted_by_its_tag() -> None:
    assert find("aten::special_zeta") is None
    given = (Tensor((4, 1), "float32"), Tensor((3,), "float32"))
    work = price(OpCall(name="aten::special_zeta", inputs=given))
    assert (work.count, work.family, work.fusible) == ("exact", "pointwise", True)
    assert (work.vector_flop, work.bytes_read, work.bytes_written) == (12, 16 + 12, 48)
    # integers become floating point
    work = price(OpCall(name="aten.special_bessel_j0.default", inputs=(Tensor((8,), "int64"),)))
    assert (work.bytes_read, work.bytes_written) == (64, 32)


def test_what_was_seen_to_come_out_decides() -> None:
    given, out = Tensor((8,), "float32"), Tensor((8,), "float64")
    work = price(OpCall(name="aten::special_i1e", inputs=(given,), outputs=(out,)))
    assert work.bytes_written == 64


def test_a_view_without_a_rule_is_free() -> None:
    assert find("aten::_neg_view") is None
    call = OpCall(name="aten::_neg_view", inputs=(Tensor((8,), "float32"),))
    assert price(call).count == "view"
    work = price(OpCall(name="aten::_neg_view", inputs=call.inputs, kernels=("some_kernel",)))
    assert (work.count, "no kernel" in work.note) == ("unknown", True)


def test_conversions_of_the_decomposed_ops() -> None:
    call = OpCall(name="prims::convert_element_type", inputs=(Tensor((8,), "float32"), Scalar("15")))
    assert (price(call).bytes_read, price(call).bytes_written) == (32, 16)


def test_an_op_that_nobody_knows_is_unknown() -> None:
    work = price(OpCall(name="aten::no_such_op", inputs=(Tensor((8,), "float32"),)))
    assert (work.count, work.flop, work.bytes, work.note) == ("unknown", None, None, "no rule for aten::no_such_op")


def test_the_table_has_no_op_twice() -> None:
    assert not tags().pointwise & tags().view - {"aten::positive"}
    assert tags().torch


@pytest.mark.torch
def test_the_table_is_what_torch_says_in_this_process() -> None:
    """Of `aten`: what other tests load may add operations of torch's own to `prims`."""
    torch = pytest.importorskip("torch")
    if torch.__version__.partition("+")[0] != tags().torch:
        pytest.skip(f"made from torch {tags().torch}")
    from tools.make_op_tags import table

    made, kept = table(), json.loads(TAGS_FILE.read_text(encoding="utf-8"))
    for kind in ("pointwise", "view"):
        assert [one for one in made[kind] if one.startswith("aten::")] == [
            one for one in kept[kind] if one.startswith("aten::")
        ]


@pytest.mark.slow  # a process that loads torch
@pytest.mark.torch
def test_the_table_is_what_torch_says() -> None:
    torch = pytest.importorskip("torch")
    if torch.__version__.partition("+")[0] != tags().torch:
        pytest.skip(f"made from torch {tags().torch}")
    code = "import json; from tools.make_op_tags import table; print(json.dumps(table()))"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=root, capture_output=True, text=True)
    assert json.loads(done.stdout.splitlines()[-1]) == json.loads(TAGS_FILE.read_text(encoding="utf-8"))
