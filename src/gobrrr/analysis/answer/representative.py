"""The part of a long recording that is studied: a run of typical steps.

The steps of a loop repeat, so a few of them show most of what a long recording holds. The steps that are studied are
those whose time is nearest to that of the median step. The busy time of each device stays that of the whole recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gobrrr import units
from gobrrr.analysis.answer.study import device_totals
from gobrrr.analysis.events.links import Links, launches
from gobrrr.analysis.events.steps import StepWindow, find_steps, marks, step_lengths
from gobrrr.model.events import ABSENT, DEVICE_KINDS, I8, EventKind
from gobrrr.model.profile import Profile, RankProfile

MOST_EVENTS = 100_000
"""A recording with more events is studied in part. The recordings that docs/accuracy.md rests on have fewer."""

PART_EVENTS = 20_000
"""About how many events are studied of a longer recording: more take longer and show the same. Chosen."""

LEAST_STUDIED_STEPS = 5
"""At least this many steps are studied, however long they are: fewer show no trend from step to step. Chosen."""

LARGEST_PART = 0.5
"""The whole is studied where a part would hold more than this share of the events, which saves too little. Chosen."""

UNEVEN = 0.05
"""The note mentions uneven steps where the mean step is longer than the median by more than this share. Chosen."""


@dataclass(frozen=True)
class _Long:
    """A whole rank with its steps. `edges`: the begin of each step on the host, and the end of the last one."""

    rank: RankProfile
    links: Links
    steps: StepWindow
    edges: I8

    @property
    def in_a_step(self) -> float:
        """Recorded events in one step."""
        first, last = np.searchsorted(self.rank.events.start_ns, self.edges[[0, -1]])
        return max(float(last - first) / self.steps.count, 1.0)


def representative(profile: Profile) -> Profile:
    """The profile with the events of typical steps alone, and a note that says so.

    The profile itself where it is short, where its ranks have different steps, or where no part can stand for it all.
    """
    ranks = profile.ranks
    recorded = profile.origin == "trace" and all(rank.times is None and rank.ends is None for rank in ranks)
    if not recorded or max(len(rank.events) for rank in ranks) <= MOST_EVENTS:
        return profile
    wholes = [_long(rank) for rank in ranks]
    count = wholes[0].steps.count
    alike = all(whole.steps.count == count and whole.steps.marked for whole in wholes)
    if not all(whole.steps.begins for whole in wholes) or not (alike or len(wholes) == 1):
        return profile
    first, many = _typical(wholes)
    parts = [_part(whole, first, many) for whole in wholes]
    before, after = (sum(len(rank.events) for rank in group) for group in (ranks, parts))
    if after > LARGEST_PART * before or any(_long(part).steps.count != many for part in parts):
        return profile
    return replace(profile, ranks=tuple(parts), notes=(*profile.notes, _note(wholes[0], first, many, before - after)))


def _long(rank: RankProfile) -> _Long:
    events, device = rank.events, rank.events.on_device
    nothing = np.full(len(device), ABSENT, dtype=np.int64)
    links = Links(device, launches(events, device), nothing, nothing, np.zeros(len(device), dtype=bool))
    steps = find_steps(events, links)
    end = steps.stop if steps.host_stop is None else steps.host_stop
    return _Long(rank, links, steps, np.array([*steps.begins, end], dtype=np.int64))


def _typical(wholes: Sequence[_Long]) -> tuple[int, int]:
    """(the first of the steps that are studied, how many they are)."""
    count = wholes[0].steps.count
    fit = int(PART_EVENTS // max(whole.in_a_step for whole in wholes))
    many = min(max(fit, LEAST_STUDIED_STEPS), count)
    lengths = np.sum([step_lengths(whole.rank.events, whole.links, whole.steps) for whole in wholes], axis=0)
    runs = np.convolve(lengths, np.ones(many), mode="valid")
    return int(np.argmin(np.abs(runs - many * np.median(lengths)))), many


def _part(whole: _Long, first: int, many: int) -> RankProfile:
    """The rank with the events of `many` steps.

    These are the host's events, the work that it launched, and the work that was still pending when the steps began,
    with its launches.
    """
    events, links, steps = whole.rank.events, whole.links, whole.steps
    begin = int(whole.edges[first])
    stop = int(whole.edges[first + many]) if first + many < steps.count else steps.stop
    device, start, end = links.device, events.start_ns, events.end_ns
    launched = np.where(links.launch >= 0, start[np.maximum(links.launch, 0)], start[device])
    running = (launched < begin) & (end[device] > begin) if steps.marked else np.zeros(len(device), dtype=bool)
    work = device[(launched >= begin) & (launched < stop) | running]
    opens = int(launched[running].min(initial=begin))
    closes = max(stop, int(end[work].max(initial=stop)))
    shadows = (events.kind == int(EventKind.GPU_ANNOTATION)) | (events.kind == int(EventKind.SYNC))
    kept = ((end > opens) | (start >= opens)) & (start < np.where(shadows, closes, stop))
    kept &= ~marks(events.names)[events.name] | (start >= begin)
    kept[np.isin(events.kind, DEVICE_KINDS)] = False
    kept[work] = True
    return replace(whole.rank, events=events.take(np.flatnonzero(kept)), devices=device_totals(whole.rank, links))


def _note(whole: _Long, first: int, many: int, left: int) -> str:
    """Which steps were studied, and how their time compares with the rest."""
    steps = whole.steps
    if many == steps.count:
        return f"{units.things(left, 'recorded event')} outside of the steps were not studied"
    median = float(np.median(step_lengths(whole.rank.events, whole.links, steps)))
    uneven = steps.wall_ns > (1 + UNEVEN) * median
    return (
        f"{many} of the {steps.count} steps were studied, {first + 1} to {first + many}: their time is the nearest to "
        f"that of the median step, {units.duration(median)}; the mean of all is {units.duration(steps.wall_ns)}"
        + (": what makes some steps longer was not looked at" if uneven else "")
    )
