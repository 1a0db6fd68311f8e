"""The data of the step's pictures: one step's work and gaps as columns, device time by module, the roofs."""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from gobrrr.analysis.budget.idle import IDLE_CAUSES
from gobrrr.analysis.events.intervals import latest
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import WorkClass
from gobrrr.model.diagnosis import ModuleRow, OpRow, Roof, Timeline
from gobrrr.model.events import ABSENT
from gobrrr.model.machine import Ceiling, Machine

MOST_TIMELINE_WORK = 20_000
"""The most pieces of work in a timeline. Chosen, not measured: a page draws so many fluidly, and the file stays small.
"""


def timeline(evidence: Evidence, op_of_group: NDArray[np.int64]) -> Timeline:
    """The step whose length is nearest to the mean. `op_of_group`: the row of each group in `Diagnosis.ops`, or -1."""
    start, stop = typical_step(evidence)
    events, priced = evidence.replayed, evidence.priced
    rows = priced.links.device
    begin, end = events.start_ns[rows], events.end_ns[rows]
    inside = np.flatnonzero((events.device[rows] == evidence.budget.device) & (begin < stop) & (end > start))
    inside = inside[np.argsort(begin[inside], kind="stable")]
    shown, left_out = inside[:MOST_TIMELINE_WORK], max(len(inside) - MOST_TIMELINE_WORK, 0)
    low, high = np.clip(begin[shown], start, stop), np.clip(end[shown], start, stop)
    streams, stream = np.unique(events.stream[rows[shown]], return_inverse=True)
    gaps = evidence.budget.gaps
    idle = (gaps.start < stop) & (gaps.stop > start)
    gap_low, gap_high = np.clip(gaps.start[idle], start, stop), np.clip(gaps.stop[idle], start, stop)
    return Timeline(
        device=evidence.budget.device,
        length_ns=stop - start,
        streams=streams.tolist(),
        kinds=[kind.name.lower() for kind in WorkClass],
        causes=list(IDLE_CAUSES),
        start_ns=(low - start).tolist(),
        duration_ns=(high - low).tolist(),
        stream=np.asarray(stream).reshape(-1).tolist(),
        op=op_of_group[priced.group[shown]].tolist(),
        kind=priced.kind[shown].tolist(),
        gap_start_ns=(gap_low - start)[:MOST_TIMELINE_WORK].tolist(),
        gap_duration_ns=(gap_high - gap_low)[:MOST_TIMELINE_WORK].tolist(),
        gap_cause=gaps.ns[idle].argmax(axis=1)[:MOST_TIMELINE_WORK].tolist(),
        left_out=left_out,
    )


def typical_step(evidence: Evidence) -> tuple[int, int]:
    """(begin, end) of the step whose length is nearest to the mean; the device's work decides the edges."""
    steps = evidence.steps
    if steps.count < 2 or len(steps.begins) != steps.count:
        return steps.start, steps.start + max((steps.stop - steps.start) // max(steps.count, 1), 1)
    links, events = evidence.priced.links, evidence.replayed
    device = links.device
    when = np.where(links.launch >= 0, events.start_ns[np.maximum(links.launch, 0)], events.start_ns[device])
    begins = latest(when, events.end_ns[device], np.array(steps.begins[1:], dtype=np.int64))
    edges = [steps.start, *begins.tolist(), steps.stop]
    lengths = np.diff(edges)
    nearest = int(np.argmin(np.abs(lengths - steps.wall_ns)))
    return edges[nearest], max(edges[nearest + 1], edges[nearest] + 1)


def modules(evidence: Evidence, op_of_group: NDArray[np.int64]) -> list[ModuleRow]:
    """Device time by nn.Module, outermost first, and outside of all modules; empty where no module is known.

    An operation of the backward pass counts where its forward operation does.
    """
    calls = evidence.calls
    sums: dict[tuple[str, ...], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0, 0.0])
    ops: dict[tuple[str, ...], set[int]] = defaultdict(set)
    rows = op_of_group[calls.group].tolist()
    for index, row in enumerate(calls.op.tolist()):
        path = evidence.modules.of(row)
        bound = evidence.group_of(index).floor
        side = {"compute": 2, "memory": 3}.get(bound.bound if bound else "", 4)
        for depth in range(1, len(path) + 1) if path else (0,):
            total = sums[path[:depth]]
            total[0] += 1
            total[1] += calls.ns[index]
            total[side] += calls.ns[index]
            ops[path[:depth]].add(rows[index])
    if not any(sums):
        return []
    count = evidence.steps.count
    return [
        ModuleRow(
            path=list(path),
            calls=calls_ / count,
            ns=ns / count,
            compute_ns=compute / count,
            memory_ns=memory / count,
            other_ns=other / count,
            ops=sorted(ops[path] - {ABSENT}),
        )
        for path, (calls_, ns, compute, memory, other) in sorted(sums.items())
    ]


def with_modules(rows: list[OpRow], evidence: Evidence, op_of_group: NDArray[np.int64]) -> list[OpRow]:
    """The rows, each with the innermost module of most of its device time; None where that is in no module."""
    calls = evidence.calls
    ns: dict[int, dict[str | None, float]] = defaultdict(lambda: defaultdict(float))
    for row, op, spent in zip(op_of_group[calls.group].tolist(), calls.op.tolist(), calls.ns.tolist(), strict=True):
        ns[row][evidence.module(op)] += spent
    longest = {row: max(spent, key=lambda name: spent[name]) for row, spent in ns.items()}
    return [replace(row, module=longest.get(index)) for index, row in enumerate(rows)]


def roofs(machine: Machine | None) -> list[Roof]:
    """The ceilings that a roofline shows, highest first."""
    if machine is None:
        return []
    compute = [
        _roof(f"{dtype} {unit}", "compute", peak)
        for unit, peaks in (("matrix", machine.matrix_flop_per_s), ("vector", machine.vector_flop_per_s))
        for dtype, peak in peaks.items()
    ]
    levels = (("cache", machine.cache_bytes_per_s), ("DRAM", machine.memory_bytes_per_s))
    memory = [_roof(name, "memory", ceiling) for name, ceiling in levels if ceiling is not None]
    return sorted(compute, key=lambda roof: -roof.value) + memory


def _roof(name: str, kind: Literal["compute", "memory"], ceiling: Ceiling) -> Roof:
    return Roof(
        name=name,
        kind=kind,
        value=ceiling.value,
        provenance=ceiling.provenance,
        source=ceiling.source,
        at_least=ceiling.at_least,
    )
