"""Every nanosecond of the window in exactly one line (docs/design.md, section 4), by set arithmetic."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.budget.idle import IDLE_CAUSES, Gaps, HostTime, gaps_of
from gobrrr.analysis.events.intervals import NO_SPANS, Spans, clip, complement, covered, exclusive, subtract, union
from gobrrr.analysis.events.steps import StepWindow
from gobrrr.analysis.pricing.price import Priced, WorkClass
from gobrrr.model.diagnosis import BudgetLine, Line
from gobrrr.model.events import I8, EventTable

Key = tuple[str, str | None]

LINE_ORDER: tuple[Line, ...] = ("compute", "memory", "below_roof", "unpriced", "communication", "transfer", "overhead")
"""The lines of a budget, in the order in which they are shown."""


@dataclass(frozen=True)
class DeviceBudget:
    """One device's window. `lines`: (line, cause or side) -> ns over the whole window; they sum to its length.

    `work`, `own_ns`: the device's pieces of work (indices into `priced.links.device`) and the time that counts for each
    of them; where kernels overlap, an instant belongs to the one that began first. `pieces`: how many pieces of work
    all devices have. `gaps`: the idle stretches.
    """

    device: int
    lines: dict[Key, float]
    work: I8
    own_ns: I8
    pieces: int
    gaps: Gaps
    busy_ns: int

    @property
    def owned_ns(self) -> I8:
        """`own_ns` for the work of all devices (parallel to `priced.links.device`): 0 for other devices' work."""
        # computed each time: stored for each of thousands of devices it would fill the memory
        owned = np.zeros(self.pieces, dtype=np.int64)
        owned[self.work] = self.own_ns
        return owned


def device_budget(
    events: EventTable, priced: Priced, steps: StepWindow, device: int, host: HostTime | None = None
) -> DeviceBudget:
    """The budget of `device` over the window of `steps`. `host`: the result of `host_time`, where several devices
    share it."""
    rows = priced.links.device
    on_device = np.flatnonzero(events.device[rows] == device)
    begin = events.start_ns[rows[on_device]]
    start = np.clip(begin, steps.start, steps.stop)
    stop = np.clip(begin + events.duration_ns[rows[on_device]], steps.start, steps.stop)
    lines: dict[Key, float] = defaultdict(float)
    own = np.zeros(len(on_device), dtype=np.int64)
    busy = NO_SPANS
    for kind in WorkClass:
        of_kind = priced.kind[on_device] == kind
        spans = union(start[of_kind], stop[of_kind])
        if kind is WorkClass.COMPUTE:
            own[of_kind] = _owned(start[of_kind], stop[of_kind])
            _add_compute(lines, priced, on_device[of_kind], own[of_kind], events)
        elif exposed := subtract(spans, busy).length:
            lines["communication" if kind is WorkClass.COMMUNICATION else "transfer", None] += exposed
            own[of_kind] = _owned_outside(start[of_kind], stop[of_kind], busy)
        busy = union(np.concatenate([busy.start, spans.start]), np.concatenate([busy.stop, spans.stop]))
    idle = complement(clip(busy, steps.start, steps.stop), steps.start, steps.stop)
    gaps = gaps_of(events, priced.links, idle, device, host)
    for cause, ns in zip(IDLE_CAUSES, gaps.ns.sum(axis=0).tolist(), strict=True):
        if ns:
            lines["overhead", cause] += ns
    return DeviceBudget(device, dict(lines), on_device, own, len(rows), gaps, busy.length)


def lines_of(budget: DeviceBudget, priced: Priced, events: EventTable, wanted: NDArray[np.bool_]) -> dict[Key, float]:
    """The budget's lines for a part of the device's work. `wanted`: a flag for each of `priced.links.device`."""
    lines: dict[Key, float] = defaultdict(float)
    for kind in WorkClass:
        at = np.flatnonzero(wanted[budget.work] & (priced.kind[budget.work] == kind))
        if kind is WorkClass.COMPUTE:
            _add_compute(lines, priced, budget.work[at], budget.own_ns[at], events)
        else:
            lines["communication" if kind is WorkClass.COMMUNICATION else "transfer", None] += float(
                budget.own_ns[at].sum()
            )
    return dict(lines)


def _owned(start: I8, stop: I8) -> I8:
    """Exclusive nanoseconds of each interval, in their order."""
    order = np.lexsort((np.arange(len(start)), start))
    result = np.empty(len(start), dtype=np.int64)
    result[order] = exclusive(start[order], stop[order])
    return result


def _owned_outside(start: I8, stop: I8, busy: Spans) -> I8:
    """`_owned`, less what `busy` covers."""
    order = np.argsort(start, kind="stable")
    reach = np.maximum.accumulate(stop[order])
    opens = np.maximum(start[order], np.concatenate([[start[order][0]], reach[:-1]])) if len(order) else start
    result = np.zeros(len(start), dtype=np.int64)
    own = np.maximum(stop[order] - opens, 0)
    result[order] = own - covered(busy, np.minimum(opens, stop[order]), stop[order])
    return result


def _add_compute(lines: dict[Key, float], priced: Priced, work: I8, ns: I8, events: EventTable) -> None:
    """Add compute kernels: the floor counts to its bound, the rest as below the roof; without a floor, as unpriced."""
    own = ns.astype(np.float64)
    duration = events.duration_ns[priced.links.device[work]].astype(np.float64)
    floor = priced.floor_ns[work]
    known = ~np.isnan(floor)
    share = np.divide(own, duration, out=np.zeros_like(own), where=duration > 0)
    at_roof = np.where(known, np.minimum(floor * share, own), 0.0)
    used, which = np.unique(priced.group[work], return_inverse=True)
    floors = [priced.groups[group].floor for group in used.tolist()]
    bound = np.array([floor_.bound if floor_ else "" for floor_ in floors] or [""])[np.asarray(which).reshape(-1)]
    for side in ("compute", "memory", "communication", "transfer"):
        mask = known & (bound == side)
        if not mask.any():
            continue
        line = side if side in ("compute", "memory") else "memory"
        lines[line, None] += float(at_roof[mask].sum())
        lines["below_roof", line] += float((own - at_roof)[mask].sum())
    lines["unpriced", None] += float(own[~known].sum())


def budget_lines(sums: dict[Key, float], wall: float) -> list[BudgetLine]:
    """The non-empty lines of a step of `wall` ns, in the budget's order."""
    order = {str(line): at for at, line in enumerate(LINE_ORDER)}
    ranked = sorted(sums.items(), key=lambda item: (order[item[0][0]], -item[1]))
    return [
        BudgetLine(line=line, cause=cause, ns=ns, share=ns / wall if wall > 0 else 0.0)  # type: ignore[arg-type]
        for (line, cause), ns in ranked
        if ns > 0
    ]
