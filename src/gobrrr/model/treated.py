"""What `gobrrr treat` found: each trial, predicted and measured, and what was kept. Times are ns of one step."""

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

    `reference` is what both arms are held against. `steps` were taken from the same state. `parameters_change` is None
    where there is nothing to train. `ok` is None where nothing could be compared, and `why` says why, or what failed.
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
    """Both arms timed in turns: medians of rounds, and the spread that a gain must exceed. ns of one step."""

    before_ns: float
    after_ns: float
    spread_ns: float
    rounds: int
    steps: int


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """What a trial ran on."""

    device: str
    driver: str | None
    torch: str
    python: str
    gobrrr: str


class TrialRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One way of a treatment on top of those that were kept: what the ledger holds.

    `predicted_saving_ns` and `expected_ns` are None where nothing predicts the way. `timing`, `numerics` and memory are
    None where they were not measured (on a CPU the allocator's peak is not known); `why` then says why, as it does for
    every verdict. `work`: of what a step does then, in steps of before; savings are per unit of work.
    `replayed_saving_ns` and `replayed_expected_ns` are the prediction before errors of earlier trials widened or
    narrowed it, of a step of `step_ns`. `instead_of`: the one of `kept` that it was tried in place of, and is measured
    against. `from_ledger`: the date of the trial, where it was not run again. `died`: the process that ran it died or
    hung, which it is taken for after a silence of `limit_s` (None: as long as gobrrr itself waits). `late`: it was
    ended by the budget, after `seconds`. `unapplied`: the way found out that it can't be applied here. `members`: the
    ways of a set that is tried at once; `unfit_member`: which of them can't be applied. `leaves_out`: the one of `kept`
    that was left out, against all of them. `contention`: what other processes had while it was timed.
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
        """What was measured: time per unit of work before less after; None where it was not."""
        if self.timing is None:
            return None
        return self.timing.before_ns - self.timing.after_ns / self.work

    @property
    def disturbed(self) -> bool:
        """Whether it was timed while others had the processors."""
        return self.timing is not None and self.contention is not None and self.contention.disturbed


class Untried(msgspec.Struct, frozen=True, kw_only=True):
    """A way that was not tried, and why: it doesn't fit the workload, conflicts, or nothing is predicted for it."""

    way: str
    why: str


class Advised(msgspec.Struct, frozen=True, kw_only=True):
    """What only the user's own source can change: predicted and measured by nothing.

    `mends`: the codes of the findings that it answers, `finding` first, whose place `where` is.
    """

    treatment: str
    finding: str
    where: str
    how: str
    code: str
    predicted_saving_ns: Interval
    mends: list[str] = []


class Treated(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of a treatment. `kept` are the ways that helped, in the order of being kept.

    `step_before_ns`: the step as it was, in turns with the treated one in the trial that measured all that is kept, or
    in the first trial that helped where there was none; as it was diagnosed where nothing is kept. `step_after_ns`:
    with all that is kept, per unit of work, of the trial that measured that last. `faster`: how many times as fast it
    became: the ratio of the two where they are of one trial, else what the trials gave one upon the other, multiplied.
    `together`: several kept ways at once against the step as it was; None where that was not measured. `needs_s`: the
    least budget in which one trial can be decided, where this one was too short for it; else None. `caveats`: what a
    reader must know before the numbers.
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
    """How far the predictions of a treatment were off, over the ledger's trials.

    `predicted`: trials that have both a prediction and a time. The points are of the step, |predicted - measured|;
    None where there is no such trial, as is the median of measured over expected. `covered`: the share of them whose
    measured saving lies in the interval that was promised; `width_points`: the median width of those intervals. Both
    None where none was promised.
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
    """What `gobrrr ledger` shows: the errors by treatment, of all trials in a folder.

    `repeated`: trials that were run again later; of those the newest alone counts, and is in `errors`.
    """

    folder: str
    trials: int
    errors: tuple[ErrorRow, ...]
    repeated: int = 0
    notes: tuple[str, ...] = ()
    format: int = FORMAT
