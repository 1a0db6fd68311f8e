"""The results of `gobrrr treat`: each trial, predicted and measured, and what was kept. Times are ns per step."""

from __future__ import annotations

from typing import Literal

import msgspec

from gobrrr.model import show
from gobrrr.model.contention import Contention
from gobrrr.model.diagnosis import Diagnosis, Interval, Verdict

FORMAT = 1
# History of the format:
# 1  first


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """Relative errors ||x - reference|| / ||reference|| of one quantity, treated and before; None: not compared."""

    treated: float | None
    baseline: float | None
    allowed: float | None


class Numerics(msgspec.Struct, frozen=True, kw_only=True):
    """What a treatment did to the numbers.

    `reference`: what both arms are compared with. `steps`: how many were taken from the same state.
    `parameters_change`: None where there is nothing to train. `ok`: None where nothing could be compared. `why`: why
    not, or what failed.
    """

    reference: Literal["float64", "float32", "baseline", "none"]
    ok: bool | None
    why: str = ""
    steps: int = 0
    output: Errors | None = None
    loss: Errors | None = None
    gradients: Errors | None = None
    parameters_change: bool | None = None


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Both arms timed in turns, in ns per step: medians of rounds, and the spread that a gain must exceed."""

    before_ns: float
    after_ns: float
    spread_ns: float
    rounds: int
    steps: int


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """The device and the software of a trial."""

    device: str
    driver: str | None
    torch: str
    python: str
    gobrrr: str


class TrialRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The trial of one way of a treatment, on top of the ways that were kept: an entry of the ledger.

    `predicted_saving_ns`, `expected_ns`: None where nothing predicts the way. `timing`, `numerics` and memory: None
    where they were not measured (on a CPU the allocator's peak is not known). `why`: the reason of the verdict, or why
    something was not measured. `work`: the work of a treated step, in steps of before; savings are per unit of work.
    `replayed_saving_ns`, `replayed_expected_ns`: the prediction for a step of `step_ns`, before it was corrected by the
    errors of earlier trials. `instead_of`: the way of `kept` that it replaces and is measured against. `from_ledger`:
    the date of the trial, where it was not run again. `died`: its process died or hung, which means that it was silent
    for `limit_s` (None: gobrrr's own limit). `late`: the budget ended it, after `seconds`. `unapplied`: the way turned
    out not to apply here. `members`: the ways of a set that is tried at once; `unfit_member`: the one that can't be
    applied. `leaves_out`: the way of `kept` that was left out, to compare with all of them. `contention`: what other
    processes had while it was timed.
    """

    way: str
    treatment: str
    kept: tuple[str, ...]
    verdict: Verdict
    why: str
    predicted_saving_ns: Interval | None = None
    expected_ns: float | None = None
    timing: Timing | None = None
    contention: Contention | None = None
    numerics: Numerics | None = None
    memory_before_bytes: int | None = None
    memory_after_bytes: int | None = None
    compile_s: float | None = None
    break_even_steps: float | None = None
    recompiles_stopped: bool | None = None
    work: float = 1.0
    code: str = ""
    seconds: float = 0.0
    fingerprint: str = ""
    versions: Versions | None = None
    date: str = ""
    replayed_saving_ns: Interval | None = None
    replayed_expected_ns: float | None = None
    step_ns: float | None = None
    instead_of: str = ""
    from_ledger: str = ""
    died: bool = False
    late: bool = False
    unapplied: bool = False
    members: tuple[str, ...] = ()
    unfit_member: str = ""
    leaves_out: str = ""
    limit_s: float | None = None
    notes: tuple[str, ...] = ()
    format: int = FORMAT

    @property
    def saving_ns(self) -> float | None:
        """The measured saving per unit of work: the time before less the time after; None where it was not timed."""
        if self.timing is None:
            return None
        return self.timing.before_ns - self.timing.after_ns / self.work

    @property
    def disturbed(self) -> bool:
        """Whether it was timed while other processes used the processors."""
        return self.timing is not None and self.contention is not None and self.contention.disturbed


class Untried(msgspec.Struct, frozen=True, kw_only=True):
    """A way that was not tried, and why: it doesn't fit the workload, conflicts, or nothing is predicted for it."""

    way: str
    why: str


class Advised(msgspec.Struct, frozen=True, kw_only=True):
    """A change that only the user can make, in the source; it can't be tried here.

    `mends`: the codes of the findings that it answers, `finding` first; `where`: the place of `finding`.
    """

    treatment: str
    finding: str
    where: str
    how: str
    code: str
    predicted_saving_ns: Interval
    mends: list[str] = []


class Treated(msgspec.Struct, frozen=True, kw_only=True):
    """A whole treatment. `kept`: the ways that helped, in the order in which they were kept.

    `step_before_ns`: the untreated step, from the trial that measured all kept ways at once, else from the first trial
    that helped; from the diagnosis where nothing is kept. `step_after_ns`: the step with all kept ways, per unit of
    work, from the last trial that measured it. `faster`: the speedup: the ratio of the two where they are from one
    trial, else the product of the trials' speedups. `together`: all kept ways at once against the untreated step; None
    where that was not measured. `needs_s`: the shortest budget that can decide one trial, where this budget was too
    short; else None. `caveats`: what a reader must know before the numbers.
    """

    target: str
    before: Diagnosis
    after: Diagnosis | None
    trials: tuple[TrialRecord, ...]
    kept: tuple[str, ...]
    untried: tuple[Untried, ...] = ()
    advice: tuple[Advised, ...] = ()
    code: str = ""
    order: tuple[str, ...] = ()
    stopped: str = ""
    notes: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    step_before_ns: float | None = None
    step_after_ns: float | None = None
    faster: float | None = None
    together: TrialRecord | None = None
    seconds: float = 0.0
    needs_s: float | None = None
    format: int = FORMAT

    def __str__(self) -> str:
        return show.as_text(self) or f"{self.target}: kept {', '.join(self.kept) or 'nothing'}"


class ErrorRow(msgspec.Struct, frozen=True, kw_only=True):
    """The errors of a treatment's predictions, over the ledger's trials.

    `predicted`: how many trials have both a prediction and a time. `median_points`, `p90_points`: |predicted -
    measured| in percentage points of the step; these and `measured_over_expected` (the median) are None without such
    trials. `covered`: the share of them whose measured saving lies in the predicted interval; `width_points`: the
    median width of those intervals. Both are None where there is no interval.
    """

    treatment: str
    trials: int
    helped: int
    predicted: int
    median_points: float | None
    p90_points: float | None
    measured_over_expected: float | None
    covered: float | None = None
    width_points: float | None = None


class LedgerErrors(msgspec.Struct, frozen=True, kw_only=True):
    """What `gobrrr ledger` shows: the errors by treatment, over all trials in a folder.

    `repeated`: how many trials were run again later; `errors` counts only the newest run of each.
    """

    folder: str
    trials: int
    errors: tuple[ErrorRow, ...]
    repeated: int = 0
    notes: tuple[str, ...] = ()
    format: int = FORMAT
