"""A bench without steps: what it answers is told beforehand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from gobrrr.model.contention import Contention
from gobrrr.model.treated import Timing, TrialRecord, Untried, Versions
from gobrrr.trials.candidate import Candidate
from gobrrr.trials.candidates import StepOverview
from gobrrr.trials.pace import TrialTime
from tests.report import samples

STEP = 1e6
VERSIONS = Versions(device="GPU", driver=None, torch="2.13", python="3.11", gobrrr="0")


def candidate(way: str, share: float | None = 0.2, width: float = 0.05, **changes: object) -> Candidate:
    """A way that is predicted to save a share of a step."""
    given: dict[str, object] = {"way": way, "treatment": way.partition(":")[0], "as_if": (way.partition(":")[0],)}
    if share is None:
        given |= {"unpredicted": True, "as_if": ()}
    else:
        given |= {"expected_ns": share * STEP, "low_ns": (share - width) * STEP, "high_ns": (share + width) * STEP}
    return Candidate(**{**given, **changes})  # type: ignore[arg-type]


@dataclass
class FakeBench:
    """`then`: the candidates once some ways are kept (their names joined by "+"), else those of before without them.

    `saved`: what each way saves of the step; `verdicts`: where that is not what it saves that decides.
    `others`: how many of two processors other processes have while trials are timed.
    """

    candidates: Sequence[Candidate]
    sets: Sequence[Candidate] = ()
    saved: Mapping[str, float] = field(default_factory=dict)
    then: Mapping[str, Sequence[Candidate]] = field(default_factory=dict)
    verdicts: Mapping[str, str] = field(default_factory=dict)
    unfit: Sequence[Untried] = ()
    before_trial: Callable[[str], None] = lambda way: None
    before_look: Callable[[Sequence[str]], None] = lambda kept: None
    trials: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    looks: list[tuple[str, ...]] = field(default_factory=list)
    step: float = STEP
    renews: bool = True
    took: float = 0.0
    start_s: float = 0.0
    down: bool = False
    died: bool = False
    whole: float = 0.4
    joined: list[tuple[str, ...]] = field(default_factory=list)
    whys: Mapping[str, str] = field(default_factory=dict)
    compile_s: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unapplied: Mapping[str, str] = field(default_factory=dict)
    others: float = 0.0

    def look(self, kept: Sequence[str], within_s: float = math.inf, spent_s: float = 0.0) -> StepOverview:
        self.before_look(kept)
        self.looks.append(tuple(kept))
        found = self.then.get("+".join(kept), self.candidates)
        return StepOverview(
            diagnosis=samples.overhead(), step_ns=self.step, candidates=tuple(found), unfit=tuple(self.unfit),
            sets=tuple(self.sets) if not kept else (), fingerprint="f", versions=VERSIONS,
            notes=next((self.notes[one] for one in kept if one in self.notes), ()),
            seconds=self.took,
        )  # fmt: skip

    def together(self, kept: Sequence[str], allowed: TrialTime) -> TrialRecord:
        self.joined.append(tuple(kept))
        timing = Timing(before_ns=STEP, after_ns=STEP * (1 - self.whole), spread_ns=1.0, rounds=5, steps=10)
        verdict = self.verdicts.get("all together", "helped")
        return TrialRecord(
            way="all together", treatment="all together", kept=(), verdict=verdict, why="w", timing=timing,
            contention=self.contention,
        )  # fmt: skip

    @property
    def contention(self) -> Contention:
        """Of two processors others had so much, and the step waited for so much."""
        return Contention(seconds=1.0, processors=2, others=self.others, waited=self.others / 2)

    def trial(self, kept: Sequence[str], way: Candidate, allowed: TrialTime, instead_of: str = "") -> TrialRecord:
        self.trials.append((tuple(kept), way.way))
        self.before_trial(way.way)
        saved = self.saved.get(way.way, 0.0)
        verdict = self.verdicts.get(way.way) or ("helped" if saved > 0.01 else "hurt" if saved < -0.01 else "no_change")
        before = STEP * math.prod(1 - self.saved.get(one, 0.0) for one in kept)
        work = math.prod(one.work for one in self.candidates if one.way in kept)
        timing = Timing(
            before_ns=before * work, after_ns=before * work * (1 - saved) * way.work, spread_ns=0.01 * STEP, rounds=5,
            steps=10,
        )  # fmt: skip
        made = TrialRecord(
            way=way.way, treatment=way.treatment, kept=tuple(kept), verdict=verdict, why=self.whys.get(way.way, ""),
            timing=timing, work=way.work, contention=self.contention, compile_s=self.compile_s.get(way.way),
            instead_of=instead_of, members=way.members, leaves_out=way.leaves_out,
            unapplied=way.way in self.unapplied, unfit_member=self.unapplied.get(way.way, ""),
        )  # fmt: skip
        return replace(made, timing=None, died=self.died) if verdict == "inconclusive" else made
