"""What a watcher observed -> one Profile, with the CPU's own work as device work where there is no other device."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import msgspec

from gobrrr.model.events import Kind
from gobrrr.model.live import Live
from gobrrr.model.profile import DeviceProperties, Profile, RankProfile
from gobrrr.model.recording import Recording
from gobrrr.observe.live import processor
from gobrrr.observe.live.frames import with_owners
from gobrrr.observe.live.recorder import CALIBRATION

NOT_NEWS = ("no kernel, copy or set on any device", "no ProfilerStep")


def assembled(
    target: str, rank: RankProfile, live: Live, seen: Recording | None, notes: list[str], cpu: str
) -> Profile:
    """The profile. `cpu`: what the processor is called, where it is the device."""
    notes = [note for note in notes if not note.startswith(NOT_NEWS)]
    fixed = processor.fixed_ns(rank.events, CALIBRATION)
    seen = _shortened(seen) if seen is not None else None
    live = msgspec.convert(_from_here(msgspec.to_builtins(live), os.path.join(os.getcwd(), "")), Live)
    events = with_owners(processor.without(rank.events, CALIBRATION))
    rank = replace(rank, events=events, live=live, seen=seen)
    if live.kind == "cpu":
        rank = _on_processor(rank, fixed or 0.0, cpu)
    return Profile(target=target, origin="live", ranks=(rank,), notes=tuple(notes))


def _from_here(value: Any, here: str) -> Any:
    """The same builtins, texts that name a file below this folder without the folder."""
    if isinstance(value, str):
        return value.removeprefix(here)
    if isinstance(value, dict):
        return {key: _from_here(item, here) for key, item in value.items()}
    return [_from_here(item, here) for item in value] if isinstance(value, list | tuple) else value


def _shortened(seen: Recording) -> Recording:
    """The sites' paths as seen from here, where they lie below."""
    here = os.path.join(os.getcwd(), "")
    sites = tuple(
        msgspec.structs.replace(
            one,
            source=one.source.removeprefix(here) if one.source else None,
            user=one.user.removeprefix(here) if one.user else None,
        )
        for one in seen.sites
    )
    return msgspec.structs.replace(seen, sites=sites)


def _on_processor(rank: RankProfile, fixed_ns: float, name: str) -> RankProfile:
    """The rank with the operations' computing as device work; copies as they are where a real device did work."""
    if len(rank.events.of(Kind.KERNEL)):
        return rank
    events = processor.with_device(rank.events, fixed_ns)
    meta = msgspec.structs.replace(rank.meta, devices=(DeviceProperties(id=0, name=name),))
    return replace(rank, events=events, meta=meta)
