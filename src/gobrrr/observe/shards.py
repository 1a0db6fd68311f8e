"""A large local file read by two processes: each decodes its share, the columns meet here.

A plain subprocess, not multiprocessing: the user's `__main__` is never run again, and threads of the user's process
are never forked. Anything unexpected in either share (a cut in the wrong place, damage), and one process reads it all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import IO

import msgspec
import numpy as np

from gobrrr.model.events import COLUMN_TYPES
from gobrrr.observe.columns import Builder
from gobrrr.observe.decode import BOUNDARY, Decoder
from gobrrr.observe.reading import Reading
from gobrrr.observe.source import BLOCK_BYTES, GZIP_MAGIC, STDIN, Progress, is_remote
from gobrrr.observe.table import Part

WORTH_IT_BYTES = 48 << 20
"""Below it, starting a process costs more than it saves."""

_SEARCH_BYTES = 1 << 20
_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from gobrrr.observe.shards import serve; serve()"


class _Header(msgspec.Struct, frozen=True):
    """What a share says of itself, before its columns."""

    sound: bool
    suffix: bytes
    events: int
    python_frames: int
    categories: tuple[str, ...]
    rows: int
    names: list[str]
    threads: list[tuple[str, str]]
    texts: list[bytes]


def read_in_parallel(name: str, *, python: bool, progress: Progress | None) -> Reading | None:
    """The whole file; None where one process is to read it."""
    cut = _cut(name)
    if cut is None:
        return None
    path = json.dumps([entry for entry in sys.path if isinstance(entry, str)])
    command = [sys.executable, "-I", "-c", _START, path, name, str(cut), str(int(python))]
    try:
        helper = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except (OSError, ValueError):
        return None
    try:
        first, sound = _decode(name, 0, cut, python=python, progress=progress)
        rest = _receive(helper.stdout) if sound and helper.stdout is not None else None
    except OSError:
        return None  # one process will meet the same fault and say so
    finally:
        helper.kill()
        helper.communicate()
    return first.then(rest) if rest is not None else None


def _cut(name: str) -> int | None:
    """Where to cut the file: at what looks like the end of an event, near the middle."""
    if name == STDIN or is_remote(name) or not sys.executable or hasattr(sys, "frozen") or _processors() < 2:
        return None
    try:
        size = os.path.getsize(name)
        if size < WORTH_IT_BYTES or not os.path.isfile(name):
            return None
        with open(name, "rb") as file:
            if file.read(2) == GZIP_MAGIC:
                return None
            file.seek(size // 2)
            window = file.read(_SEARCH_BYTES)
    except (OSError, ValueError):
        return None
    found = BOUNDARY.search(window)
    return size // 2 + found.start() + 1 if found else None


def _processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _blocks(name: str, start: int, stop: int, progress: Progress | None) -> Iterator[bytes]:
    with open(name, "rb") as file:
        file.seek(start)
        left = stop - start
        while left > 0 and (block := file.read(min(BLOCK_BYTES, left))):
            left -= len(block)
            if progress is not None:
                progress(stop - start - left, stop - start)
            yield block


def _decode(name: str, start: int, stop: int, *, python: bool, progress: Progress | None) -> tuple[Reading, bool]:
    """A share, and whether it is sound: nothing lost, nothing left over, the list closed in the second share only."""
    builder, decoder = Builder(python=python), Decoder(found=start > 0)
    for piece in decoder.feed(_blocks(name, start, stop, progress)):
        builder.add(piece)
    sound = decoder.found and not decoder.stopped and not decoder.lost and decoder.ended == (start > 0)
    return Reading.of(decoder, builder), sound


def serve() -> None:
    """The other process: decode from the cut to the end, write a header and the columns to standard output."""
    name, start, python = sys.argv[2], int(sys.argv[3]), sys.argv[4] == "1"
    share, sound = _decode(name, start, os.path.getsize(name), python=python, progress=None)
    columns, (names, threads, texts) = share.parts[0].columns, share.parts[0].tables
    header = msgspec.msgpack.encode(
        _Header(
            sound, share.suffix, share.events, share.python_frames, share.categories,
            len(columns["kind"]), names, threads, texts,
        )
    )  # fmt: skip
    out = sys.stdout.buffer
    out.write(len(header).to_bytes(8, "little") + header)
    for key in COLUMN_TYPES:
        out.write(np.ascontiguousarray(columns[key]).data)
    out.flush()


def _receive(stream: IO[bytes]) -> Reading | None:
    try:
        length = int.from_bytes(_exactly(stream, 8), "little")
        header = msgspec.msgpack.decode(_exactly(stream, length), type=_Header)
        columns = {
            key: np.frombuffer(_exactly(stream, header.rows * np.dtype(kind).itemsize), dtype=kind)
            for key, kind in COLUMN_TYPES.items()
        }
    except (EOFError, msgspec.MsgspecError, OSError):
        return None
    if not header.sound:
        return None
    return Reading(
        parts=(Part(columns, (header.names, header.threads, header.texts)),),
        prefix=b"",
        suffix=header.suffix,
        found=True,
        events=header.events,
        python_frames=header.python_frames,
        categories=header.categories,
    )


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise EOFError
    return data
