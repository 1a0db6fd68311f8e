from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gobrrr.model.treated import Advised, Errors, LedgerErrors, Numerics, Treated, Untried
from gobrrr.report import treated as report
from gobrrr.report.layout import ASCII, UNICODE, Page, length, plain
from gobrrr.trials.choosing import SearchOptions
from gobrrr.trials.ledger import Ledger
from gobrrr.trials.treat import diagnosis_of, run
from tests.trials.benches import FakeBench, candidate


def treated(bench: FakeBench | None = None, **changes: Any) -> Treated:
    ways = [candidate("fused-optimizer", 0.4, code="optimizer = torch.optim.AdamW(p, fused=True)"),
            candidate("compile", 0.3), candidate("gc-freeze", None)]  # fmt: skip
    bench = bench or FakeBench(ways, saved={"fused-optimizer": 0.35}, verdicts={"compile": "inconclusive"})
    found = run(bench, "w.py:workload", SearchOptions(), Ledger(Path("/dev/null/none")))
    return msgspec.structs.replace(found, notes=(), **changes)


def text(found: Treated, width: int = 80) -> str:
    return plain(report.lines(found, Page(width=width)))


def row(found: Treated, way: str) -> str:
    return next(line for line in text(found).splitlines() if line.lstrip(" +").startswith(way))


def test_a_row_has_what_was_predicted_measured_and_off() -> None:
    assert row(treated(), "fused-optimizer").split() == [
        "+", "fused-optimizer", "40", "(35", "to", "45)", "35", "+5.0", "-", "-", "helped",
    ]  # fmt: skip


def test_a_way_in_the_place_of_another_says_so_and_the_other_is_kept_no_more() -> None:
    ways = [candidate("compile", 0.4), candidate("compile:graphs", 0.3, as_if=("compile", "cuda-graph"))]
    found = treated(FakeBench(ways, saved={"compile": 0.3, "compile:graphs": 0.4}))
    shown = text(found).splitlines()
    at = next(number for number, line in enumerate(shown) if line.startswith(" + compile:graphs"))
    assert shown[at + 1].strip() == "in place of compile, and measured against it"
    assert row(found, "compile ").startswith("   compile ")


def test_what_is_not_known_is_never_a_number() -> None:
    assert row(treated(), "gc-freeze").split()[1:] == ["unknown", "0", "-", "-", "-", "no", "change"]
    assert row(treated(), "compile").split()[5:] == ["-", "-", "-", "-", "unclear"]


def test_the_head_says_how_much_faster_the_step_is() -> None:
    first, second, *_ = text(treated()).splitlines()
    assert first.startswith(" w.py:workload · NVIDIA")
    assert "1.00 ms a step → 650 us with fused-optimizer: 1.54 times as fast (3 trials" in second


def test_nothing_kept_is_said() -> None:
    assert "nothing that was tried is worth keeping" in text(treated(FakeBench([candidate("a")])))
    assert "nothing was tried" in text(treated(FakeBench([])))


def test_trials_without_a_verdict_are_not_called_worthless() -> None:
    one = treated(FakeBench([candidate("a")]))
    trials = [replace(trial, verdict="inconclusive") for trial in one.trials]
    said = text(replace(one, trials=trials))
    assert "no trial was conclusive" in said
    assert "worth keeping" not in said


def test_the_code_to_paste_is_there() -> None:
    assert "optimizer = torch.optim.AdamW(p, fused=True)" in text(treated())


def test_a_line_of_code_is_never_cut() -> None:
    assert "x" * 200 in text(treated(code="x" * 200))


def test_advice_has_its_line_and_is_said_to_be_measured_by_nothing() -> None:
    one = Advised(
        treatment="remove-sync", finding="O02", where="train.py(12): step", how="loss.detach()", code="c",
        predicted_saving_ns=(1e5, 2e5),
    )  # fmt: skip
    shown = text(treated(advice=(one,)))
    assert "not measured" in shown
    assert "remove-sync (O02) at train.py(12): step: 100 to 200 us" in shown
    assert "loss.detach()" in shown


