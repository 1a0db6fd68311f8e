"""What a live run knows about functions that are recompiled, or that the compiler gave up."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from gobrrr import units
from gobrrr.analysis.findings.claims import NO_CLAIM, TimeClaim, outside
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.conditions.common import PLACES_SHOWN
from gobrrr.conditions.in_pieces import pieces_of
from gobrrr.model.diagnosis import Place
from gobrrr.model.live import Compiled, StepTimes


@dataclass(frozen=True)
class RecompilationCost:
    """`saving`: the most that a step gains if nothing is compiled again, in ns. `certain`: compiled in steady state."""

    saving: float = 0.0
    claim: TimeClaim = NO_CLAIM
    certain: bool = False
    where: list[Place] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)


def again_of(evidence: Evidence) -> RecompilationCost:
    """Empty if the compiler was not watched, or compiled nothing after the warm-up."""
    compiled, times, facts = evidence.profile.compiled, evidence.profile.times, list[str]()
    if compiled is None or times is None:
        return RecompilationCost()
    if not compiled.steady_compiles and not compiled.limit_hit:
        return RecompilationCost()
    longer = longer_steps(times, compiled.steady_compiles)
    saving, claim = longer, outside(longer * evidence.steps.count, 0.0)
    if compiled.steady_compiles:
        facts.append(
            f"{units.things(compiled.steady_compiles, 'compilation')} in {units.things(len(times.ns), 'step')} "
            f"after the warm-up: they make the mean step {units.duration(longer)} longer than the median one"
        )
    facts += _reasons(compiled)
    if compiled.limit_hit:
        pieces = pieces_of(evidence, _sources(compiled))
        saving, claim = saving + pieces.saving, claim + pieces.claim
        facts += ["the compiler gave up after too many compilations: the function runs eagerly", *pieces.facts]
    places = [Place(op=recompile.function, source=recompile.source) for recompile in compiled.recompiles[:PLACES_SHOWN]]
    return RecompilationCost(saving, claim, compiled.steady_compiles > 0, places, facts)


def longer_steps(times: StepTimes, compilations: int) -> float:
    """By how much the longest steps, one a compilation, exceed the median of all; in ns, the mean of all steps."""
    if not compilations or not times.ns:
        return 0.0
    usual, longest = median(times.ns), sorted(times.ns)[-compilations:]
    return sum(max(ns - usual, 0.0) for ns in longest) / len(times.ns)


def _sources(compiled: Compiled) -> list[str]:
    return [recompile.source for recompile in compiled.recompiles if recompile.source is not None]


def _reasons(compiled: Compiled) -> list[str]:
    return [
        f"{recompile.function} was compiled again {units.things(recompile.count, 'time')}; the last guard that failed: "
        f"{recompile.reason or 'not recorded'}"
        for recompile in compiled.recompiles[:PLACES_SHOWN]
    ]
