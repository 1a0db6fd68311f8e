"""The ledger of trials: one JSON file each, written atomically. Its prediction errors calibrate new predictions.

It is in `$XDG_CACHE_HOME/gobrrr/ledger`, else `~/.cache/gobrrr/ledger`. Files that can't be read are left out with a
note.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import msgspec

from gobrrr.errors import UsageError
from gobrrr.hardware import cache
from gobrrr.model.treated import FORMAT, ErrorRow, TrialRecord, Versions
from gobrrr.system import files
from gobrrr.system.paths import bytes_without_home

LEAST_LEDGER_ERRORS = 4
"""The fewest errors of a treatment that calibrate its next prediction. Chosen, not measured."""

LOW_QUANTILE, HIGH_QUANTILE = 0.05, 0.95
"""The quantiles of the errors between which the next error is expected."""


def folder() -> Path:
    """The default folder; it may not exist yet."""
    return cache.folder().with_name("ledger")


@dataclass
class Ledger:
    """The trials in a folder, read once, and those added since. `notes`: files that were left out."""

    where: Path
    records: list[TrialRecord] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, where: Path | None = None) -> Ledger:
        """Read all trials of a folder; none where there is no such folder."""
        ledger = cls(where or folder())
        try:
            paths = files.listed(ledger.where, end=".json")
        except NotADirectoryError:  # no trials; writing one will report the error
            paths = []
        except OSError as error:
            raise UsageError(f"{ledger.where}: the ledger can't be read: {error.strerror or error}") from None
        broken = []
        for path in paths:
            try:
                ledger.records.append(decode(files.read(path)))
            except (OSError, ValueError) as error:
                broken.append((path.name, _reason(error)))
        if broken:
            more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
            ledger.notes.append(f"left out of the ledger: {broken[0][0]} ({broken[0][1]}){more}")
        return ledger

    def add(self, record: TrialRecord) -> None:
        """Write a trial. A folder that can't be written becomes a note, because the answer does not depend on it."""
        self.records.append(record)
        name = f"{_slug(record.way)}-{digest(record)}-{secrets.token_hex(4)}.json"
        try:
            self.where.mkdir(parents=True, exist_ok=True)
            data = bytes_without_home(msgspec.json.format(msgspec.json.encode(record), indent=1))
            files.write(self.where / name, data + b"\n")
        except (OSError, UsageError) as error:
            why = getattr(error, "strerror", None) or str(error).removeprefix(f"{self.where / name}: ")
            said = f"trials are not kept in {self.where}: {why}"
            self.notes += [said] if said not in self.notes else []

    def find(self, versions: Versions | None, fingerprint: str, kept: Sequence[str], way: str) -> TrialRecord | None:
        """The newest trial of a way on top of the same kept ways, with the same device, torch version and workload."""
        if versions is None or not fingerprint:
            return None
        return max(self._same(versions, fingerprint, kept, way), key=lambda trial: trial.date, default=None)

    def deaths(
        self, versions: Versions | None, fingerprint: str, kept: Sequence[str], way: str, limit_s: float | None
    ) -> int:
        """How often trials of a way on top of the same kept ways died, or hung with the same `limit_s`."""
        if versions is None or not fingerprint:
            return 0
        return sum(trial.died and trial.limit_s == limit_s for trial in self._same(versions, fingerprint, kept, way))

    def longer_than(self, versions: Versions | None, fingerprint: str, kept: Sequence[str], way: str) -> float:
        """The seconds after which the budget ended the newest trial of a way; 0 where it did not."""
        if versions is None or not fingerprint:
            return 0.0
        last = self.find(versions, fingerprint, kept, way)
        return last.seconds if last is not None and last.late else 0.0

    def _same(self, versions: Versions, fingerprint: str, kept: Sequence[str], way: str) -> list[TrialRecord]:
        key = _key(versions, fingerprint, kept, way)
        return [record for record in self.records if record.versions is not None
                and _key(record.versions, record.fingerprint, record.kept, record.way) == key]  # fmt: skip

    def errors(self, treatment: str, device: str) -> list[float]:
        """(measured - predicted) / step for each trial of a treatment on a device, by the replay's own prediction.

        Only the newest of repeated trials counts.
        """
        return [
            error
            for trial in _newest(self.records)
            if trial.treatment == treatment and trial.versions is not None and trial.versions.device == device
            and (error := error_of(trial)) is not None
        ]  # fmt: skip

    def errors_by_treatment(self) -> list[ErrorRow]:
        """How far predictions were off, by treatment, those with the most trials first."""
        newest = _newest(self.records)
        rows = [_row(name, [trial for trial in newest if trial.treatment == name])
                for name in dict.fromkeys(trial.treatment for trial in newest)]  # fmt: skip
        return sorted(rows, key=lambda row: (-row.predicted, -row.trials, row.treatment))