def test_what_was_not_tried_is_told_by_reason_and_the_rest_is_counted() -> None:
    left = tuple(Untried(way=f"way{at}", why=f"why{at // 2}") for at in range(70))
    shown = text(treated(untried=left))
    assert "way0, way1: why0" in shown
    assert "way58, way59: why29" in shown
    assert "and 10 more, for 5 other reasons: --json" in shown


def test_many_names_are_never_without_their_reason() -> None:
    left = tuple(Untried(way=f"a-treatment:way{at}", why="left out by --only") for at in range(30))
    shown = text(treated(untried=left)).split("Not tried")[1]
    assert "left out by --only" in " ".join(shown.split())
    assert "and 2" in shown
    assert len(shown.strip().splitlines()) == 2


@pytest.mark.parametrize(
    ("expected", "low", "high", "said"),
    [
        (0.17, 0.0, 0.42, "17 (0 to 42)"),
        (-0.005, -0.10, 0.25, "-0.5 (-10..25)"),
        (-0.12, -1.0, 1.0, "-12 (-100..100)"),
        (-0.095, -0.097, -0.093, "-9.5 (-10..-9)"),
    ],
)
def test_an_interval_is_never_cut(expected: float, low: float, high: float, said: str) -> None:
    one = treated().trials[0]
    one = msgspec.structs.replace(one, expected_ns=expected * 1e6, predicted_saving_ns=(low * 1e6, high * 1e6))
    assert report.predicted([one]) == [said]
    assert len(said) <= report.PREDICTED


def test_what_was_not_timed_at_once_in_this_run_is_about() -> None:
    ways = [candidate("a", 0.4), candidate("b", 0.3)]
    bench = FakeBench(ways, saved={"a": 0.3, "b": 0.2})
    whole = treated(bench)
    assert "about" not in report.headline(whole)
    apart = msgspec.structs.replace(whole, together=None)
    assert report.headline(apart).startswith("1.00 ms a step -> about 600 us with a + b: about 1.67 times as fast "
                                             "(not timed together)")  # fmt: skip


def test_what_rests_on_trials_of_the_ledger_says_so(tmp_path: Path) -> None:
    for said in (False, True):
        bench = FakeBench([candidate("a", 0.4)], saved={"a": 0.3})
        found = run(bench, "w.py:workload", SearchOptions(), Ledger.open(tmp_path))
        assert ("about" in report.headline(found)) is said
        assert ("(from trials in the ledger)" in report.headline(found)) is said


def test_an_interval_that_earlier_trials_moved_is_shown_with_the_one_before() -> None:
    (trial, *_) = treated().trials
    assert not [one for one in report.told(trial) if "earlier trials" in one]
    moved = msgspec.structs.replace(trial, predicted_saving_ns=(0.1e6, 0.5e6), replayed_saving_ns=(0.35e6, 0.45e6))
    assert "the interval is 10 to 50 with earlier trials in the ledger, 35 to 45 without them" in report.told(moved)


def test_the_ledger_explains_each_of_its_columns(tmp_path: Path) -> None:
    from gobrrr.trials.door import ledger

    run(FakeBench([candidate("a", 0.4)], saved={"a": 0.3}), "w.py:workload", SearchOptions(), Ledger.open(tmp_path))
    shown = plain(report.ledger_lines(ledger(tmp_path), Page()))
    assert "Meas./exp.: median of" in " ".join(shown.split())
    assert "Not judged" not in shown
    bench = FakeBench([candidate("b", 0.4)], verdicts={"b": "inconclusive"})
    run(bench, "w.py:workload", SearchOptions(), Ledger.open(tmp_path))
    assert "Not judged: 1 trial (inconclusive" in plain(report.ledger_lines(ledger(tmp_path), Page()))


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])
def test_no_line_is_longer_than_the_page(width: int, glyphs: Any) -> None:
    hostile = treated(
        untried=(Untried(way="w" * 90, why="y" * 300),), stopped="s" * 200, code="x" * 200, order=("o" * 200,),
        target="t" * 200,
    )  # fmt: skip
    for found in (treated(), hostile):
        lines = report.lines(found, Page(width=width, glyphs=glyphs))
        assert max(length(line) for line in lines if "xxx" not in plain([line])) <= width
        assert all("verdict" not in plain([line]) or plain([line]).endswith("verdict") for line in lines)
    assert glyphs is UNICODE or plain(report.lines(treated(), Page(glyphs=ASCII))).isascii()


