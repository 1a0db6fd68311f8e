"""The expression language takes a small part of Python and refuses the rest in one line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gobrrr
from gobrrr.envelope.parse import MAX_CHARACTERS, Call, Constant, Name, names, parse
from gobrrr.errors import UsageError


def test_the_tree() -> None:
    assert parse("(x @ w).sum(-1, keepdim=True) * 2") == Call(
        "mul",
        (
            Call("sum", (Call("matmul", (Name("x"), Name("w"))), Constant(-1)), (("keepdim", Constant(True)),)),
            Constant(2),
        ),
    )
    assert parse("F.layer_norm(x, (8, 16))") == Call("layer_norm", (Name("x"), Constant((8, 16))))
    assert names(parse("b + a * b.cos()")) == ("b", "a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("__import__('os').system('true')", "unknown function '__import__'"),
        ("__import__(x)", "begins with an underscore"),
        ("x.__class__", "an attribute that is not called (.__class__)"),
        ("x.__class__()", "begins with an underscore"),
        ("().__class__.__bases__", "an attribute that is not called"),
        ("x.shape", "an attribute that is not called (.shape)"),
        ("x[0]", "indexing"),
        ("[y for y in x]", "a comprehension"),
        ("(lambda: x)()", "a lambda can't be called"),
        ("x if x else y", "a condition"),
        ("(x := 3)", "an assignment"),
        ("f'{x}'", "a string"),
        ("x.cos(*y)", "a starred argument"),
        ("x.cos(**y)", "** is not part"),
        ("x and y", "and/or"),
        ("not x", "the operator Not"),
        ("x << 2", "the operator LShift"),
        ("x < y < z", "compare two things"),
        ("x in y", "compare two things"),
        ("'text'", "str is not a number"),
        ("1j * x", "complex is not a number"),
        ("...", "ellipsis is not a number"),
        ("{x: 1}", "a dictionary"),
        ("x = 3", "not an expression"),
        ("import os", "not an expression"),
        ("x +", "not an expression"),
        ("", "not an expression"),
        ("x\ny", "not an expression"),
        ("x\x00", "not an expression"),
        ("_x + 1", "can't be the name of a tensor"),
        ("torch + 1", "can't be the name of a tensor"),
        ("torch.os.system(x)", "an attribute that is not called"),
        ("x * 99999999999999999999", "beyond 64 bits"),
        ("(x, y)", "whole numbers only"),
        ("x" * (MAX_CHARACTERS + 1), "2,001 characters"),
        ("x" + ".cos()" * 100, "nested deeper than 64"),
        ("-" * 100 + "x", "nested deeper than 64"),
        ("(" * 150 + "x" + ")" * 150 + "+", "not an expression"),
        ("[" * 100 + "]" * 100, "nested deeper than 64"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        gobrrr.calc(text, shape=8, on="h100")
    assert message in str(caught.value)


def refused_or_answered(text: str) -> None:
    try:
        found = gobrrr.calc(text, shape=(4, 4), on="h100")
    except UsageError:
        return
    assert found.fused.bytes <= found.unfused.bytes
    assert found.fused.launches <= found.unfused.launches
    assert found.fused.flop == found.unfused.flop


ATOMS = st.sampled_from(["x", "y", "w.t()", "2", "0.5", "-1", "True", "None", "(1, 2)", "x.cos()", "[0]"])
WRAPS = st.sampled_from(
    ["({} + {})", "({} * {})", "({} @ {})", "({} / {})", "({} ** {})", "({} < {})", "where({}, {}, x)"]
    + [f"{{}}.{name}()" for name in ("relu", "sum", "mean", "softmax", "t", "float", "half", "std", "max")]
    + ["{}.sum({})", "{}.softmax({})", "layer_norm({}, {})", "clamp({}, {})", "lerp({}, {}, 0.1)", "{}.mean(-1, {})"]
)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4) -> str:
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(ATOMS)
    wrap = draw(WRAPS)
    return wrap.format(*(draw(expressions(depth - 1)) for _ in range(wrap.count("{}"))))


@given(expressions())
def test_any_expression_is_answered_or_refused(text: str) -> None:
    refused_or_answered(text)


@given(st.text(alphabet="xyw.()+-*/@=,<>[]{}:_'\"\\ 019eEjfFlambdaort\n\t", max_size=60))
def test_any_text_is_answered_or_refused(text: str) -> None:
    refused_or_answered(text)


@given(st.text(max_size=200))
def test_any_unicode_is_answered_or_refused(text: str) -> None:
    refused_or_answered(text)
