"""What a watcher observed -> one Profile, with the CPU's own work as device work where there is no other device."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

import msgspec

from gobrrr.model.events import Kind
from gobrrr.model.live import Live
from gobrrr.model.profile import DeviceProperties, Profile, RankProfile
from gobrrr.model.recording import Later, Recording
from gobrrr.observe.installed import is_users
from gobrrr.observe.live import processor
from gobrrr.observe.live.frames import with_owners
from gobrrr.observe.live.recorder import CALIBRATION
from gobrrr.observe.live.typical import typical_only
from gobrrr.system import paths

NOT_NEWS = ("no kernel, copy or set on any device", "no ProfilerStep")
NO_OPERATION = "no operation of torch's ran on the thread of the steps, which is the only one that the profiler sees"


def assembled(
    target: str, rank: RankProfile, live: Live, seen: Recording | None, notes: list[str], *, cpu: str, here: str
) -> Profile:
    """The profile. `cpu`: the processor's name, where it is the device. `here`: the folder that paths leave out."""
    notes = [note for note in notes if not note.startswith(NOT_NEWS)]
    fixed = processor.fixed_ns(rank.events, CALIBRATION)
    folders = (here, *(one for one in sys.path if is_users(os.path.join(one, "any.py"))))
    seen = _shortened(seen, folders) if seen is not None else None
    live = msgspec.convert(_shorter(msgspec.to_builtins(live), folders), Live)
    events = with_owners(typical_only(processor.without(rank.events, CALIBRATION), notes))
    if live.kind == "cpu" and not len(events.of(Kind.OP)):
        notes.append(NO_OPERATION)
    rank = replace(rank, events=events, live=live, seen=seen)
    if live.kind == "cpu":
        # an operation on one element takes at most as long in its own event as it does from Python
        rank = _on_processor(rank, fixed if fixed is not None else live.dispatch_ns or 0.0, cpu)
    return Profile(target=target, origin="live", ranks=(rank,), notes=tuple(notes))


def _shorter(value: Any, folders: tuple[str, ...]) -> Any:
    """The same builtins, texts that name a file below one of these folders without it; the first is tried first."""
    if isinstance(value, str):
        here = folders[:1]
        return paths.short(value, here if value.startswith(here) else folders)
    if isinstance(value, dict):
        return {key: _shorter(item, folders) for key, item in value.items()}
    return [_shorter(item, folders) for item in value] if isinstance(value, list | tuple) else value


def _shortened(seen: Recording, folders: tuple[str, ...]) -> Recording:
    """All paths of it as seen from here, or as an import finds them."""
    sites = tuple(
        msgspec.structs.replace(site, source=_shorter(site.source, folders), user=_shorter(site.user, folders))
        for site in seen.sites
    )
    lines = tuple(
        msgspec.structs.replace(line, caller=_shorter(line.caller, folders), source=_shorter(line.source, folders))
        for line in seen.lines
    )
    own = tuple(
        msgspec.structs.replace(time, caller=_shorter(time.caller, folders), source=_shorter(time.source, folders))
        for time in seen.own
    )
    code = {_shorter(source, folders): text for source, text in seen.code.items()}
    for name in ("loops", "again"):
        if (told := getattr(seen, name)) is not None:
            told = tuple(msgspec.structs.replace(one, source=_shorter(one.source, folders)) for one in told)
            seen = msgspec.structs.replace(seen, **{name: told})
    later = seen.later
    if later is not None:
        later = msgspec.convert(_shorter(msgspec.to_builtins(later), folders), Later)
    return msgspec.structs.replace(seen, sites=sites, lines=lines, own=own, code=code, later=later)


def _on_processor(rank: RankProfile, fixed_ns: float, name: str) -> RankProfile:
    """The rank with the operations' computing as device work; copies as they are where a real device did work."""
    if len(rank.events.of(Kind.KERNEL)):
        return rank
    events = processor.with_device(rank.events, fixed_ns)
    meta = msgspec.structs.replace(rank.meta, devices=(DeviceProperties(id=0, name=name),))
    return replace(rank, events=events, meta=meta)
