"""Sums over a step: coverage, totals, the table of calls, the speed of light."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events.calls import HostCall, classify
from gobrrr.analysis.events.links import Links
from gobrrr.analysis.events.steps import StepWindow
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.host_loops import together_floors
from gobrrr.analysis.pricing.fusion import tensors
from gobrrr.analysis.pricing.price import CallGroup, Priced, WorkClass
from gobrrr.analysis.pricing.roofline import floor, joined
from gobrrr.analysis.pricing.texts import shapes_text
from gobrrr.cost import contraction_flop
from gobrrr.cost.traffic import dram
from gobrrr.model.diagnosis import BudgetLine, Coverage, OpRow, Totals
from gobrrr.model.events import EventKind, EventTable
from gobrrr.model.machine import Machine
from gobrrr.model.work import DTYPE_BYTES, Work

MOST_TABLE_ROWS = 400
"""How many rows the tables of operations and of kernels hold. Chosen."""


def in_steps(events: EventTable, links: Links, steps: StepWindow) -> NDArray[np.bool_]:
    """One flag per piece of device work: launched within the steps or, where no launch is recorded, begun in them."""
    start = events.start_ns[links.device]
    when = np.where(links.launch >= 0, events.start_ns[np.maximum(links.launch, 0)], start)
    begun = (start >= steps.start) & (start < steps.stop)
    if not steps.marked:
        return begun
    return np.where(links.launch >= 0, (when >= steps.begins[0]) & (when < (steps.host_stop or steps.stop)), begun)


def coverage(events: EventTable, priced: Priced, steps: StepWindow, budget: Sequence[BudgetLine]) -> Coverage:
    """The share of the device's compute work that has a floor: of its time in the budget, its launches and its bytes.

    Communication and transfers are lines of their own and need no floor. `budget`: empty for a trace without device
    work.
    """
    inside = in_steps(events, priced.links, steps) & (priced.kind == WorkClass.COMPUTE)
    if not inside.any():
        return Coverage(device_time=None, calls=None, bytes=None)
    return Coverage(
        device_time=_time_covered(budget),
        calls=float(np.isfinite(priced.floor_ns[inside]).mean()),
        bytes=_bytes_covered(priced, inside),
    )


def _time_covered(budget: Sequence[BudgetLine]) -> float | None:
    priced = sum(line.ns for line in budget if line.line in ("compute", "memory", "below_roof"))
    total = priced + sum(line.ns for line in budget if line.line == "unpriced")
    return priced / total if total > 0 else None


def _bytes_covered(priced: Priced, inside: NDArray[np.bool_]) -> float | None:
    """The share of the bytes that belongs to calls with a floor; None where no bytes are known.

    For a call without known work, the size of its tensors counts.
    """
    known = unknown = 0.0
    for group, count in zip(priced.groups, call_counts(priced, inside), strict=True):
        if group.floor is not None:
            known += (group.work.bytes or 0.0) * count
        elif group.work.bytes is not None:
            unknown += group.work.bytes * count
        else:
            sizes = [math.prod(tensor.shape) * DTYPE_BYTES.get(tensor.dtype, 0) for tensor in tensors(group.call)]
            unknown += sum(sizes) * count
    return known / (known + unknown) if known + unknown > 0 else None


def call_counts(priced: Priced, inside: NDArray[np.bool_]) -> NDArray[np.float64]:
    """How many calls of each group have work that is marked in `inside`. Work without an owner is a call of its own."""
    index = np.flatnonzero(inside)
    key = np.where(priced.instance[index] >= 0, priced.instance[index], -2 - index)
    _, first = np.unique(key, return_index=True)
    return np.bincount(priced.group[index[first]], minlength=len(priced.groups)).astype(np.float64)


def totals(
    events: EventTable,
    priced: Priced,
    steps: StepWindow,
    spared_bytes: float | None,
    spared_at_most: float | None,
    machine: Machine | None,
) -> Totals:
    """Sums of one step: launches, and FLOPs and bytes of the calls whose work is known.

    None where no work is known, and where a sum of 0 would only mean that the calls with FLOPs or bytes are not known.
    `spared_bytes`, `spared_at_most`: what fusion saves, as expected and at the most.
    """
    inside = in_steps(events, priced.links, steps)
    counts = call_counts(priced, inside)
    whole = _all_known(priced, inside)
    known = [(group.work, count) for group, count in zip(priced.groups, counts, strict=True) if group.work.known]
    moved = [
        (group.work.bytes, count)
        for group, count in zip(priced.groups, counts, strict=True)
        if group.work.known and group.work.link == "memory"
    ]
    as_run = _sum(moved, steps.count, whole)

    def less(spared: float | None) -> float | None:
        return max(as_run - spared, 0.0) if as_run is not None and spared is not None else None

    def flops(what: Callable[[Work], float | None]) -> float | None:
        return _sum([(what(work), count) for work, count in known], steps.count, whole)

    return Totals(
        flop=flops(lambda work: work.flop),
        flop_executed=flops(lambda work: work.executed_flop),
        flop_model=flops(lambda work: work.needed_flop),
        flop_contraction=flops(contraction_flop),
        bytes_as_run=as_run,
        bytes_fused=less(spared_bytes),
        bytes_compulsory=less(spared_at_most),
        bytes_dram=_sum(_at_dram(priced, counts, machine), steps.count, whole) if machine else None,
        launches=_hostcalls_of(events, steps, HostCall.LAUNCH),
        syncs=_hostcalls_of(events, steps, HostCall.WAIT),
    )


def _at_dram(priced: Priced, counts: NDArray[np.float64], machine: Machine) -> list[tuple[float | None, float]]:
    """(bytes that a call moves through DRAM on this machine, number of calls) of each group whose work is known."""
    cache = machine.cache_bytes.value if machine.cache_bytes else None
    pairs: list[tuple[float | None, float]] = []
    for group, count in zip(priced.groups, counts, strict=True):
        if count and group.work.known and group.work.link == "memory":
            moved = dram(group.call, group.work, cache_bytes=cache, processors=machine.processors)
            pairs.append(((moved.read_bytes or 0.0) + (moved.written_bytes or 0.0), count))
    return pairs


def _all_known(priced: Priced, inside: NDArray[np.bool_]) -> bool:
    """Whether the work of all compute calls is known."""
    counts = call_counts(priced, inside & (priced.kind == WorkClass.COMPUTE))
    return all(group.work.known for group, count in zip(priced.groups, counts, strict=True) if count)


def _sum(pairs: list[tuple[float | None, float]], steps: int, whole: bool) -> float | None:
    """The sum of value times count, per step. `whole`: all work is known, so that a sum of 0 is no gap."""
    known = [value * count for value, count in pairs if value is not None and count]
    return float(sum(known) / steps) if known and (whole or any(known)) else None


def _hostcalls_of(events: EventTable, steps: StepWindow, wanted: HostCall) -> float | None:
    """Runtime calls of a kind in a step; None where the trace records no runtime calls."""
    rows = events.of(EventKind.RUNTIME)
    if not len(rows):
        return None
    # where no step is marked, the window begins with the device's first work, and its launch lies before that
    inside = events.start_ns[rows] < steps.stop
    if steps.marked:
        inside &= events.start_ns[rows] >= steps.begins[0]
        inside &= events.start_ns[rows] < (steps.host_stop or steps.stop)
    matching = classify(events.names)[events.name[rows]] == wanted
    return float((inside & matching).sum()) / steps.count


def op_rows(events: EventTable, priced: Priced, steps: StepWindow) -> tuple[list[OpRow], NDArray[np.int64]]:
    """(the kinds of calls of a step, most device time first; the row of each group, -1 beyond `MOST_TABLE_ROWS`)."""
    inside = in_steps(events, priced.links, steps)
    ns = np.bincount(
        priced.group[inside],
        weights=events.duration_ns[priced.links.device[inside]],
        minlength=len(priced.groups),
    )
    counts = call_counts(priced, inside)
    order = np.argsort(-ns, kind="stable")[:MOST_TABLE_ROWS]
    order = order[counts[order] > 0]
    place = np.full(len(priced.groups), -1, dtype=np.int64)
    place[order] = np.arange(len(order))
    return [_row(priced.groups[index], counts[index], ns[index], steps.count) for index in order], place


def _row(group: CallGroup, calls: float, ns: float, steps: int) -> OpRow:
    work, least = group.work, group.floor
    return OpRow(
        op=group.call.name or (group.call.kernels[0] if group.call.kernels else "?"),
        shapes=shapes_text(group) or "",
        family=work.family,
        calls=calls / steps,
        ns=float(ns) / steps,
        floor_ns=least.ns * calls / steps if least else None,
        bound=least.bound if least else None,
        flop=work.flop * calls / steps if work.flop is not None else None,
        bytes=work.bytes * calls / steps if work.bytes is not None else None,
        roof=least.roof if least else None,
        kernel=group.call.kernels[0] if group.call.kernels else "",
        note=work.note,
    )


CONTRADICTION = 1.05
"""A kernel faster than its floor by more than this factor is a contradiction, not measurement noise. Chosen."""


def contradictions(events: EventTable, priced: Priced) -> tuple[float, str]:
    """(share of device time in kernels faster than their floor, the call with most of that time).

    A floor that rests on a lower bound of a ceiling can't be contradicted: the ceiling may be higher.
    """
    duration = events.duration_ns[priced.links.device].astype(np.float64)
    total = float(duration.sum())
    floors = np.array([group.floor.ns if group.floor else np.nan for group in priced.groups] or [np.nan])
    least = np.array(
        [group.floor.least_ns if group.floor and not group.floor.at_most else 0.0 for group in priced.groups] or [0.0]
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        beaten = duration * CONTRADICTION < priced.floor_ns * (least / floors)[priced.group]
    rows = np.flatnonzero(beaten)
    if not len(rows) or not total:
        return 0.0, ""
    worst = np.bincount(priced.group[rows], weights=duration[rows])
    return float(worst.sum()) / total, priced.groups[int(worst.argmax())].call.name or "a copy"


def lower_bounds(events: EventTable, priced: Priced, steps: StepWindow) -> tuple[float, list[str]]:
    """(share of the compute time whose floor rests on a lower bound of a ceiling, the roofs, most time first)."""
    inside = in_steps(events, priced.links, steps) & (priced.kind == WorkClass.COMPUTE)
    duration = events.duration_ns[priced.links.device].astype(np.float64) * inside
    ns = np.bincount(priced.group, weights=duration, minlength=len(priced.groups))
    by_roof: dict[str, float] = {}
    for group, spent in zip(priced.groups, ns.tolist(), strict=True):
        if group.floor is not None and group.floor.at_most and spent:
            by_roof[group.floor.roof] = by_roof.get(group.floor.roof, 0.0) + spent
    total = float(duration.sum())
    return (sum(by_roof.values()) / total if total else 0.0), sorted(by_roof, key=lambda roof: -by_roof[roof])


def speed_of_light(evidence: Evidence, machine: Machine | None) -> float | None:
    """Least device time of one step with perfect fusion and no overhead, in ns; None if too little is priced.

    A chain of fusible calls needs max(its FLOPs at their peaks, its inputs and outputs at bandwidth). So do the
    independent turns of a loop together. Every other call needs its own floor.
    """
    calls = evidence.calls
    if machine is None or not len(calls):
        return None
    floors = together_floors(evidence)
    known = ~np.isnan(floors)
    if calls.ns[known].sum() < LEAST_PRICED * calls.ns.sum():
        return None
    total = float(np.nansum(floors))
    for chain in evidence.fusion.chains:
        works = [evidence.group_of(index).work for index in chain.calls]
        apart = sum(float(floors[index]) for index in chain.calls)
        together = floor(joined(works, chain.spared_high), machine)
        if together is not None and not np.isnan(apart):
            total -= max(apart - together.ns, 0.0)
    return total / evidence.steps.count


LEAST_PRICED = 0.8
"""Where less than this share of the device time is priced, only what is certain is said (docs/design.md, section 5)."""
