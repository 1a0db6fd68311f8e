"""Laws that every rule keeps, on arguments of any kind."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.cost import names, price
from gobrrr.cost.registry import find
from gobrrr.model.work import DTYPE_BYTES, Collective, OpCall, Scalar, Tensor, TensorList
from tests.spread import examples

SIZES = st.one_of(st.integers(0, 9), st.sampled_from([-1, 64, 1024, 2**31, 2**63]))
DTYPES = st.sampled_from([*DTYPE_BYTES, "", "nonsense", "bytes2"])
TEXTS = st.one_of(
    st.sampled_from(
        ["", "True", "False", "0", "1", "2", "15", "-1", "[1, 1]", "[0]", "[]", "[True, True, False]", "inf"]
    ),
    st.sampled_from(["nan", "1e400", "[[1]]", "same", "b i->", "9" * 50]),
    st.text(max_size=8),
)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = tuple(draw(st.lists(SIZES, max_size=5)))
    strides = draw(st.none() | st.lists(st.integers(-2, 2**33), max_size=5).map(tuple))
    return Tensor(shape, draw(DTYPES), strides)


ARGUMENTS = st.one_of(tensors(), TEXTS.map(Scalar), st.lists(tensors(), max_size=3).map(tuple).map(TensorList))
NAMES = st.one_of(st.sampled_from([name.replace("*", "x") for name in names()]), st.text(max_size=12))
KERNELS = st.sampled_from(
    ["", "Memcpy HtoD (Pageable -> Device)", "Memset (Device)", "sgemm", "f<float>", "OpaqueType<2u>"]
)
COLLECTIVES = st.none() | st.builds(
    Collective,
    name=st.sampled_from(["allreduce", "allgather", "", "x"]),
    dtype=st.none() | DTYPES,
    in_elements=st.none() | st.integers(-1, 2**40),
    out_elements=st.none() | st.integers(-1, 2**40),
    group_size=st.none() | st.integers(-1, 9),
)
CALLS = st.builds(
    OpCall,
    name=NAMES,
    inputs=st.lists(ARGUMENTS, max_size=12).map(tuple),
    kernels=st.lists(KERNELS, max_size=2).map(tuple),
    copied_bytes=st.none() | st.integers(-1, 2**40),
    collective=COLLECTIVES,
)


@settings(max_examples=examples(600), deadline=None)
@given(CALLS, st.none() | st.integers(-1, 2**31))
def test_price_never_raises_and_is_never_negative(call: OpCall, blocks: int | None) -> None:
    work = price(call, blocks=blocks)
    figures = [work.matrix_flop, work.vector_flop, work.bytes_read, work.bytes_written]
    assert all(figure is None or (figure >= 0 and math.isfinite(figure)) for figure in figures)
    if not work.known:
        assert figures == [None] * 4
        assert work.note


def test_no_arguments_are_no_accident() -> None:
    counts = {name: price(OpCall(name=name.replace("*", "x"))).count for name in names()}
    # One element goes to the host whatever the arguments are.
    assert counts.pop("aten::_local_scalar_dense") == "bounded"
    assert {name: count for name, count in counts.items() if count not in ("unknown", "view")} == {}


ONE = Scalar("1")
PAIR = Scalar("[1, 1]")
LINEAR_IN_THE_BATCH = {
    "aten::linear": ((3, 5), (4, 5)),
    "aten::relu": ((3, 5),),
    "aten::native_layer_norm": ((3, 5),),
    "aten::_softmax": ((3, 5),),
    "aten::bmm": ((3, 4, 5), (3, 5, 2)),
    "aten::add": ((3, 5), (3, 5)),
    "aten::clone": ((3, 5),),
    "aten::scaled_dot_product_attention": ((3, 2, 4, 8),) * 3,
    "aten::conv2d": ((3, 2, 8, 8), (4, 2, 3, 3)),
}


@pytest.mark.parametrize("name", LINEAR_IN_THE_BATCH)
@given(batch=st.integers(1, 500))
@settings(max_examples=examples(20), deadline=None)
def test_flop_grow_with_the_batch(name: str, batch: int) -> None:
    weights = {"aten::linear", "aten::conv2d"}
    shapes = LINEAR_IN_THE_BATCH[name]
    tail = (Scalar(""), PAIR, PAIR, PAIR, ONE) if name == "aten::conv2d" else ()

    def flop(size: int) -> float:
        given = [Tensor((size, *shape[1:]), "float16") for shape in shapes]
        if name in weights:
            given[1] = Tensor(shapes[1], "float16")
        work = price(OpCall(name=name, inputs=(*given, *tail)))
        assert work.flop is not None
        return work.flop

    assert flop(batch) == batch * flop(1)


def test_every_overload_finds_its_rule() -> None:
    assert find("aten::mm.out") == find("aten::mm") == find("aten.mm.default") == find("aten.mm")


@pytest.mark.parametrize(
    "call",
    [
        OpCall(name="aten::relu", inputs=(Tensor((2**31, 2**31), "float32"),)),
        OpCall(name="aten::mm", inputs=(Tensor((2**40, 1), "float32"), Tensor((1, 2**40), "float32"))),  # its result
    ],
    ids=["too many bytes", "the result"],
)
def test_shapes_that_no_tensor_can_have_are_not_counted(call: OpCall) -> None:
    """Torch counts a tensor's elements and its storage's bytes in 64 bits: such a shape is a trace's damage."""
    work = price(call)
    assert (work.count, work.note) == ("unknown", "a shape that no tensor can have")


def test_the_largest_shape_that_a_tensor_can_have_is_counted() -> None:
    assert price(OpCall(name="aten::relu", inputs=(Tensor((2**60,), "float32"),))).count == "exact"
