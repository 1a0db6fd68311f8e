"""The FLOPs and bytes of a recording. Neither a machine nor a time: only the work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gobrrr import cost, units
from gobrrr.analysis.pricing.fusion import Fusion, find_chains
from gobrrr.analysis.pricing.price import CallGroup, as_recorded, crossing
from gobrrr.analysis.pricing.texts import arguments_text
from gobrrr.cost import price
from gobrrr.model.counted import CountedOp, StepCounts
from gobrrr.model.recording import RecordedCall, Recording
from gobrrr.model.work import Work

Times = NDArray[np.int64]
FREE_COUNTS = ("view",)
"""The counts of calls without any device work."""

TELLING_FLOP, TELLING_BYTES = 1e7, 1e7
"""The least host work that is worth a note: a host takes about a millisecond for so much."""


def count(recording: Recording) -> StepCounts:
    """The work of a recorded step on the device, without what the host computes."""
    calls = [call for call in recording.calls if call.place == "device" and (call.host_copy or not call.waits)]
    groups, of_call = grouped(calls)
    works = [group.work for group in groups]
    times = np.bincount(of_call, minlength=len(groups)) if len(calls) else np.zeros(0, dtype=np.int64)
    fusion = _fusion(groups, of_call)
    training = any(call.phase == "backward" for call in calls)
    as_run, hardware = _sum(works, times, "bytes"), _sum(works, times, "flop")
    pairs = list(zip(groups, times.tolist(), strict=True))
    return StepCounts(
        target=recording.target,
        flop_model=_sum(works, times, "needed_flop"),
        flop_executed=_sum(works, times, "executed_flop"),
        flop_hardware=hardware,
        flop_contraction=contraction_flop(works, times.tolist()) if hardware is not None else None,
        bytes_as_run=as_run,
        bytes_fused=_less(as_run, fusion.spared(kept=training)),
        bytes_compulsory=_less(as_run, fusion.spared_at_most()),
        peak_bytes=float(recording.peak_bytes),
        calls=dict(Counter(group.work.count for group, n in pairs for _ in range(n))),
        unknown=dict(Counter(group.call.name for group, n in pairs if not group.work.known for _ in range(n))),
        ops=[_row(group, n) for group, n in sorted(pairs, key=lambda pair: -(pair[0].work.flop or 0.0) * pair[1])],
        notes=[*beside(recording), *recording.notes],
    )


def beside(recording: Recording) -> list[str]:
    """A note on what the step computes on the host beside the device; none where that is little."""
    groups, of_call = grouped([call for call in recording.calls if call.place == "host" and not call.waits])
    times = np.bincount(of_call, minlength=len(groups)) if len(of_call) else np.zeros(0, dtype=np.int64)
    flop = _sum([group.work for group in groups], times, "flop") or 0.0
    traffic = _sum([group.work for group in groups], times, "bytes") or 0.0
    if flop < TELLING_FLOP and traffic < TELLING_BYTES:
        return []
    most = max(zip(groups, times.tolist(), strict=True), key=lambda pair: (pair[0].work.flop or 0.0) * pair[1])[0]
    amounts = f"{units.flop(flop)} and {units.bytes_(traffic)}"
    return [f"on the host beside the device: {amounts} (most: {most.call.name}); neither counted here nor timed"]


def contraction_flop(works: Sequence[Work], times: Sequence[float]) -> float:
    """Model FLOPs of matrix products, convolutions and attention, without pointwise work."""
    return sum((cost.contraction_flop(work) or 0.0) * n for work, n in zip(works, times, strict=True))


def grouped(calls: Sequence[RecordedCall]) -> tuple[list[CallGroup], Times]:
    """(the kinds of calls, the kind of each call); recomputed calls are a kind of their own."""
    index: dict[tuple[object, bool, float, str], int] = {}
    groups: list[CallGroup] = []
    of_call = np.empty(len(calls), dtype=np.int64)
    for at, call in enumerate(calls):
        key = (call.call, call.recomputed, call.needed, call.host_copy)
        number = index.get(key)
        if number is None:
            number = index[key] = len(groups)
            groups.append(CallGroup(call.call, _work(call), None))
        of_call[at] = number
    return groups, of_call


def _work(call: RecordedCall) -> Work:
    """The call's work, including what the recorder knows beyond its arguments."""
    if call.host_copy:
        return crossing(call.call, call.host_copy)
    return as_recorded(price(call.call), recomputed=call.recomputed, needed=call.needed)


def _fusion(groups: list[CallGroup], of_call: Times) -> Fusion:
    """Chains among the calls with device work: a view between two calls does not end a chain."""
    real = np.array([group.work.count not in FREE_COUNTS for group in groups], dtype=bool)
    kept = of_call[real[of_call]] if len(of_call) else of_call
    still = np.zeros(len(kept), dtype=np.int64)
    return find_chains(tuple(groups), kept, still, still)


def _sum(works: list[Work], times: Times, what: str) -> float | None:
    """The sum of a Work's field over all calls, for bytes over those in the device's memory.

    None where some calls are unknown and no value is known.
    """
    pairs = zip(works, times.tolist(), strict=True)
    values = [(getattr(work, what), n) for work, n in pairs if what != "bytes" or work.link == "memory"]
    known = [value * n for value, n in values if value is not None]
    return float(sum(known)) if known or not any(not work.known for work in works) else None


def _less(whole: float | None, spared: float) -> float | None:
    return None if whole is None else max(whole - spared, 0.0)


def _row(group: CallGroup, n: int) -> CountedOp:
    work = group.work
    return CountedOp(
        op=group.call.name,
        shapes=arguments_text(group.call) or "",
        family=work.family,
        count=work.count,
        calls=n,
        flop=work.flop * n if work.flop is not None else None,
        bytes=work.bytes * n if work.bytes is not None else None,
        note=work.note,
    )
