"""The tables of predicted against measured: intervals by hand, what is left out, and what is set aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import calibration
from bench.calibration import Interval, Point, entries, row_of, table, usual


def point(workload: str, measured: float, *, treatment: str = "compile", regime: str = "overhead",
          replay: Interval | None = None) -> Point:  # fmt: skip
    return Point(device="card", workload=workload, family="f", regime=regime, way=treatment, treatment=treatment,
                 step_ns=1e6, measured=measured, spread=0.01, verdict="helped", replay=replay)  # fmt: skip


def test_an_interval_is_scored_by_its_width_and_by_ten_times_what_lies_outside() -> None:
    told = Interval(0.3, 0.2, 0.4)
    assert told.score(0.25) == pytest.approx(0.2)
    assert told.score(0.5) == pytest.approx(0.2 + 10 * 0.1)
    assert told.score(0.1) == pytest.approx(0.2 + 10 * 0.1)
    assert told.covers(0.4)
    assert not told.covers(0.41)


def test_a_row_is_of_what_is_predicted_alone() -> None:
    row = row_of([Interval(0.3, 0.2, 0.4), None, Interval(0.1, 0.0, 0.2)], [0.35, 0.9, 0.5])
    assert row is not None
    assert (row.n, row.coverage) == (2, 0.5)
    assert row.error == pytest.approx((0.05 + 0.4) / 2)
    assert row.width == pytest.approx(0.2)
    assert row.score == pytest.approx((0.2 + 0.2 + 10 * 0.3) / 2)
    assert row_of([None], [0.1]) is None


def test_what_is_usual_leaves_the_workload_out() -> None:
    others = [point(f"w{at}", at / 10) for at in range(1, 6)]
    mine = [point("mine", 0.9), point("mine", 0.95)]
    found = usual(mine[0], [*others, *mine])
    assert found is not None
    assert found.expected == pytest.approx(0.3)
    assert (found.low, found.high) == (pytest.approx(0.14), pytest.approx(0.46))  # linear between 0.1 to 0.5
    assert usual(mine[0], mine) is None


def test_what_is_usual_is_of_the_same_regime_where_there_are_enough() -> None:
    alike = [point(f"a{at}", 0.5) for at in range(calibration.FEW)]
    others = [point(f"b{at}", 0.1, regime="compute") for at in range(9)]
    few = usual(point("mine", 0.0), [*alike[1:], *others])
    enough = usual(point("mine", 0.0), [*alike, *others])
    assert few is not None
    assert enough is not None
    assert few.expected == pytest.approx(0.1)
    assert enough.expected == pytest.approx(0.5)


def test_the_table_has_a_line_for_each_treatment_and_column_and_for_all() -> None:
    told = Interval(0.3, 0.2, 0.4)
    points = [point(f"w{at}", 0.3, replay=told) for at in range(3)]
    lines = table([*points, point("w9", 0.2, treatment="tf32", replay=told)], lambda one: one.treatment)
    kinds = [tuple(cell.strip() for cell in line.split("|")[1:4]) for line in lines[2:]]
    assert kinds == [("compile", "replay", "3"), ("compile", "usual", "3"), ("tf32", "replay", "1"),
                     ("all", "replay", "4"), ("all", "usual", "3")]  # fmt: skip


def results(folder: Path, **more: Any) -> Path:
    path = folder / "treatments_card.json"
    (folder / path.stem).mkdir()
    for name in ("seen", "aside", "bare"):
        if name != "bare":
            (folder / path.stem / f"{name}.profile.xz").write_bytes(b"")
    workloads = {name: {"ways": []} for name in ("seen", "aside", "bare")}
    record = {"device": "card", "held_back": ["aside"], "workloads": workloads, **more}
    path.write_text(json.dumps(record), encoding="utf-8")
    return path


def test_what_is_set_aside_is_looked_at_only_when_asked_for(tmp_path: Path) -> None:
    path = results(tmp_path)
    assert [name for _, name, _, _ in entries([path], final=False)] == ["seen"]
    assert [name for _, name, _, _ in entries([path], final=True)] == ["aside"]
