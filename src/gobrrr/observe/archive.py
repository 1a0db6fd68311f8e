"""A tar or zip archive of traces, unpacked for as long as it is read: its files are the ranks of one run."""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from gobrrr.errors import InputError
from gobrrr.observe.folder import may_be_trace
from gobrrr.observe.refusal import begins_an_archive
from gobrrr.observe.source import GZIP_MAGIC, STDIN, is_remote, reason

ZIP = b"PK"
Member = tuple[str, int, IO[bytes]]
"""(the last part of the name, bytes, content)"""


@contextmanager
def unpacked(target: str) -> Iterator[str | None]:
    """The folder with the files of a local archive, all in it by their last names; None where `target` is none.

    Raises InputError where two files have one name, or where they can't be unpacked.
    """
    if target == STDIN or is_remote(target) or not os.path.isfile(target) or not _is_archive(target):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="gobrrr-") as folder:
        try:
            _unpack(target, Path(folder))
        except InputError:
            raise
        except Exception as error:  # each format and each compression raises its own kinds of errors
            raise InputError(f"{target}: the archive is cut off or damaged: {reason(error)}") from None
        yield folder


def _unpack(target: str, folder: Path) -> None:
    for name, size, stream in _members(target):
        if (folder / name).exists():
            raise InputError(f"{target}: two files in it are called {name}: unpack it and name one folder")
        if size > shutil.disk_usage(folder).free:
            raise InputError(f"{target}: {name} in it needs {size:,} bytes, more than {folder} has room for")
        with open(folder / name, "wb") as out:
            shutil.copyfileobj(stream, out, 1 << 20)


def _is_archive(target: str) -> bool:
    try:
        with open(target, "rb") as file:
            start = file.read(512)
        return begins_an_archive(start) or (start.startswith(GZIP_MAGIC) and _holds_tar(target))
    except OSError:
        return False


def _holds_tar(target: str) -> bool:
    """Whether a compressed file holds a tar archive."""
    try:
        with tarfile.open(target, "r:gz"):
            return True
    except (tarfile.TarError, OSError, EOFError, ValueError):
        return False


def _members(target: str) -> Iterator[Member]:
    """The files that may be traces."""
    with ExitStack() as stack:
        with open(target, "rb") as file:
            start = file.read(2)
        if start == ZIP:
            archive = stack.enter_context(zipfile.ZipFile(target))
            for info in archive.infolist():
                name = _last(info.filename)
                if not info.is_dir() and may_be_trace(name):
                    with archive.open(info) as stream:
                        yield name, info.file_size, stream
            return
        packed = stack.enter_context(tarfile.open(target, "r:gz" if start == GZIP_MAGIC else "r:"))
        for member in packed:
            name = _last(member.name)
            found = packed.extractfile(member) if member.isfile() and may_be_trace(name) else None
            if found is not None:
                yield name, member.size, found


def _last(name: str) -> str:
    return re.split(r"[/\\]", name)[-1]
