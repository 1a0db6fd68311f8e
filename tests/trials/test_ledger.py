from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.model.contention import Contention
from gobrrr.model.treated import Timing, TrialRecord, Versions
from gobrrr.trials.ledger import LEAST_LEDGER_ERRORS, Ledger, calibrated, error_of, folder, quantile

VERSIONS = Versions(device="GPU", driver=None, torch="2.13", python="3.11", gobrrr="0")


def record(way: str = "a", saved: float = 0.2, predicted: float | None = 0.3, **changes: Any) -> TrialRecord:
    """A trial of a step of 1,000 ns that saved and was predicted to save these shares of it."""
    given = {
        "way": way, "treatment": way, "kept": (), "verdict": "helped", "why": "",
        "timing": Timing(before_ns=1000.0, after_ns=1000.0 * (1 - saved), spread_ns=10.0, rounds=5, steps=10),
        "expected_ns": predicted and 1000 * predicted, "replayed_expected_ns": predicted and 1000 * predicted,
        "step_ns": 1000.0, "fingerprint": "f", "versions": VERSIONS, "date": "2026-01-01",
    }  # fmt: skip
    return TrialRecord(**{**given, **changes})


def test_a_trial_is_found_again_by_another_run(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "new").add(record(kept=("x", "y")))
    again = Ledger.open(tmp_path / "new")
    assert again.find(VERSIONS, "f", ["y", "x"], "a") == record(kept=("x", "y"))
    assert again.notes == []


@pytest.mark.parametrize(
    ("fingerprint", "kept", "way", "device", "torch"),
    [
        ("g", (), "a", "GPU", "2.13"),
        ("f", ("x",), "a", "GPU", "2.13"),
        ("f", (), "b", "GPU", "2.13"),
        ("f", (), "a", "CPU", "2.13"),
        ("f", (), "a", "GPU", "2.14"),
    ],
)
def test_a_trial_of_something_else_is_not_found(
    tmp_path: Path, fingerprint: str, kept: tuple[str, ...], way: str, device: str, torch: str
) -> None:
    book = Ledger.open(tmp_path)
    book.add(record())
    versions = Versions(device=device, driver=None, torch=torch, python="3.11", gobrrr="0")
    assert book.find(versions, fingerprint, kept, way) is None


def test_the_newest_of_repeated_trials_counts(tmp_path: Path) -> None:
    book = Ledger.open(tmp_path)
    book.add(record(saved=0.1, date="2026-01-02"))
    book.add(record(saved=0.9, date="2026-01-01"))
    found = Ledger.open(tmp_path)
    known = found.find(VERSIONS, "f", (), "a")
    assert known is not None
    assert known.date == "2026-01-02"
    assert found.errors("a", "GPU") == pytest.approx([-0.2])
    assert len(list(tmp_path.glob("*.json"))) == 2


def test_a_broken_file_is_left_out_with_a_note(tmp_path: Path) -> None:
    Ledger.open(tmp_path).add(record())
    (tmp_path / "half.json").write_text('{"way": "a"')
    (tmp_path / "newer.json").write_text(
        json.dumps({**json.loads(next(tmp_path.glob("a-*")).read_text()), "format": 9})
    )
    found = Ledger.open(tmp_path)
    assert len(found.records) == 1
    assert len(found.notes) == 1
    assert "half.json" in found.notes[0]
    assert "and 1 more" in found.notes[0]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes are POSIX")
def test_a_pipe_among_the_files_is_said_and_not_waited_for(tmp_path: Path) -> None:
    Ledger.open(tmp_path).add(record())
    os.mkfifo(tmp_path / "pipe.json")
    found = Ledger.open(tmp_path)
    assert len(found.records) == 1
    assert found.notes == ["left out of the ledger: pipe.json (is a pipe, not a file)"]


def test_no_part_of_a_file_stays_behind(tmp_path: Path) -> None:
    Ledger.open(tmp_path).add(record())
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


