"""A folder of ranks, local or remote -> one rank a file."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter

from gobrrr import units
from gobrrr.errors import GobrrrError, InputError
from gobrrr.model.events import DEVICE_KINDS
from gobrrr.model.profile import Profile, RankProfile
from gobrrr.observe.file import read_file
from gobrrr.observe.source import STDIN, Progress, is_remote, list_remote, refused

_SUFFIXES = (".json", ".gz", ".trace")
_DIGITS = re.compile(r"(\d+)")


def files_in(target: str) -> list[str] | None:
    """The files of a folder or a pattern that may be traces, in the order of their numbers; None for a single file."""
    if target == STDIN:
        return None
    if is_remote(target):
        names = list_remote(target)
    elif any(mark in target for mark in "*?[") and not os.path.exists(target):
        names = [name for name in glob.glob(target) if os.path.isfile(name)]
    elif os.path.isdir(target):
        with refused(target):
            names = [os.path.join(target, name) for name in os.listdir(target)]
        names = [name for name in names if os.path.isfile(name)]
    else:
        return None
    if names is None:
        return None
    return sorted(filter(may_be_trace, names), key=_natural)


def may_be_trace(name: str) -> bool:
    """Whether a file of a folder is read: by its name."""
    base = _base(name)
    return base.lower().endswith(_SUFFIXES) and not base.startswith(".")


def _base(name: str) -> str:
    return re.split(r"[/\\]", name)[-1]


def _natural(name: str) -> list[tuple[int, str]]:
    """rank2 before rank10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(_base(name))]


def read_folder(folder: str, files: list[str], *, python: bool, progress: Progress | None) -> Profile:
    """Read every file of a folder as one rank; a file that is no trace is left out, with a note.

    Raises InputError when none of them is a trace.
    """
    if not files:
        raise InputError(f"{folder}: no .json or .json.gz file there")
    ranks: list[RankProfile] = []
    notes: list[str] = []
    for name in files:
        own: list[str] = []
        try:
            ranks.append(read_file(name, own, python=python, progress=progress))
        except GobrrrError as error:
            own = [f"left out: {str(error).removeprefix(f'{name}: ')}"]
        notes += [f"{_base(name)}: {note}" for note in own]
    if not ranks:
        raise InputError(f"{folder}: no file in it is a trace ({notes[0]})")
    _one_run(folder, ranks)
    notes += _across(ranks)
    ranks.sort(key=lambda rank: rank.rank)
    return Profile(target=folder, origin="trace", ranks=tuple(ranks), notes=tuple(notes))


def _one_run(folder: str, ranks: list[RankProfile]) -> None:
    """Refuse traces of several runs: ranks that repeat under names that differ by more than a number.

    Averaged they would say nothing of any of them.
    """
    runs: dict[str, list[str]] = {}
    for rank in ranks:
        runs.setdefault(_DIGITS.sub("*", _base(rank.meta.source)), []).append(rank.meta.source)
    if len(runs) == 1 or len({rank.rank for rank in ranks}) == len(ranks):
        return
    what = f"{folder}: {units.things(len(ranks), 'trace')} of {units.things(len(runs), 'run')}, not the ranks of one"
    if os.path.isfile(folder):
        raise InputError(f"{what}: unpack the archive and name those of one run")
    largest = max(runs, key=lambda run: len(runs[run]))
    example = os.path.join(folder, largest) if len(runs[largest]) > 1 else runs[largest][0]
    raise InputError(f"{what}; name one: '{example}'")


def _across(ranks: list[RankProfile]) -> list[str]:
    """What only the files together show."""
    notes = []
    times = Counter(rank.rank for rank in ranks)
    repeated = sorted(number for number, count in times.items() if count > 1)
    if repeated:
        names = ", ".join(_base(rank.meta.source) for rank in ranks if rank.rank in repeated)
        notes.append(f"several files say that they are rank {repeated[0]} ({names}): each is kept as a rank of its own")
    world = max((rank.meta.world_size or 0 for rank in ranks), default=0)
    if world > len(times):
        notes.append(f"the folder has {len(times)} of {world} ranks: what the others did is not known")
    without = [rank for rank in ranks if not len(rank.events.of(*DEVICE_KINDS))]
    if without and len(without) < len(ranks):
        names = ", ".join(_base(rank.meta.source) for rank in without)
        notes.append(f"some ranks have device work and others none ({names}): they can't be compared")
    return notes
