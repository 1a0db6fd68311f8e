"""docs/rules.md runs as printed."""

from __future__ import annotations

import re
from pathlib import Path

from gobrrr import cost

PAGE = Path(__file__).resolve().parents[2] / "docs" / "rules.md"
REGISTERED = ("mylib::swiglu", "mylib::grouped_linear", "mylib::gather_experts*")


def test_the_page_runs_as_printed() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    try:
        exec("\n".join(blocks), {})  # the page's own assertions are in the last block
        given, weight = cost.Tensor((2, 3, 5), "bfloat16"), cost.Tensor((2, 4, 5), "bfloat16")
        work = cost.price(cost.OpCall(name="mylib::grouped_linear", inputs=(given, weight)))
        assert (work.matrix_flop, work.bytes_read, work.bytes_written) == (2 * 2 * 3 * 4 * 5, 2 * 70, 2 * 24)
        hidden = cost.price(cost.OpCall(name="mylib::gather_experts_v2", inputs=(given,)))
        assert (hidden.count, hidden.note) == ("unknown", "which experts are touched is not recorded")
    finally:
        for name in REGISTERED:
            cost.unregister(name)


def test_every_helper_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"cost\.(\w+)", PAGE.read_text(encoding="utf-8")))
    assert named <= set(cost.__all__) | {"rule"}
