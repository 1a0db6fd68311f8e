"""Caveats that a reader must know before the numbers: the machine was busy, or the step's time changed."""

from __future__ import annotations

from gobrrr import units
from gobrrr.analysis.answer import caveats
from gobrrr.model.treated import TrialRecord
from gobrrr.trials.choosing import SearchState

MOST_STEP_DRIFT = 0.1
"""A larger difference between the step's time in a trial and as diagnosed, as a share of it, is reported. Chosen."""


def of_treatment(found: SearchState) -> tuple[str, ...]:
    """The caveats of the first diagnosis, then those of the trials of this run."""
    return (*found.before.diagnosis.caveats, *_of_trials(found), *_drifted(found))


def _run(found: SearchState) -> list[TrialRecord]:
    """The trials that were timed in this run."""
    whole = [found.together] if found.together is not None else []
    return [trial for trial in (*found.trials, *whole) if trial.timing is not None and not trial.from_ledger]


def _of_trials(found: SearchState) -> list[str]:
    """That other processes used the processors while trials were timed."""
    timed = _run(found)
    busy = [trial for trial in timed if trial.disturbed]
    if not busy:
        return []
    worst = max(
        (trial.contention for trial in busy if trial.contention is not None),
        key=lambda contention: contention.lost or 0.0,
    )
    which = "the trial was" if len(timed) == 1 else f"{len(busy)} of {len(timed)} trials were"
    return [
        f"The machine was busy while {which} timed: {worst.in_words()}. On a quiet machine the treatments may save "
        "less or more than was measured; such a trial is run again next time."
    ]


def _drifted(found: SearchState) -> list[str]:
    """That the step's time in a trial differs from its time as diagnosed."""
    run = _run(found)
    pairs = [
        (trial.step_ns, trial.timing.before_ns) for trial in run if trial.step_ns and trial.timing and not trial.kept
    ]
    if found.before.step_ns is not None and found.measured is not None:
        pairs.append((found.before.step_ns, found.measured[0]))
    apart = [pair for pair in pairs if abs(pair[1] - pair[0]) > MOST_STEP_DRIFT * pair[0]]
    if not apart:
        return []
    diagnosed, timed = max(apart, key=lambda pair: max(pair) / min(pair))
    then, now = units.duration(diagnosed), units.duration(timed)
    again = any(trial.timing is not None and trial.step_ns == trial.timing.before_ns for trial in run)
    which = (
        "The predictions beside the trials are for the step as it was timed." if again
        else "The predictions are for the former, the measurements of the latter."
    )  # fmt: skip
    return [
        f"The step took {then} when it was diagnosed and {now} when a trial timed it in turns: {_why(found)}. {which}"
    ]


def _why(found: SearchState) -> str:
    before = found.before.diagnosis
    if caveats.of_step(before.threads, before.device_model) or any(trial.disturbed for trial in _run(found)):
        return "other processes used the machine meanwhile"
    return "the machine became faster or slower meanwhile, or the step does not do the same each time"
