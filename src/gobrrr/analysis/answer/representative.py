"""The part of a long recording that is studied: typical steps, one after the other.

The steps of a loop repeat, so that most of what a long recording holds is said by a few of them. Those are studied
whose time comes nearest to that of the median step. The busy time of each device stays that of the whole recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gobrrr import units
from gobrrr.analysis.answer.study import device_totals
from gobrrr.analysis.events.links import Links, launches
from gobrrr.analysis.events.steps import Steps, find_steps, marks, step_lengths
from gobrrr.model.events import ABSENT, DEVICE_KINDS, I8, Kind
from gobrrr.model.profile import Profile, RankProfile

MOST_EVENTS = 100_000
"""A recording with more events is studied in part. The recordings that docs/accuracy.md rests on have fewer."""

PART_EVENTS = 20_000
"""About so many events are studied of a longer recording: more take longer and say the same."""

LEAST_STEPS = 5
"""So many steps are studied however long they are: fewer show no trend from step to step."""

LARGEST_PART = 0.5
"""A part with more of the events than this saves too little: the whole is studied."""


UNEVEN = 0.05
"""A mean step that is longer than the median by more than this is worth a word: some steps do more than others."""


@dataclass(frozen=True)
class _Long:
    """A rank, with what has to be known of all of it. `edges`: the begin of each step on the host, and the last end."""

    rank: RankProfile
    links: Links
    steps: Steps
    edges: I8

    @property
    def in_a_step(self) -> float:
        """Recorded events in one step."""
        first, last = np.searchsorted(self.rank.events.start_ns, self.edges[[0, -1]])
        return max(float(last - first) / self.steps.count, 1.0)


def representative(profile: Profile) -> Profile:
    """The profile with the events of typical steps alone, and a note on that; itself where it is short, where its
    ranks do not have the same steps, or where no part of it can stand for the whole."""
    ranks = profile.ranks
    recorded = profile.origin == "trace" and all(rank.times is None and rank.ends is None for rank in ranks)
    if not recorded or max(len(rank.events) for rank in ranks) <= MOST_EVENTS:
        return profile
    each = [_long(rank) for rank in ranks]
    count = each[0].steps.count
    alike = all(long.steps.count == count and long.steps.marked for long in each)
    if not all(long.steps.begins for long in each) or not (alike or len(each) == 1):
        return profile
    first, many = _typical(each)
    parts = [_part(long, first, many) for long in each]
    before, after = (sum(len(one.events) for one in some) for some in (ranks, parts))
    if after > LARGEST_PART * before or any(_steps(part) != many for part in parts):
        return profile
    return replace(profile, ranks=tuple(parts), notes=(*profile.notes, _note(each[0], first, many, before - after)))


def _long(rank: RankProfile) -> _Long:
    events, device = rank.events, rank.events.on_device
    nothing = np.full(len(device), ABSENT, dtype=np.int64)
    links = Links(device, launches(events, device), nothing, nothing, np.zeros(len(device), dtype=bool))
    steps = find_steps(events, links)
    end = steps.stop if steps.host_stop is None else steps.host_stop
    return _Long(rank, links, steps, np.array([*steps.begins, end], dtype=np.int64))


def _steps(rank: RankProfile) -> int:
    return _long(rank).steps.count


def _typical(each: Sequence[_Long]) -> tuple[int, int]:
    """(the first of the steps that are studied, how many they are)."""
    count = each[0].steps.count
    fit = int(PART_EVENTS // max(long.in_a_step for long in each))
    many = min(max(fit, LEAST_STEPS), count)
    lengths = np.sum([step_lengths(long.rank.events, long.links, long.steps) for long in each], axis=0)
    runs = np.convolve(lengths, np.ones(many), mode="valid")
    return int(np.argmin(np.abs(runs - many * np.median(lengths)))), many


def _part(whole: _Long, first: int, many: int) -> RankProfile:
    """The rank with what it did in `many` steps: what the host did, the work that it launched, and the work that was
    still to do when they began, with its launches."""
    events, links, steps = whole.rank.events, whole.links, whole.steps
    begin = int(whole.edges[first])
    stop = int(whole.edges[first + many]) if first + many < steps.count else steps.stop
    device, start, end = links.device, events.start_ns, events.end_ns
    launched = np.where(links.launch >= 0, start[np.maximum(links.launch, 0)], start[device])
    running = (launched < begin) & (end[device] > begin) if steps.marked else np.zeros(len(device), dtype=bool)
    work = device[(launched >= begin) & (launched < stop) | running]
    opens = int(launched[running].min(initial=begin))
    closes = max(stop, int(end[work].max(initial=stop)))
    shadows = (events.kind == int(Kind.GPU_ANNOTATION)) | (events.kind == int(Kind.SYNC))
    kept = ((end > opens) | (start >= opens)) & (start < np.where(shadows, closes, stop))
    kept &= ~marks(events.names)[events.name] | (start >= begin)
    kept[np.isin(events.kind, DEVICE_KINDS)] = False
    kept[work] = True
    return replace(whole.rank, events=events.take(np.flatnonzero(kept)), devices=device_totals(whole.rank, links))


def _note(whole: _Long, first: int, many: int, left: int) -> str:
    """What was studied, and how it lies to the rest."""
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
