"""A count on the terminal: every figure, and what is missing from them, within 80 columns."""

from __future__ import annotations

from gobrrr.model.counted import CountedOp, StepCounts
from gobrrr.report.counted import certainty, for_print


def counted(unknown: dict[str, int]) -> StepCounts:
    op = CountedOp(
        op="aten::mm", shapes="[4, 8] bfloat16, [8, 2] bfloat16", family="matmul", count="exact", calls=3,
        flop=384.0, bytes=336.0,
    )  # fmt: skip
    return StepCounts(
        target="file.py:\x1b[31mstep", flop_model=384.0, flop_executed=384.0, flop_hardware=512.0,
        flop_contraction=384.0, bytes_as_run=336.0, bytes_fused=300.0, bytes_compulsory=200.0, peak_bytes=1e9,
        calls={"exact": 3, "unknown": sum(unknown.values())}, unknown=unknown, ops=[op], notes=["a note"],
    )  # fmt: skip


def test_every_figure_stands_with_its_meaning() -> None:
    text = for_print(counted({}))
    for part in (
        "384 FLOP",
        "512 FLOP",
        "336 B",
        "300 B",
        "200 B",
        "1.00 GB",
        "All were counted",
        "mm [4, 8]",
        "a note",
    ):
        assert part in text


def test_no_control_character_and_no_long_line() -> None:
    lines = for_print(counted({f"mylib::{'long' * 30}{n}": n for n in range(1, 9)})).splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in "".join(lines)


def test_what_is_not_counted_is_named_with_how_often() -> None:
    text = certainty(counted({"mylib::op": 7}))
    assert "mylib::op (7)" in text
    assert "in none of the sums" in text
