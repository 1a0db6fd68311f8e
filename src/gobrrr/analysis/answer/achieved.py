"""The article's first check: the FLOP/s that a step achieves, as a share of the peaks of its data types."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from gobrrr import units
from gobrrr.analysis.answer.summary import call_counts, in_steps
from gobrrr.analysis.events.steps import StepWindow
from gobrrr.analysis.pricing.price import Priced, WorkClass
from gobrrr.analysis.pricing.roofline import matrix_peak, vector_type
from gobrrr.model.events import EventTable
from gobrrr.model.machine import Ceiling, Machine

LEAST_NAMED_SHARE = 0.05
"""A unit that does less than this share of the work is not named. Chosen, not measured."""

HOW_TO_MEASURE_PEAK = "`gobrrr machine`, run on it, measures it or says why it can't"
"""How to learn a peak that is not known."""


@dataclass(frozen=True)
class Achieved:
    """The FLOPs of one step, and the time that they need at the peaks of the units that do them.

    `share_of`: each unit's share of `peak_ns`. `without`: the FLOPs of units whose peak is not known. `at_least`: a
    peak may be higher than is known; `peak_ns` is then an upper bound.
    """

    flop: float
    peak_ns: float
    share_of: dict[str, float]
    without: dict[str, float]
    at_least: bool


def achieved(events: EventTable, priced: Priced, steps: StepWindow, machine: Machine | None) -> Achieved | None:
    """The FLOPs of one step beside the peaks; None where no FLOP is counted or no machine is known."""
    if machine is None:
        return None
    counts = call_counts(priced, in_steps(events, priced.links, steps) & (priced.kind == WorkClass.COMPUTE))
    flop: dict[str, float] = defaultdict(float)
    peaks: dict[str, Ceiling | None] = {}
    for group, count in zip(priced.groups, counts.tolist(), strict=True):
        work = group.work
        if not count or not work.known:
            continue
        if work.matrix_flop:
            peak, unit = matrix_peak(machine, work.matrix_dtype)
            flop[unit] += work.matrix_flop * count / steps.count
            peaks[unit] = peak
        if work.vector_flop:
            dtype = vector_type(work)
            flop[f"{dtype} vector"] += work.vector_flop * count / steps.count
            peaks[f"{dtype} vector"] = machine.vector_flop_per_s.get(dtype)
    ns = {unit: amount / peak.value * 1e9 for unit, amount in flop.items() if (peak := peaks[unit]) is not None}
    whole = sum(ns.values())
    if not flop:
        return None
    return Achieved(
        flop=sum(flop.values()),
        peak_ns=whole,
        share_of={unit: unit_ns / whole for unit, unit_ns in ns.items()} if whole else {},
        without={unit: amount for unit, amount in flop.items() if peaks[unit] is None},
        at_least=any(peak is not None and bool(peak.at_least) for peak in peaks.values()),
    )


def in_words(reached: Achieved, wall_ns: float, least: str) -> str:
    """The check as a line of evidence. `least`: "at least " where not all FLOPs of the step are counted."""
    rate = f"achieved {least}{units.rate(reached.flop / wall_ns * 1e9, 'FLOP')}"
    if sum(reached.without.values()) > LEAST_NAMED_SHARE * reached.flop or not reached.peak_ns:
        missing = max(reached.without, key=lambda unit: reached.without[unit], default="type it computes in").split()[0]
        return f"{rate}; the peak of {missing} on this device is not known: {HOW_TO_MEASURE_PEAK}"
    share = reached.peak_ns / wall_ns
    named = [
        unit for unit, part in sorted(reached.share_of.items(), key=lambda item: -item[1]) if part >= LEAST_NAMED_SHARE
    ]
    dtypes = list(dict.fromkeys(unit.split()[0] for unit in named))
    peaks = f"the {dtypes[0]} peak" if len(named) == 1 else f"the peaks of its types ({', '.join(named)})"
    if share > 1:
        return f"{rate}, more than {peaks} that {'is' if len(named) == 1 else 'are'} known of this device"
    if reached.at_least:
        return f"{rate}, at most {units.percent(share)} of {peaks}; the device may do more than was measured"
    return f"{rate}, {units.percent(share)} of {peaks}"
