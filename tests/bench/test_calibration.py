"""The tables of predicted against measured: intervals by hand, what is left out, and what is set aside."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench import calibration
from bench.calibration import Point, Table, compared, entries, row_of, table, usual
from bench.calibration_fit import COVERED, DRAWN, NOISY, Interval, Sample, fit, judged, left_out, spreads
from gobrrr.analysis.replay.fitted import fitted
from gobrrr.analysis.replay.predictive import ReplayedSaving


def point(workload: str, measured: float, *, treatment: str = "compile", regime: str = "overhead",
          replay: Interval | None = None) -> Point:  # fmt: skip
    return Point(device="card", workload=workload, family="f", regime=regime, way=treatment, treatment=treatment,
                 step_ns=1e6, measured=measured, spread=0.01, verdict="helped",
                 replayed=None if replay is None else answer(*replay))  # fmt: skip


def answer(expected: float, low: float, high: float, *, touched: float = 0.9, mechanism: str = "compiled",
           device: str = "cuda") -> ReplayedSaving:  # fmt: skip
    return ReplayedSaving(expected, low, high, touched, mechanism, device)


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
    lines = compared([*points, point("w9", 0.2, treatment="tf32", replay=told)], lambda one: one.treatment)
    assert [(one.kind, one.column, one.told.n) for one in lines] == [
        ("compile", "replay", 3), ("compile", "usual", 3), ("compile", "calibrated", 3), ("tf32", "replay", 1),
        ("tf32", "calibrated", 1), ("all", "replay", 4), ("all", "usual", 3), ("all", "calibrated", 4),
    ]  # fmt: skip
    assert len(table(lines)) == 2 + len(lines)


# -- the fit ------------------------------------------------------------


def samples(count: int, off: float, **more: Any) -> list[Sample]:
    """Workloads whose measured savings lie evenly from -`off` to `off` scales beside 0.4."""
    one = answer(0.4, 0.4, 0.4, **more)
    return [Sample(f"{more}{at}", one, 0.4 + one.scale * off * (2 * at / (count - 1) - 1)) for at in range(count)]


def test_a_group_has_the_quantiles_of_its_residuals_drawn_to_those_of_all() -> None:
    wide, narrow = samples(31, 0.4), samples(11, 0.1, mechanism="graph")
    every, compiled, graph = spreads([*wide, *narrow], (0.1, 0.5, 0.9))
    assert (every.mechanism, compiled.mechanism, graph.mechanism) == ("", "compiled", "graph")
    alone = 0.08  # of -0.1 to 0.1 the tenth and the ninetieth
    assert graph.high == pytest.approx((11 * alone + DRAWN * every.high) / (11 + DRAWN), abs=1e-3)
    assert alone < graph.high < every.high < compiled.high
    assert graph.middle == pytest.approx(0.0, abs=1e-6)


def test_what_varied_too_much_is_not_fitted_on() -> None:
    quiet = samples(11, 0.1)
    loud = [replace(one, measured=5.0, spread=NOISY + 0.01) for one in samples(5, 0.1)]
    assert spreads([*quiet, *loud], (0.1, 0.5, 0.9)) == spreads(quiet, (0.1, 0.5, 0.9))


def test_a_workload_has_no_part_in_its_own_interval() -> None:
    alike = samples(21, 0.1)
    odd = Sample("odd", alike[0].replayed, 0.89)
    told = left_out([*alike, odd], (0.1, 0.5, 0.9))
    assert told[-1].high < 0.5
    assert told[0].high > 0.4
    again = left_out([*alike, replace(odd, measured=-5.0)], (0.1, 0.5, 0.9))
    assert again[-1] == told[-1]


def test_the_fit_covers_what_is_left_out_of_it() -> None:
    told = fit(samples(41, 0.3))
    assert judged(told.intervals, [one.measured for one in samples(41, 0.3)]).coverage >= COVERED
    assert all(group.left_out is not None for group in told.spreads)


def test_others_have_a_part_in_the_quantiles_and_none_in_their_levels() -> None:
    bench, others = samples(21, 0.2), samples(9, 0.3, device="cpu")
    assert {one.device for one in fit(bench, others).spreads} == {"cuda", "cpu"}
    assert fit(bench, others).levels == fit(bench).levels


def test_the_shipped_file_is_of_the_workloads_that_may_be_seen_and_says_what_it_rests_on() -> None:
    made, table_ = fitted(), msgspec.json.decode((calibration.RESULTS / "calibration.json").read_bytes(), type=Table)
    assert made.command == "python -m bench.calibration --fit"
    assert made.levels[0] < made.levels[1] < made.levels[2]
    assert {one.device for one in made.spreads} == {"cuda", "cpu"}
    for one in made.spreads:
        assert one.low < one.middle < one.high
        assert one.least <= one.most
        assert one.workloads <= one.points
        assert one.left_out is not None
    everything = {one.column: one.told for one in table_.lines if one.kind == calibration.ALL}
    assert everything["calibrated"] == made.left_out
    assert made.workloads == sum(1 for _ in entries(calibration.RESULTS.glob("treatments_*.json"), final=False))
    assert all(one.low <= one.value <= one.high and one.points for one in made.constants)
    # both baselines are beaten on the interval score, and the interval holds about what it says
    assert everything["calibrated"].score < min(everything["replay"].score, everything["usual"].score)
    assert everything["calibrated"].error < everything["usual"].error
    assert 0.7 <= everything["calibrated"].coverage <= 0.9


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
