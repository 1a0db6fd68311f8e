"""Explanations into a pipe: within 80 columns, the same words, the same code."""

from __future__ import annotations

import ast
import re
import textwrap

from gobrrr import api
from gobrrr.report import catalogues
from gobrrr.report.markdown import fitted

WIDTH = 80
CODES = [*catalogues.codes()["conditions"], *catalogues.codes()["treatments"]]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_every_explanation_fits_80_columns_and_loses_no_word() -> None:
    for code in CODES:
        whole = api.explain(code)
        text = fitted(whole, WIDTH)
        assert max(map(len, text.splitlines())) <= WIDTH, code
        assert BLOCK.sub("", text).split() == BLOCK.sub("", whole).split()
        for folded, own in zip(BLOCK.findall(text), BLOCK.findall(whole), strict=True):
            assert ast.dump(ast.parse(textwrap.dedent(folded))) == ast.dump(ast.parse(textwrap.dedent(own))), code


def test_a_formula_goes_on_below_its_right_side() -> None:
    line = "    cost (high) = " + "sum of t over the calls " * 4
    first, second, *_ = fitted(line, 60).splitlines()
    assert first.startswith("    cost (high) = sum")
    assert second.startswith(" " * 18)
    assert not second[18].isspace()


def test_items_stay_items_and_short_text_is_left_as_it_is() -> None:
    assert fitted("- one\n- two\n  goes on\n\n# Head\n\ntext", 80) == "- one\n- two goes on\n\n# Head\n\ntext"
