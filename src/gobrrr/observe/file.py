"""One trace file, wherever it is -> the events and the metadata of one rank."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gobrrr.model.events import EventKind
from gobrrr.model.profile import RankProfile
from gobrrr.observe import damage, refusal
from gobrrr.observe.columns import Builder
from gobrrr.observe.decode import Decoder
from gobrrr.observe.meta import holds_another, read_meta
from gobrrr.observe.reading import Reading
from gobrrr.observe.remarks import remarks
from gobrrr.observe.shards import read_in_parallel
from gobrrr.observe.source import STDIN, Blocks, Progress, open_target, size_of
from gobrrr.observe.table import assemble


def read_file(name: str, notes: list[str], *, python: bool, progress: Progress | None) -> RankProfile:
    """Read one file; what was wrong with it or lacks in it is added to `notes`.

    Raises InputError when it can't be read, is no trace, or holds nothing to diagnose.
    """
    reading = read_in_parallel(name, python=python, progress=progress)
    if reading is None:
        reading = _read_stream(name, python=python, progress=progress)
    if refusal.begins_an_archive(reading.prefix):
        raise refusal.archive(name)
    if holds_another(reading.prefix, reading.suffix):
        raise refusal.several(name)
    notes += reading.faults
    meta = read_meta(name, reading.prefix, reading.suffix, notes)
    table, origin_ns, left_out = assemble(list(reading.parts))
    if not len(table):
        raise refusal.nothing_timed(name, reading.events, reading.python_frames, [*reading.faults, *left_out])
    if (table.kind == EventKind.OTHER).all():
        raise refusal.not_pytorch(name, list(reading.categories))
    notes += left_out
    whole = not any(fault.startswith(damage.INCOMPLETE) for fault in reading.faults)
    notes += remarks(table, meta, whole=whole)
    meta = msgspec.structs.replace(meta, origin_ns=meta.origin_ns + origin_ns)
    return RankProfile(meta=meta, events=table, frames=python, whole=whole)


def _read_stream(name: str, *, python: bool, progress: Progress | None) -> Reading:
    builder, decoder = Builder(python=python), Decoder()
    with open_target(name) as stream:
        blocks = Blocks(stream, progress=progress, total_bytes=size_of(name))
        for piece in decoder.feed(blocks):
            builder.add(piece)
    if not decoder.found:
        raise refusal.not_a_trace(name, decoder.prefix, blocks.fault)
    faults = (*damage.sentences(decoder, blocks), *_misnamed(name, blocks))
    return Reading.of(decoder, builder, faults)


def _misnamed(name: str, blocks: Blocks) -> Iterator[str]:
    """A name that says gzip where the content is not, or the reverse: the content decides."""
    plain, zipped = name.lower().endswith(".json"), name.lower().endswith(".gz")
    if name != STDIN and ((plain and blocks.is_gzip) or (zipped and not blocks.is_gzip)):
        yield f"the name says {'plain JSON' if plain else 'gzip'}, the content is the other: read by its content"
