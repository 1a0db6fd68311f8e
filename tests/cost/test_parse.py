"""Raw JSON as profilers write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.cost import dtype_name, parse_inputs
from gobrrr.model.work import Scalar, Tensor, TensorList


def test_a_matmul_with_bias() -> None:
    dims = b"[[768],[16384,768],[768,768],[],[]]"
    types = b'["c10::BFloat16","c10::BFloat16","c10::BFloat16","Scalar","Scalar"]'
    strides = b"[[1],[768,1],[1,768],[],[]]"
    concrete = b'["","","","1","1"]'
    assert parse_inputs(dims, types, strides, concrete) == (
        Tensor((768,), "bfloat16", (1,)),
        Tensor((16384, 768), "bfloat16", (768, 1)),
        Tensor((768, 768), "bfloat16", (1, 768)),
        Scalar("1"),
        Scalar("1"),
    )


def test_lists_optional_tensors_and_zero_dimensions() -> None:
    dims = b"[[[8,256],[8,100]],[],[],[],[2]]"
    types = b'["TensorList","Scalar","","float","ScalarList"]'
    concrete = b'["","2","","","[1, 1]"]'
    assert parse_inputs(dims, types, None, concrete) == (
        TensorList((Tensor((8, 256), ""), Tensor((8, 100), ""))),
        Scalar("2"),
        Scalar(""),
        Tensor((), "float32"),
        Scalar("[1, 1]"),
    )


def test_a_dropped_list_stays_a_list() -> None:
    assert parse_inputs(b"[[],[]]", b'["TensorList","Scalar"]', b"[[],[]]", b'["","0.9"]') == (
        TensorList(()),
        Scalar("0.9"),
    )


def test_sizes_alone_as_in_2021() -> None:
    assert parse_inputs(b"[[32,3,224,224],[],[[2],[3]]]", b"[]", None, None) == (
        Tensor((32, 3, 224, 224), ""),
        Scalar(""),
        TensorList((Tensor((2,), ""), Tensor((3,), ""))),
    )


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("float", "float32"), ("double", "float64"), ("c10::Half", "float16"), ("at::Half", "float16"),
        ("c10::BFloat16", "bfloat16"), ("long int", "int64"), ("long", "int64"), ("int", "int32"), ("bool", "bool"),
        ("unsigned char", "uint8"), ("signed char", "int8"), ("short int", "int16"),
        ("c10::Float8_e4m3fn", "float8_e4m3fn"), ("c10::complex<float>", "complex64"), ("Scalar", ""), ("", ""),
    ],
)  # fmt: skip
def test_spellings(spelling: str, name: str) -> None:
    assert dtype_name(spelling) == name


@pytest.mark.parametrize(
    "raw", [b"", b"[", b"{}", b"null", b"[[1,", b'"x"', b"[[1.5]]", b"[[true]]", b"\xff\xfe", b"[" * 5000]
)
def test_malformed(raw: bytes) -> None:
    parse_inputs(raw, b'["float"]', raw, raw)
    parse_inputs(b"[[2,3]]", raw, raw, raw)


@given(st.binary(max_size=40), st.binary(max_size=40), st.binary(max_size=40), st.binary(max_size=40))
def test_never_raises(dims: bytes, types: bytes, strides: bytes, concrete: bytes) -> None:
    assert isinstance(parse_inputs(dims, types, strides, concrete), tuple)


IMPOSSIBLE = (b"[[-1,5]]", b"[[8],[1%s]]" % (b"0" * 30), b"[[9000000000,9000000000]]", b"[[[8],[-8]]]")


@pytest.mark.parametrize("dims", IMPOSSIBLE)
def test_sizes_that_no_tensor_has_leave_no_arguments(dims: bytes) -> None:
    assert parse_inputs(dims, b'["float","float"]', None, None) == ()


def test_strides_that_no_tensor_has_are_unknown() -> None:
    assert parse_inputs(b"[[8,8]]", b'["float"]', b"[[-8,1]]", None) == (Tensor((8, 8), "float32"),)
