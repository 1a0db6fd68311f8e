"""Makes one Profile of what a watcher observed. Where there is no other device, the CPU's work is the device's work."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

import msgspec

from gobrrr.model.events import EventKind
from gobrrr.model.live import Live
from gobrrr.model.profile import DeviceProperties, Profile, RankProfile
from gobrrr.model.recording import Recording, SecondStep
from gobrrr.observe.installed import is_users
from gobrrr.observe.live import processor
from gobrrr.observe.live.frames import with_owners
from gobrrr.observe.live.recorder import CALIBRATION
from gobrrr.observe.live.typical import typical_only
from gobrrr.system import paths

NOT_NEWS = ("no kernel, copy or set on any device", "no ProfilerStep")
"""How notes of the trace reader begin that a live run leaves out."""
NO_OPERATION = "no operation of torch's ran on the thread of the steps, which is the only one that the profiler sees"
"""The note on a profile without operations."""


def assembled(
    target: str, rank: RankProfile, live: Live, seen: Recording | None, notes: list[str], *, cpu: str, here: str
) -> Profile:
    """The profile. `cpu`: the processor's name, where it is the device. `here`: the folder that paths leave out."""
    notes = [note for note in notes if not note.startswith(NOT_NEWS)]
    fixed = processor.fixed_ns(rank.events, CALIBRATION)
    folders = (here, *(folder for folder in sys.path if is_users(os.path.join(folder, "any.py"))))
    seen = _shortened(seen, folders) if seen is not None else None
    live = msgspec.convert(_shorter(msgspec.to_builtins(live), folders), Live)
    events = with_owners(typical_only(processor.without(rank.events, CALIBRATION), notes))
    if live.kind == "cpu" and not len(events.of(EventKind.OP)):
        notes.append(NO_OPERATION)
    rank = replace(rank, events=events, live=live, seen=seen)
    if live.kind == "cpu":
        # an operation on one element takes no longer in its own event than when it is called from Python
        rank = _on_processor(rank, fixed if fixed is not None else live.dispatch_ns or 0.0, cpu)
    return Profile(target=target, origin="live", ranks=(rank,), notes=tuple(notes))


def _shorter(value: Any, folders: tuple[str, ...]) -> Any:
    """The same builtins, with these folders cut off from the paths of files in them; the first is tried first."""
    if isinstance(value, str):
        here = folders[:1]
        return paths.short(value, here if value.startswith(here) else folders)
    if isinstance(value, dict):
        return {key: _shorter(item, folders) for key, item in value.items()}
    return [_shorter(item, folders) for item in value] if isinstance(value, list | tuple) else value


def _shortened(seen: Recording, folders: tuple[str, ...]) -> Recording:
    """The recording with all paths relative to the current folder, or to the folder where an import finds them."""

    def short(record: Any, *names: str) -> Any:
        return msgspec.structs.replace(record, **{name: _shorter(getattr(record, name), folders) for name in names})

    later = seen.later
    return msgspec.structs.replace(
        seen,
        sites=tuple(short(site, "source", "user") for site in seen.sites),
        lines=tuple(short(line, "caller", "source") for line in seen.lines),
        own=tuple(short(time, "caller", "source") for time in seen.own),
        code={_shorter(source, folders): text for source, text in seen.code.items()},
        loops=None if seen.loops is None else tuple(short(loop, "source") for loop in seen.loops),
        again=None if seen.again is None else tuple(short(work, "source") for work in seen.again),
        later=None if later is None else msgspec.convert(_shorter(msgspec.to_builtins(later), folders), SecondStep),
    )


def _on_processor(rank: RankProfile, fixed_ns: float, name: str) -> RankProfile:
    """The rank with the computing of operations as device work; unchanged where a real device did work."""
    if len(rank.events.of(EventKind.KERNEL)):
        return rank
    events = processor.with_device(rank.events, fixed_ns)
    meta = msgspec.structs.replace(rank.meta, devices=(DeviceProperties(id=0, name=name),))
    return replace(rank, events=events, meta=meta)