def test_what_a_target_says_cannot_reach_the_terminal() -> None:
    shown = text(treated(untried=(Untried(way="a\x1b[31m", why="b\nc"),), code="x\x1b[2J"))
    assert "\x1b" not in shown


def errors(value: float) -> Errors:
    return Errors(treated=value, baseline=0.0, allowed=1.0)


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (None, "-"),
        (Numerics(reference="none", ok=None, why="?"), "unknown"),
        (Numerics(reference="float64", ok=False, output=errors(1.0)), "differ"),
        (Numerics(reference="float64", ok=True, output=errors(0.0), loss=errors(0.0)), "same"),
        (Numerics(reference="float64", ok=True, output=errors(3e-3), loss=errors(1e-5)), "3e-03"),
        (Numerics(reference="none", ok=True), "finite"),
    ],
)
def test_numbers_in_a_word(one: Numerics | None, said: str) -> None:
    assert report.numerics(one) == said


def test_a_way_that_was_refused_for_its_numbers_says_why() -> None:
    bench = FakeBench([candidate("a", 0.4)], saved={"a": 0.3}, verdicts={"a": "unsafe"})
    found = treated(bench)
    trial = msgspec.structs.replace(found.trials[0], why="the loss differs by 12 %")
    assert "the loss differs by 12 %" in text(msgspec.structs.replace(found, trials=(trial,)))


def test_a_dry_run_shows_the_order_alone() -> None:
    bench = FakeBench([candidate("a", 0.4)])
    found = run(bench, "w.py:workload", SearchOptions(dry_run=True), Ledger(Path("/dev/null/none")))
    assert "What would be tried, in this order" in text(found)
    assert "verdict" not in text(found)


def test_printing_a_result_prints_the_table() -> None:
    import gobrrr.api  # noqa: F401

    assert "fused-optimizer" in str(treated())
    assert "verdict" in str(treated())


def test_an_empty_ledger_says_how_to_fill_it() -> None:
    found = LedgerErrors(folder="/x", trials=0, errors=())
    assert "gobrrr treat FILE.py:NAME adds them" in plain(report.ledger_lines(found, Page()))


def test_a_trial_on_a_busy_machine_is_told_before_the_numbers_and_makes_them_about() -> None:
    ways = [candidate("a", 0.4)]
    busy, quiet = (treated(FakeBench(ways, saved={"a": 0.3}, others=others)) for others in (1.6, 0.1))
    shown = " ".join(text(busy).split())
    assert "! The machine was busy while the trial was timed: other processes had 1.6 of the 2 processors." in shown
    assert "about 1.43 times as fast (on a busy machine)" in shown
    assert "timed on a busy machine" in text(busy)
    assert "busy" not in text(quiet)


def test_what_the_first_diagnosis_says_before_its_numbers_stands_before_those_of_treat() -> None:
    bench = FakeBench([candidate("a", 0.4)])
    told = "The machine was busy while the step was timed: other processes had 1.9 of the 2 processors."
    look = bench.look
    bench.look = lambda *given: msgspec.structs.replace(  # type: ignore[method-assign]
        look(*given), diagnosis=msgspec.structs.replace(look(()).diagnosis, caveats=[told])
    )
    found = treated(bench)
    assert found.caveats[0] == told
    assert " ! The machine was busy while the step was timed" in text(found)
    assert diagnosis_of(found).caveats[0] == told
