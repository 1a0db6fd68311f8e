"""One live step's operations, as they were dispatched -> its FLOPs and bytes."""

from __future__ import annotations

from gobrrr.analysis.pricing.tally import FREE, grouped
from gobrrr.model.live import Counted
from gobrrr.model.recording import Recording

MOST_UNKNOWN = 0.02
"""Share of a step's calls that may be without a count; with more, its sums are not known."""

HIGHER_ORDER = "higher_order::"
"""How the recorder names operators on functions (flex_attention, cond)."""


def counted_live(seen: Recording) -> Counted:
    """Hardware FLOPs, and bytes of the device's own memory, of all calls on the device; views are no calls.

    Both are None where more than 2 % of the calls can't be counted, where an operator on functions hides what it runs,
    and where part of the step was not seen; otherwise the sums are of the calls that can be counted.
    """
    calls = [call for call in seen.calls if call.place == "device" and (call.host_copy or not call.waits)]
    groups, of_call = grouped(calls)
    flop = moved = 0.0
    made = unknown = 0
    for at in of_call.tolist():
        work = groups[at].work
        if work.count in FREE:
            continue
        made += 1
        unknown += not work.known
        flop += work.flop or 0.0
        moved += (work.bytes or 0.0) if work.link == "memory" else 0.0
    hidden = any(call.call.name.startswith(HIGHER_ORDER) for call in calls)  # what those run inside is not seen
    whole = unknown <= MOST_UNKNOWN * made and not hidden and not seen.notes
    return Counted(
        flop=flop if whole else None,
        bytes=moved if whole else None,
        calls=made,
        unknown_calls=unknown,
        how="; ".join(("counted as dispatched in one step run eagerly", *seen.notes)),
    )