def test_a_folder_that_cannot_be_written_becomes_a_note(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    book = Ledger(tmp_path / "file" / "ledger")
    book.add(record())
    book.add(record())
    assert len(book.notes) == 1
    assert "not kept" in book.notes[0]


def test_the_ledger_lies_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder() == tmp_path / "gobrrr" / "ledger"


def test_errors_are_by_treatment_in_points_of_the_step(tmp_path: Path) -> None:
    book = Ledger.open(tmp_path)
    for at, saved in enumerate((0.3, 0.2, 0.1)):
        book.add(record(saved=saved, fingerprint=str(at)))
    book.add(record("b", predicted=None))
    first, second = book.errors_by_treatment()
    assert (first.treatment, first.trials, first.predicted) == ("a", 3, 3)
    assert first.median_points == pytest.approx(10)
    assert first.p90_points == pytest.approx(20)
    assert first.measured_over_expected == pytest.approx(2 / 3)
    assert (second.median_points, second.measured_over_expected) == (None, None)
    assert (second.covered, second.width_points) == (None, None)


def test_coverage_and_width_are_of_the_intervals_that_were_shown(tmp_path: Path) -> None:
    """Saved 30, 20 and 10 %, promised 25 to 35 %: one of three lies inside, all are 10 points wide."""
    book = Ledger.open(tmp_path)
    for at, saved in enumerate((0.3, 0.2, 0.1)):
        book.add(record(saved=saved, fingerprint=str(at), predicted_saving_ns=(250.0, 350.0)))
    (told,) = book.errors_by_treatment()
    assert told.covered == pytest.approx(1 / 3)
    assert told.width_points == pytest.approx(10)


def test_what_could_not_be_judged_is_no_error() -> None:
    assert error_of(record(verdict="inconclusive")) is None
    assert error_of(record(timing=None)) is None
    # an earlier form: measured without the way that it was to replace, and predicted beyond it
    assert error_of(record(kept=("b",), instead_of="c")) is None
    assert error_of(record(kept=("b", "c"), instead_of="c")) is not None


def test_errors_of_another_device_do_not_count(tmp_path: Path) -> None:
    book = Ledger.open(tmp_path)
    book.add(record())
    assert book.errors("a", "CPU") == []


def test_calibration_does_not_feed_on_itself(tmp_path: Path) -> None:
    """The errors are those of the replay's own prediction, whatever the calibrated one said."""
    book = Ledger.open(tmp_path)
    book.add(record(expected_ns=200.0))
    assert book.errors("a", "GPU") == pytest.approx([-0.1])


SHARE = st.floats(-0.5, 0.5)
INTERVAL = st.tuples(st.floats(0, 0.4), st.floats(0, 0.2), st.floats(0, 0.2))


@given(st.lists(SHARE, max_size=LEAST_LEDGER_ERRORS - 1), INTERVAL)
def test_few_errors_change_nothing(errors: list[float], given: tuple[float, float, float]) -> None:
    expected, below, above = given
    assert calibrated(errors, expected, expected - below, expected + above, 1.0) == (
        expected, expected - below, expected + above,
    )  # fmt: skip


@given(st.integers(LEAST_LEDGER_ERRORS, 40), INTERVAL)
def test_perfect_predictions_narrow_and_more_of_them_narrow_more(n: int, given: tuple[float, float, float]) -> None:
    expected, below, above = given
    low, high = expected - below, expected + above
    _, few_low, few_high = calibrated([0.0] * n, expected, low, high, 1.0)
    _, many_low, many_high = calibrated([0.0] * (n + 1), expected, low, high, 1.0)
    assert low - 1e-12 <= few_low <= many_low + 1e-12 <= expected + 2e-12
    assert expected - 2e-12 <= many_high - 1e-12 <= few_high <= high + 1e-12


@given(st.lists(SHARE, min_size=LEAST_LEDGER_ERRORS, max_size=30), INTERVAL, st.floats(1, 3))
def test_larger_errors_never_narrow(errors: list[float], given: tuple[float, float, float], times: float) -> None:
    expected, below, above = given
    low, high = expected - below, expected + above
    _, one_low, one_high = calibrated(errors, expected, low, high, 1.0)
    _, more_low, more_high = calibrated([times * one for one in errors], expected, low, high, 1.0)
    assert more_low <= one_low + 1e-12
    assert more_high >= one_high - 1e-12
    assert one_low <= expected <= one_high


@given(st.lists(st.floats(0.3, 0.5), min_size=LEAST_LEDGER_ERRORS, max_size=30))
def test_errors_beyond_the_interval_widen_it(errors: list[float]) -> None:
    low, high = 0.25, 0.35
    _, new_low, new_high = calibrated([-one for one in errors], 0.3, low, high, 1.0)
    assert new_low < low
    assert new_high <= high


@given(st.lists(SHARE, min_size=1, max_size=30))
def test_a_quantile_is_one_of_the_values(values: list[float]) -> None:
    assert quantile(values, 0.05) in values
    assert quantile(values, 0.05) <= quantile(values, 0.95)


def test_a_trial_on_a_busy_machine_says_nothing_of_later_predictions() -> None:
    busy = Contention(seconds=1.0, processors=2, others=1.5, waited=0.5)
    assert error_of(record(contention=busy)) is None
    assert error_of(record(contention=Contention(seconds=1.0, processors=2, others=1.5, waited=0.01))) is not None
