"""Everything that grows in a run, in one record for the condition and its remedy."""

from __future__ import annotations

from dataclasses import dataclass

from gobrrr.analysis.detect.rising import (
    LEAST_TREND_STEPS,
    Holding,
    LongerTurns,
    RisingOperation,
    bytes_held,
    bytes_kept,
    hooks_held,
    longer_turns,
    nodes_held,
    rising,
)
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.recording import SurvivingResult


@dataclass(frozen=True)
class RunGrowth:
    """What grows from step to step, or from turn to turn in a step.

    `rising`: operations; `turns`: backward passes. `nodes`, `hooks`, `bytes`: autograd nodes, hooks and bytes that are
    held. `filling`: bytes of results that each step keeps without a graph. `results`: the results that hold the graphs,
    or else these bytes; `hooked`: lines that register hooks.
    """

    rising: tuple[RisingOperation, ...]
    turns: LongerTurns | None
    nodes: Holding | None
    hooks: Holding | None
    bytes: Holding | None
    filling: Holding | None
    results: tuple[SurvivingResult, ...]
    hooked: tuple[str, ...]

    @property
    def kept(self) -> bool:
        """Whether each step leaves more autograd nodes or hooks, even if they take no time yet."""
        return self.nodes is not None or self.hooks is not None


def grown(evidence: Evidence) -> RunGrowth | None:
    """What grows; None where it is not known: a trace of fewer than three marked steps."""
    steps, seen = evidence.recorded_steps, evidence.profile.seen
    if seen is None and (not steps.marked or steps.count < LEAST_TREND_STEPS):
        return None
    nodes, hooks = nodes_held(evidence), hooks_held(evidence)
    later = seen.later if seen is not None else None
    filling = bytes_kept(evidence) if nodes is None else None
    held = nodes is not None or filling is not None
    results = _distinct(later.kept, graphs=nodes is not None) if later is not None and held else ()
    lines = seen.lines if seen is not None and hooks is not None else ()
    return RunGrowth(
        rising=rising(evidence),
        turns=longer_turns(evidence),
        nodes=nodes,
        hooks=hooks,
        bytes=bytes_held(evidence),
        filling=filling,
        results=results,
        hooked=tuple(dict.fromkeys(line.source for line in lines if _registers(line.callee))),
    )


def _distinct(kept: tuple[SurvivingResult, ...], *, graphs: bool) -> tuple[SurvivingResult, ...]:
    """One result per line: those in a chain first, then the longest graph, then the most bytes."""
    by_line: dict[str | None, SurvivingResult] = {}
    for result in sorted(kept, key=lambda result: (not result.chain, -result.nodes, -result.bytes)):
        if result.nodes or not graphs:
            by_line.setdefault(result.source, result)
    return tuple(by_line.values())


def _registers(callee: str) -> bool:
    return callee.startswith("register_") and callee.endswith("hook")
