"""The model of a step's run a second time, as rules: each says what may not be before what.

The rules are applied over and over until nothing moves. Slow, and nothing of gobrrr.analysis.replay.simulator is used.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.replay.graph import StepGraph
from gobrrr.doors.pipeline import evidence_of
from gobrrr.model.events import EventTable
from gobrrr.observe.trace import read_trace
from tests.traces import Trace

Point = tuple[str, int]
"""("through", place): the host is through with what is at that place of its list; ("begin" | "end", work)."""

START: Point = ("start", 0)


@dataclass(frozen=True)
class Slow:
    """When each piece of work begins, and when the host goes on after each wait."""

    begin: list[float]
    resumed: list[float]


def slowly(graph: StepGraph, queue: int = 1_024) -> Slow:
    """The least times that keep all rules."""
    things, rules = _rules(graph, queue)
    when: dict[Point, float] = {START: 0.0}
    moved = True
    while moved:
        moved = False
        for later, earlier, ns in rules:
            if earlier in when and when[earlier] + ns > when.get(later, -np.inf):
                when[later] = when[earlier] + ns
                moved = True
    count = len(graph.duration)
    resumed = [when["through", things.index(("wait", index))] for index in range(len(graph.waits))]
    return Slow([when["begin", index] for index in range(count)], resumed)


def host_time(graph: StepGraph, when: int) -> float:
    """What the host needs until an instant of the recorded clock, one stretch after the other."""
    if not len(graph.at):
        return float(when)
    needed = 0.0
    for first, last, left in zip(graph.at[:-1].tolist(), graph.at[1:].tolist(), graph.left.tolist(), strict=True):
        needed += left * min(max((when - first) / (last - first), 0.0), 1.0)
    return needed + min(when - int(graph.at[0]), 0) + max(when - int(graph.at[-1]), 0)


def _rules(graph: StepGraph, queue: int) -> tuple[list[Point], list[tuple[Point, Point, float]]]:
    """(what the host comes to, in turn; the rules: `later` is at least `ns` after `earlier`)."""
    starts = graph.events.start_ns[graph.links.device]
    turn: list[tuple[float, int, Point, float]] = []
    for index in range(len(graph.duration)):
        own = host_time(graph, int(graph.issued[index]))
        if graph.ahead[index]:
            own = float(starts[index] - graph.at[0]) if len(graph.at) else own
        turn.append((-1.0 if graph.ahead[index] else float(graph.called[index]), 0, ("work", index), own))
    for index, row in enumerate(graph.waits.tolist()):
        called = int(graph.events.start_ns[row])
        turn.append((float(called), 1, ("wait", index), host_time(graph, called)))
    turn.sort(key=lambda one: (one[0], one[1], one[2][1]))
    rules: list[tuple[Point, Point, float]] = []
    seen: set[int] = set()
    launched: list[int] = []
    last: dict[int, int] = {}
    for place, (_, _, (what, index), own) in enumerate(turn):
        through = ("through", place)
        extra = float(graph.own[index]) if what == "wait" and not graph.cut[index] else 0.0
        rules.append((through, START, own + extra))
        if place:
            rules.append((through, ("through", place - 1), own - turn[place - 1][3] + extra))
        if what == "wait":
            target = int(graph.awaited[index])
            if target in seen and not graph.cut[index]:
                rules.append((through, ("end", target), float(graph.reaction[index]) + extra))
            continue
        rules += _of_work(graph, index, through, last, seen)
        seen.add(index)
        if graph.gone[index]:
            continue
        if len(launched) >= queue:
            rules.append((through, ("begin", launched[len(launched) - queue]), 0.0))
        launched.append(index)
        last[int(graph.stream[index])] = index
    return [one[2] for one in turn], rules


def _of_work(
    graph: StepGraph, index: int, through: Point, last: dict[int, int], seen: set[int]
) -> list[tuple[Point, Point, float]]:
    """What one piece of work waits for: the work before it on its stream, work of another one, and its launch."""
    begin, end = ("begin", index), ("end", index)
    gone, held = bool(graph.gone[index]), float(graph.held[index])
    lag = 0.0 if gone else held
    rules = [(end, begin, 0.0 if gone else float(graph.duration[index])), (begin, START, lag)]
    if not gone:
        rules.append((begin, through, float(graph.latency[index]) + held))
    before, other = last.get(int(graph.stream[index])), int(graph.after[index])
    if before is not None:
        rules.append((begin, ("end", before), float(graph.gap[before]) + lag))
    if other in seen:
        rules.append((begin, ("end", other), lag))
    return rules


def arrays(graph: StepGraph) -> dict[str, np.ndarray]:
    """Copies of all that a graph consists of, its events' columns as well."""
    kept = {f"graph.{one.name}": getattr(graph, one.name) for one in fields(StepGraph)}
    kept |= {f"events.{one.name}": getattr(graph.events, one.name) for one in fields(EventTable)}
    kept |= {f"links.{one.name}": getattr(graph.links, one.name) for one in fields(type(graph.links))}
    return {name: one.copy() for name, one in kept.items() if isinstance(one, np.ndarray)}


def same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    """Whether two graphs' arrays are equal, element by element."""
    return left.keys() == right.keys() and all(
        np.array_equal(left[name], right[name], equal_nan=left[name].dtype.kind == "f") for name in left
    )


def unprofiled(trace: Trace, folder: Path) -> Evidence:
    """The evidence of a trace whose times are the program's own: recording cost nothing, the wall is as recorded."""
    rank = read_trace(str(trace.write(folder))).ranks[0]
    return evidence_of(replace(rank, ends=(1.0, 1.0)))[0]


def every(graph: StepGraph) -> np.ndarray:
    """All work of a graph, by index."""
    return np.arange(len(graph.duration))


def named(evidence: Evidence, name: str) -> np.ndarray:
    """The work whose kernel is called that, by index."""
    return np.array([at for at, row in enumerate(evidence.priced.links.device) if name in evidence.events.name_of(row)])
