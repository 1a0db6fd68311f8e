"""Damaged traces and diagnoses: each ends in an answer or in one line. `make nightly` runs ten thousand others."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.guarded import STRICT
from tests.fuzz import run
from tests.fuzz.mutators import MUTATORS, RECORDS

SEED, EACH = 17, 30


@pytest.mark.parametrize("first", range(0, 300, EACH))
def test_an_answer_or_one_line(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    monkeypatch.setenv(STRICT, "1")
    wrong = [one for one in run.outcomes(SEED, range(first, first + EACH)) if one.wrong]
    assert not wrong, "\n".join(
        f"python -m tests.fuzz.run --seed {SEED} --only {one.input.number} ({one.input.done})\n{one.wrong}"
        for one in wrong
    )


def test_there_are_enough_ways_to_damage() -> None:
    assert (len(MUTATORS) >= 30, len(RECORDS) >= 10) == (True, True)


def test_an_input_is_known_by_its_seed_and_number(tmp_path: Path) -> None:
    made = [run.made(SEED, number, tmp_path) for number in (3, 4, 3)]
    assert made[0] == made[2] != made[1]


@pytest.mark.parametrize(
    ("status", "told", "wrong"),
    [
        (2, "gobrrr: x: no such file\n", False),
        (2, "", True),
        (2, "Traceback (most recent call last):\ngobrrr: x\n", True),
        (70, "gobrrr: internal error\n", True),
        (1, "", True),
        (0, "Traceback (most recent call last):\n", True),
    ],
)
def test_what_counts_as_a_failure(tmp_path: Path, status: int, told: str, wrong: bool) -> None:
    one = run.Input(0, ["diagnose", str(tmp_path / "t.json")], "")
    assert bool(run._judged(one, status, "an answer\n", told)) == wrong


def test_what_is_at_stake_in_a_step_of_unknown_length_can_be_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by the nightly inputs: two ranks whose device work overlaps, with times of minutes."""
    monkeypatch.setenv(STRICT, "1")
    assert not [one for one in run.outcomes(1795972272, range(107, 108)) if one.wrong]