def decode(data: bytes) -> TrialRecord:
    """A trial from its JSON. Raises ValueError where it is not one, or has another format."""
    trial = msgspec.json.decode(data, type=TrialRecord)
    if trial.format != FORMAT:
        raise ValueError(f"format {trial.format}, this gobrrr reads {FORMAT}")
    if trial.timing is not None and not (trial.timing.before_ns > 0 and trial.timing.after_ns > 0):
        raise ValueError("a step of no time")
    return trial


def error_of(trial: TrialRecord) -> float | None:
    """(measured - predicted) / step, by the replay's own prediction; None where either is missing or can't be
    judged."""
    saving, expected = trial.saving_ns, trial.replayed_expected_ns
    if trial.timing is None or saving is None or expected is None or trial.verdict == "inconclusive":
        return None
    if trial.disturbed:
        return None  # a saving next to other processes says nothing about a quiet machine
    if trial.instead_of and trial.instead_of not in trial.kept:
        return None  # an older record: measured without the way that it replaces, but predicted beyond it
    # the prediction is of the step as it was diagnosed, the measurement of the step as it was timed
    return saving / trial.timing.before_ns - expected / (trial.step_ns or trial.timing.before_ns)


def promised_of(trial: TrialRecord) -> tuple[float, float, float] | None:
    """(measured saving, low, high) in shares of the step, with the interval that was shown before the trial; None as
    for `error_of`, and where no interval was shown."""
    saving = trial.saving_ns
    if error_of(trial) is None or trial.timing is None or saving is None or trial.predicted_saving_ns is None:
        return None
    step = trial.step_ns or trial.timing.before_ns
    low, high = (end / step for end in trial.predicted_saving_ns)
    return saving / trial.timing.before_ns, low, high


def calibrated(
    errors: Sequence[float], expected: float, low: float, high: float, step: float
) -> tuple[float, float, float]:
    """(expected, low, high) of a saving, its interval widened or narrowed by earlier `errors`.

    With n >= `LEAST_LEDGER_ERRORS` errors each end is a blend of the replay's interval and of the range of the errors
    around `expected`, with weight n / (n + `LEAST_LEDGER_ERRORS`) for the errors: after four trials each counts for
    half. The range always includes an error of 0, so that `expected` stays within the interval, and large errors that
    are alike do not narrow it. Larger errors make the interval wider.
    """
    n = len(errors)
    if n < LEAST_LEDGER_ERRORS:
        return expected, low, high
    worst, best = min(quantile(errors, LOW_QUANTILE), 0.0), max(quantile(errors, HIGH_QUANTILE), 0.0)
    share = n / (n + LEAST_LEDGER_ERRORS)
    low = (1 - share) * low + share * (expected + worst * step)
    high = (1 - share) * high + share * (expected + best * step)
    return expected, min(low, expected), max(min(high, step), expected)


def quantile(values: Sequence[float], at: float) -> float:
    """A quantile, rounded outwards to one of the values; with few values that is the extreme one."""
    ordered = sorted(values)
    position = at * (len(ordered) - 1)
    return ordered[math.floor(position) if at < 0.5 else math.ceil(position)]


def digest(trial: TrialRecord) -> str:
    """A key that repeated trials of the same way on the same workload share."""
    device, torch = (trial.versions.device, trial.versions.torch) if trial.versions is not None else ("", "")
    text = "\n".join((device, torch, trial.fingerprint, *sorted(trial.kept), trial.way))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def _key(versions: Versions, fingerprint: str, kept: Iterable[str], way: str) -> tuple[object, ...]:
    return versions.device, versions.torch, fingerprint, tuple(sorted(kept)), way


def _newest(records: Iterable[TrialRecord]) -> list[TrialRecord]:
    found: dict[str, TrialRecord] = {}
    for record in records:
        key = digest(record)
        if key not in found or record.date >= found[key].date:
            found[key] = record
    return list(found.values())


def _row(name: str, trials: Sequence[TrialRecord]) -> ErrorRow:
    errors = [100 * abs(error) for trial in trials if (error := error_of(trial)) is not None]
    ratios = [
        trial.saving_ns / trial.replayed_expected_ns
        for trial in trials
        if error_of(trial) is not None and trial.saving_ns is not None and trial.replayed_expected_ns
    ]
    promised = [ends for trial in trials if (ends := promised_of(trial)) is not None]
    return ErrorRow(
        treatment=name,
        trials=len(trials),
        helped=sum(trial.verdict == "helped" for trial in trials),
        predicted=len(errors),
        median_points=median(errors) if errors else None,
        p90_points=quantile(errors, 0.9) if errors else None,
        measured_over_expected=median(ratios) if ratios else None,
        covered=sum(low <= got <= high for got, low, high in promised) / len(promised) if promised else None,
        width_points=median(100 * (high - low) for _, low, high in promised) if promised else None,
    )


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "way"


def _reason(error: Exception) -> str:
    said = getattr(error, "strerror", None) or str(error)
    return (said.splitlines() or [type(error).__name__])[0][:80]
