"""Code that is broken for a narrow screen does the same when it is pasted."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gobrrr.report.pasted import folded

SDPA = "y = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # is_causal=True for a mask"
LOADER = "loader = DataLoader(data, sampler=Sampler(data, seed=3), batch_size=64, num_workers=8, pin_memory=True)"


@pytest.mark.parametrize("width", [30, 48, 68])
@pytest.mark.parametrize("line", [SDPA, LOADER, "x = ['a, b', 'c (', {'d': (1, 2, 3)}, 'e']  # f, g", "a = b + c"])
def test_what_is_pasted_is_the_same_program(line: str, width: int) -> None:
    parts = folded(line, width)
    assert ast.dump(ast.parse("\n".join(parts))) == ast.dump(ast.parse(line))


def test_it_fits_where_there_is_a_comma_to_break_at() -> None:
    assert folded(LOADER, 68) == [
        "loader = DataLoader(data, sampler=Sampler(data, seed=3),",
        "    batch_size=64, num_workers=8, pin_memory=True)",
    ]
    assert all(cell_len(one) <= 68 for one in folded(SDPA, 68))


def test_a_comment_goes_on_as_a_comment_and_stands_above_its_code() -> None:
    assert folded("    # one two three four", 16) == ["    # one two", "    # three four"]
    assert folded("    f(x)  # one two three", 16) == ["    # one two", "    # three", "    f(x)"]


@pytest.mark.parametrize("line", ["export SETTING=a-long-value,another-one", "f('unclosed, and long", "with open(a, b"])
def test_what_python_cannot_break_stays_whole(line: str) -> None:
    assert folded(line, 12) == [line]


@given(st.text(max_size=60), st.integers(8, 40))
def test_nothing_raises(line: str, width: int) -> None:
    assert folded(line.replace("\n", " "), width)
