"""Lists of tensors as a live run recorded them, where the profiler leaves out their types or all of them."""

from __future__ import annotations

import pytest

from gobrrr.analysis.pricing.recorded import Recorded
from gobrrr.model.work import OpCall, Scalar, Tensor, TensorList
from tests.recordings import recording


def joined(*lengths: int, dtype: str = "float32", name: str = "aten::cat") -> OpCall:
    items = tuple(Tensor((length, 8), dtype) for length in lengths)
    return OpCall(name=name, inputs=(TensorList(items), Scalar("0")))


SEEN = Recorded(
    recording([joined(4, 1), joined(9, 1, dtype="bfloat16"), joined(*[2] * 40, name="aten::_foreach_neg_")])
)


@pytest.mark.parametrize(("lengths", "dtype"), [((4, 1), "float32"), ((9, 1), "bfloat16")])
def test_the_types_are_those_of_the_call_with_the_same_sizes(lengths: tuple[int, ...], dtype: str):
    told = SEEN.complete(joined(*lengths, dtype=""))
    assert [one.dtype for one in told.tensors] == [dtype] * 2
    assert [one.shape for one in told.tensors] == [(length, 8) for length in lengths]
    assert told.inputs[1] == Scalar("0")


def test_a_list_that_was_dropped_is_the_only_one_of_its_operation():
    dropped = OpCall(name="aten::_foreach_neg_", inputs=(TensorList(()),), kernels=("CPU aten::_foreach_neg_",))
    told = SEEN.complete(dropped)
    assert len(told.tensors) == 40
    assert told.kernels == dropped.kernels
    # of two concatenations it may be either
    other = OpCall(name="aten::cat", inputs=(TensorList(()), Scalar("0")))
    assert SEEN.complete(other) is other


@pytest.mark.parametrize("call", [joined(7, 1, dtype=""), joined(4, 1, dtype="float16"), OpCall(name="aten::add")])
def test_what_was_not_seen_or_lacks_nothing_stays(call: OpCall):
    assert SEEN.complete(call) is call


def test_without_a_live_run_nothing_is_known():
    call = joined(4, 1, dtype="")
    assert Recorded(None).complete(call) is call
