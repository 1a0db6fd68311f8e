"""What a reader must know before the numbers: the trace is incomplete, or something disturbed the measurement."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gobrrr import units
from gobrrr.analysis.events.intervals import Spans
from gobrrr.model.contention import DISTURBED
from gobrrr.model.device import DeviceModel
from gobrrr.model.diagnosis import Wall
from gobrrr.model.live import Threads
from gobrrr.model.machine import Ceiling, Machine
from gobrrr.model.profile import RankProfile

LARGE_FIRST_USES = 0.1
"""First uses that take this share of a step become a caveat; shorter ones become a note. Chosen: in five H100 traces
the first launch under the profiler took 2.3 to 3.5 ms, whatever the program."""


def of(
    ranks: Sequence[RankProfile], lead: RankProfile, wall: Wall, recorded_ns: float | None, machine: Machine | None,
    roofs: Sequence[str], once: Spans,
) -> list[str]:  # fmt: skip
    """All caveats.

    `lead`: the rank that the answer describes; `roofs`: names of the roofs that floors rest on and that may be higher
    than is known; `once`: first uses of kernels.
    """
    measured = [*of_end(lead), *of_step(lead.threads, lead.device), *of_times(wall, recorded_ns)]
    if are_large(once, recorded_ns):
        measured += of_first_uses(once)
    return [*of_files(ranks), *measured, *of_ceilings(machine, roofs)]


def lost(threads: Threads | None) -> float:
    """Share of the timed steps for which other processes kept a thread of this one waiting; 0 where it is not known.

    A program with more threads than processors makes its own threads wait. Other processes are blamed only where the
    system counts their time separately.
    """
    if threads is None or threads.contention is None:
        return 0.0
    if threads.contention.others is None and threads.intra > threads.available:
        return 0.0
    return threads.contention.lost or 0.0


def of_end(lead: RankProfile) -> list[str]:
    """The loop ended before everything was measured."""
    if lead.ended_after is None:
        return []
    count = len(lead.times.ns) if lead.times is not None else 0
    timed = f"{units.things(count, 'step')} were timed" if count != 1 else "1 step was timed"
    if not count:
        timed = "none was timed without the profiler"
    return [
        f"The loop ended after {units.things(lead.ended_after, 'step')}: {timed}, and 1 of the first was recorded. "
        "First steps may take longer than later ones. A longer loop gives a more certain answer."
    ]


def of_step(threads: Threads | None, device: DeviceModel) -> list[str]:
    """Other processes used the processors while the step was timed."""
    if threads is None or threads.contention is None or lost(threads) < DISTURBED:
        return []
    then = (
        "On a quiet machine the step takes less time and may have another bottleneck."
        if device.on_host
        else "The host's work took longer because of that."
    )
    shared = threads.contention
    said = [shared.in_words(), shared.wait_in_words()] if shared.waited is not None else [shared.in_words()]
    clause = ", and ".join(dict.fromkeys(text for text in said if text))
    return [f"The machine was busy while the step was timed: {clause}. {then}"]


def unmatched(wall: Wall, recorded_ns: float | None) -> float:
    """Share by which a step takes longer without the profiler than with it; 0 where it does not.

    Recording only adds time. Steps that take longer without it, by more than their own spread, did other work.
    """
    if wall.how != "measured" or not wall.value or wall.low is None or not recorded_ns or recorded_ns >= wall.low:
        return 0.0
    return max(1.0 - recorded_ns / wall.value, 0.0)


def of_times(wall: Wall, recorded_ns: float | None) -> list[str]:
    """The step took longer without the profiler than with it."""
    if unmatched(wall, recorded_ns) < DISTURBED:
        return []
    return [
        f"The step took longer without the profiler ({units.duration(wall.value)}) than with it "
        f"({units.duration(recorded_ns)}), though recording only adds time: something else took the machine during "
        "the first, or the two ran different work. Diagnose it again before you trust either."
    ]


def of_first_uses(once: Spans) -> list[str]:
    """The recording holds first uses of kernels, which no later step has."""
    if not len(once.start):
        return []
    many = units.things(len(once.start), "first use")
    return [
        f"{many} of kernels (loading, building, choosing algorithms) took {units.duration(once.length)} of the "
        f"recording. They do not recur after warm-up and are left out of the step. To record without them: "
        "torch.profiler.schedule(wait=1, warmup=3, active=3)."
    ]


def are_large(once: Spans, recorded_ns: float | None) -> bool:
    """Whether first uses take so much of a recorded step that they are a caveat, not a note."""
    return once.length >= LARGE_FIRST_USES * (recorded_ns or 0.0)


def later(once: Spans, recorded_ns: float | None) -> list[str]:
    """Short first uses, which belong in the notes."""
    return [] if are_large(once, recorded_ns) else of_first_uses(once)


def of_files(ranks: Sequence[RankProfile]) -> list[str]:
    """Files of the trace are cut off or damaged, by their names."""
    cut = [re.split(r"[/\\]", rank.meta.source)[-1] for rank in ranks if not rank.whole]
    if not cut:
        return []
    are = "is" if len(cut) == 1 else "are"
    which = f"Of {len(ranks)} traces {', '.join(cut)} {are}" if len(ranks) > 1 else "The trace is"
    return [f"{which} cut off or damaged (the notes say where): the missing part is not counted."]


def of_ceilings(machine: Machine | None, roofs: Sequence[str]) -> list[str]:
    """Ceilings that floors rest on may be higher than is known; `roofs` names their roofs."""
    if machine is None or not roofs:
        return []
    bounds = [
        (roof, ceiling) for roof in roofs if (ceiling := _ceiling(machine, roof)) is not None and ceiling.at_least
    ]
    why = next((ceiling.at_least for _, ceiling in bounds), "others used the machine")
    names = [roof for roof, _ in bounds] or list(roofs)
    return [
        f"This machine may do more than was measured ({' and '.join(names)}): when that was measured, {why}. The least "
        "times and the speed of light shown here may be too long; `gobrrr machine` measures again."
    ]


def _ceiling(machine: Machine, roof: str) -> Ceiling | None:
    """The ceiling behind a roof's name (`analysis.pricing.roofline`)."""
    dtype, _, unit = roof.rpartition(" ")
    if unit in ("matrix", "vector"):
        return (machine.matrix_flop_per_s if unit == "matrix" else machine.vector_flop_per_s).get(dtype)
    named = {"DRAM": machine.memory_bytes_per_s, "cache": machine.cache_bytes_per_s, "device link":
             machine.link_bytes_per_s, "host link": machine.host_bytes_per_s}  # fmt: skip
    return named.get(roof)
