"""The FLOPs and bytes of one live step, from its operations as dispatched."""

from __future__ import annotations

from gobrrr.analysis.pricing.tally import FREE_COUNTS, grouped
from gobrrr.model.live import DispatchedCounts
from gobrrr.model.recording import Recording

MOST_UNCOUNTED_SHARE = 0.02
"""The largest share of a step's calls without a count; beyond it, the sums are not known. Chosen, not measured."""

HIGHER_ORDER = "higher_order::"
"""The recorder's names of higher-order operators (flex_attention, cond) begin with this."""


def counted_live(seen: Recording) -> DispatchedCounts:
    """Hardware FLOPs, and bytes of the device's memory, of all calls on the device except views.

    Both are sums over the calls that can be counted. They are None where more than `MOST_UNCOUNTED_SHARE` of the calls
    can't be counted, where a higher-order operator hides what it runs, and where part of the step was not observed.
    """
    calls = [call for call in seen.calls if call.place == "device" and (call.host_copy or not call.waits)]
    groups, of_call = grouped(calls)
    flop = traffic = 0.0
    counted = unknown = 0
    for at in of_call.tolist():
        work = groups[at].work
        if work.count in FREE_COUNTS:
            continue
        counted += 1
        unknown += not work.known
        flop += work.flop or 0.0
        traffic += (work.bytes or 0.0) if work.link == "memory" else 0.0
    hidden = any(call.call.name.startswith(HIGHER_ORDER) for call in calls)
    whole = unknown <= MOST_UNCOUNTED_SHARE * counted and not hidden and not seen.notes
    return DispatchedCounts(
        flop=flop if whole else None,
        bytes=traffic if whole else None,
        calls=counted,
        unknown_calls=unknown,
        how="; ".join(("counted as dispatched in one step run eagerly", *seen.notes)),
    )
