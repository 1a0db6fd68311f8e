"""A Profile in a file: what `gobrrr.doors.pipeline.examine` reads, so that a prediction can be made again by other
code.

`pack` keeps everything that a Profile holds, and names, threads and texts only where an event uses them. Columns are
stored as differences from row to row and compressed: a step of 500 kernels takes some tens of kilobytes. A column that
a later EventTable has and a file lacks is read as "the trace says nothing". No torch.
"""

from __future__ import annotations

import lzma
from functools import cache
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from gobrrr.model.events import ABSENT, COLUMN_TYPES, EventTable
from gobrrr.model.live import Live
from gobrrr.model.profile import Profile, RankProfile, TraceMeta
from gobrrr.model.recording import RecordedCall, Recording
from gobrrr.model.work import Argument, OpCall, Scalar, Tensor, TensorList

FORMAT = 1
POOLS: dict[str, tuple[str, ...]] = {
    "names": ("name",), "threads": ("thread",), "texts": ("dims", "types", "strides", "concrete", "extra"),
}  # fmt: skip
"""The pools of an EventTable, and the columns that hold indices into each."""

SOUGHT = (1, 2, 4, 8)
"""The widths in bytes that a column may be stored in."""


class StoredRank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank. `columns`: (bytes an entry, the differences from row to row) by name."""

    meta: TraceMeta
    rows: int
    columns: dict[str, tuple[int, bytes]]
    names: tuple[str, ...]
    threads: tuple[str, ...]
    texts: tuple[bytes, ...]
    python: bool
    whole: bool
    live: Live | None = None
    seen: dict[str, Any] | None = None
    ends: tuple[float, float] | None = None


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A profile as it stands in the file."""

    target: str
    origin: Literal["trace", "live", "static"]
    ranks: tuple[StoredRank, ...]
    notes: tuple[str, ...] = ()
    format: int = FORMAT


def pack(profile: Profile) -> bytes:
    """The file of a profile."""
    ranks = tuple(_stored(rank) for rank in profile.ranks)
    stored = Stored(target=profile.target, origin=profile.origin, ranks=ranks, notes=tuple(profile.notes))
    return lzma.compress(msgspec.msgpack.encode(stored), preset=9)


def unpack(data: bytes) -> Profile:
    """The profile of a file. Raises ValueError where it is none, or of another format."""
    try:
        stored = msgspec.msgpack.decode(lzma.decompress(data), type=Stored)
    except (lzma.LZMAError, EOFError, msgspec.MsgspecError) as error:
        raise ValueError(f"not a stored profile: {error}") from error
    if stored.format != FORMAT:
        raise ValueError(f"a stored profile of format {stored.format}, not {FORMAT}")
    ranks = tuple(_rank(rank) for rank in stored.ranks)
    return Profile(target=stored.target, origin=stored.origin, ranks=ranks, notes=stored.notes)


def _stored(rank: RankProfile) -> StoredRank:
    events = rank.events
    columns = dict(events.columns())
    pools: dict[str, tuple[Any, ...]] = {}
    for pool, users in POOLS.items():
        entries = getattr(events, pool)
        used = np.unique(np.concatenate([columns[user] for user in users]))
        used = used[used >= 0]
        place = np.full(len(entries) + 1, ABSENT, dtype=np.int64)  # the last is for ABSENT itself
        place[used] = np.arange(len(used))
        for user in users:
            columns[user] = place[columns[user]]
        pools[pool] = tuple(entries[at] for at in used.tolist())
    return StoredRank(
        meta=rank.meta, rows=len(events), columns={name: _packed(column) for name, column in columns.items()},
        names=pools["names"], threads=pools["threads"], texts=pools["texts"], python=rank.frames, whole=rank.whole,
        live=rank.live, seen=None if rank.seen is None else msgspec.to_builtins(rank.seen), ends=rank.ends,
    )  # fmt: skip


def _packed(column: NDArray[Any]) -> tuple[int, bytes]:
    differences = np.diff(column.astype(np.int64), prepend=np.int64(0))
    most = int(np.abs(differences).max()) if len(differences) else 0
    width = next(width_bytes for width_bytes in SOUGHT if most < 1 << (8 * width_bytes - 1))
    # the low bytes of all rows together, then the next ones: what changes little stands beside its like
    return width, differences.astype(f"<i{width}").view(np.uint8).reshape(-1, width).T.tobytes()


def _rank(stored: StoredRank) -> RankProfile:
    columns: dict[str, Any] = {}
    for name, dtype in COLUMN_TYPES.items():
        packed = stored.columns.get(name)
        column = np.full(stored.rows, ABSENT, dtype=np.int64) if packed is None else _column(*packed)
        columns[name] = column.astype(dtype)
    events = EventTable(**columns, names=stored.names, threads=stored.threads, texts=stored.texts)
    return RankProfile(
        meta=stored.meta, events=events, frames=stored.python, whole=stored.whole, live=stored.live,
        seen=None if stored.seen is None else _recording(stored.seen), ends=stored.ends,
    )  # fmt: skip


def _column(width: int, data: bytes) -> NDArray[np.int64]:
    rows = np.frombuffer(data, dtype=np.uint8).reshape(width, -1).T
    return np.cumsum(np.ascontiguousarray(rows).view(f"<i{width}").reshape(-1).astype(np.int64))


def _recording(found: dict[str, Any]) -> Recording:
    """A Recording, by hand where an argument is one of three types that have no tag."""
    return Recording(**_typed(found, Recording, calls=tuple(_recorded(call) for call in found["calls"])))


def _recorded(found: dict[str, Any]) -> RecordedCall:
    call = found["call"]
    made = OpCall(**_typed(call, OpCall, inputs=tuple(_argument(argument) for argument in call["inputs"])))
    return RecordedCall(**_typed(found, RecordedCall, call=made))


def _typed(found: dict[str, Any], kind: type[msgspec.Struct], **made: Any) -> dict[str, Any]:
    """The fields of a struct, each read as its type says; `made` are those that were read already."""
    types = _types(kind)
    return {name: msgspec.convert(value, types[name]) for name, value in found.items() if name not in made} | made


@cache
def _types(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {info.name: info.type for info in msgspec.structs.fields(kind)}


def _argument(found: dict[str, Any]) -> Argument:
    kind: Any = Tensor if "shape" in found else TensorList if "items" in found else Scalar
    return msgspec.convert(found, kind)  # type: ignore[no-any-return]
