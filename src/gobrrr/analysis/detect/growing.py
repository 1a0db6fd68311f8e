"""All that grows in a run, put together: what the condition tells and its remedy goes by."""

from __future__ import annotations

from dataclasses import dataclass

from gobrrr.analysis.detect.rising import (
    LEAST_STEPS,
    Holding,
    Rising,
    Turns,
    bytes_held,
    bytes_kept,
    hooks_held,
    longer_turns,
    nodes_held,
    rising,
)
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.recording import Kept


@dataclass(frozen=True)
class Grown:
    """`results`: those that hold the graphs, or the bytes where these alone rise; `hooked`: lines that register hooks.

    `filling`: bytes of results that each step keeps, where no graph is kept with them.
    """

    rising: tuple[Rising, ...]
    turns: Turns | None
    nodes: Holding | None
    hooks: Holding | None
    bytes: Holding | None
    filling: Holding | None
    results: tuple[Kept, ...]
    hooked: tuple[str, ...]

    @property
    def kept(self) -> bool:
        """Whether something is held that becomes more with each step, whatever it takes now."""
        return self.nodes is not None or self.hooks is not None


def grown(evidence: Evidence) -> Grown | None:
    """What grows; None where that can't be told: a trace of fewer than three marked steps."""
    steps, seen = evidence.recorded_steps, evidence.profile.seen
    if seen is None and (not steps.marked or steps.count < LEAST_STEPS):
        return None
    nodes, hooks = nodes_held(evidence), hooks_held(evidence)
    later = seen.later if seen is not None else None
    filling = bytes_kept(evidence) if nodes is None else None
    held = nodes is not None or filling is not None
    results = _distinct(later.kept, graphs=nodes is not None) if later is not None and held else ()
    lines = seen.lines if seen is not None and hooks is not None else ()
    return Grown(
        rising=rising(evidence),
        turns=longer_turns(evidence),
        nodes=nodes,
        hooks=hooks,
        bytes=bytes_held(evidence),
        filling=filling,
        results=results,
        hooked=tuple(dict.fromkeys(line.source for line in lines if _registers(line.callee))),
    )


def _distinct(kept: tuple[Kept, ...], *, graphs: bool) -> tuple[Kept, ...]:
    """One result a line: of a chain before one that is only kept, the longest graph first, then the most bytes."""
    found: dict[str | None, Kept] = {}
    for one in sorted(kept, key=lambda one: (not one.chain, -one.nodes, -one.bytes)):
        if one.nodes or not graphs:
            found.setdefault(one.source, one)
    return tuple(found.values())


def _registers(callee: str) -> bool:
    return callee.startswith("register_") and callee.endswith("hook")
