"""The article's first check: the FLOP/s that a step achieves, over the peaks of the types that it computes in."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from gobrrr import units
from gobrrr.analysis.answer.summary import calls_of, in_steps
from gobrrr.analysis.events.steps import Steps
from gobrrr.analysis.pricing.price import Class, Priced
from gobrrr.analysis.pricing.roofline import matrix_peak, vector_type
from gobrrr.model.events import EventTable
from gobrrr.model.machine import Ceiling, Machine

NAMED = 0.05
"""A type in which less than this share of the work is done is not named."""

MEASURED = "`gobrrr machine`, run on it, measures it or says why it can't"


@dataclass(frozen=True)
class Achieved:
    """The FLOPs of one step by the unit that does them, and the time that they need at the peaks of those units.

    `share_of`: what each unit's FLOPs need, as a share of `peak_ns`. `without`: units whose peak is not known, with
    their FLOPs. `at_least`: a peak may be higher than is known, so that the time is at most that.
    """

    flop: float
    peak_ns: float
    share_of: dict[str, float]
    without: dict[str, float]
    at_least: bool


def achieved(events: EventTable, priced: Priced, steps: Steps, machine: Machine | None) -> Achieved | None:
    """None where no FLOP is counted, or no machine is known."""
    if machine is None:
        return None
    counts = calls_of(priced, in_steps(events, priced.links, steps) & (priced.kind == Class.COMPUTE))
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
        share_of={unit: one / whole for unit, one in ns.items()} if whole else {},
        without={unit: amount for unit, amount in flop.items() if peaks[unit] is None},
        at_least=any(peak is not None and bool(peak.at_least) for peak in peaks.values()),
    )


def in_words(found: Achieved, wall_ns: float, least: str) -> str:
    """The check as a line of evidence. `least`: "at least " where not all FLOPs of the step are counted."""
    rate = f"achieved {least}{units.rate(found.flop / wall_ns * 1e9, 'FLOP')}"
    if sum(found.without.values()) > NAMED * found.flop or not found.peak_ns:
        missing = max(found.without, key=lambda one: found.without[one], default="type it computes in").split()[0]
        return f"{rate}; the peak of {missing} on this device is not known: {MEASURED}"
    share = found.peak_ns / wall_ns
    named = [unit for unit, part in sorted(found.share_of.items(), key=lambda item: -item[1]) if part >= NAMED]
    dtypes = list(dict.fromkeys(unit.split()[0] for unit in named))
    peaks = f"the {dtypes[0]} peak" if len(named) == 1 else f"the peaks of its types ({', '.join(named)})"
    if share > 1:
        return f"{rate}, more than {peaks} that {'is' if len(named) == 1 else 'are'} known of this device"
    if found.at_least:
        return f"{rate}, at most {units.percent(share)} of {peaks}; the device may do more than was measured"
    return f"{rate}, {units.percent(share)} of {peaks}"
