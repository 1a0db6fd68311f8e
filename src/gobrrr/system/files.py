"""Files that are written whole or not at all, and small files that are read without blocking on a pipe."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from gobrrr.errors import UsageError

MOST_FILE_BYTES = 64_000_000
"""Bytes of a file that `read` accepts. Chosen, not measured: a trial or a measurement has some kilobytes."""

_DEVICES = ("/dev/", "/proc/")
"""Files below these are written in place, never replaced."""


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to `path`, whole or not at all. A link stays a link, and a file keeps its mode.

    Raises UsageError when it can't be written.
    """
    check_writable(path)
    target = Path(path)
    try:
        if _stays(target):
            target.write_bytes(data)
        else:
            _replace(Path(os.path.realpath(target)), data)
    except OSError as error:
        raise UsageError(f"{target}: can't be written: {error.strerror or error}") from None


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise UsageError, before any work is done, when `path` can't be written."""
    target = Path(path)
    if not str(path) or target.is_dir():
        raise UsageError(f"{target}: is a folder; name a file to save to")
    if target.exists() and not os.access(target, os.W_OK):
        raise UsageError(f"{target}: is a file that can't be written; change its mode or name another one")
    real = os.path.realpath(target)
    if os.path.islink(real):
        raise UsageError(f"{target}: is a link that leads back to itself; name a file to save to")
    folder = target.parent if _stays(target) else Path(real).parent
    if not folder.is_dir():
        raise UsageError(f"{target}: its folder does not exist; make {folder} first")
    if not _stays(target) and not os.access(folder, os.W_OK):
        raise UsageError(f"{target}: its folder can't be written")


def read(path: Path) -> bytes:
    """A small file's bytes. Raises OSError for anything else: reading a pipe would block until somebody writes."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(0, f"is {_kind(status.st_mode)}, not a file")
    if status.st_size > MOST_FILE_BYTES:
        raise OSError(0, f"has {status.st_size:,} bytes, more than such a file can have")
    return path.read_bytes()


def listed(folder: Path, begin: str = "", end: str = "") -> list[Path]:
    """The folder's entries whose names begin with `begin` and end with `end`, sorted; none where there is no folder.

    Raises OSError where the folder can't be listed.
    """
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return [folder / name for name in sorted(names) if name.startswith(begin) and name.endswith(end) and name[0] != "."]


def _stays(target: Path) -> bool:
    """Whether `target` is written in place, not replaced: a pipe, a device, a file descriptor's path."""
    return (target.exists() and not target.is_file()) or os.path.abspath(target).startswith(_DEVICES)


def _kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a pipe"
    if stat.S_ISSOCK(mode):
        return "a socket"
    return "a folder" if stat.S_ISDIR(mode) else "a device"


def _replace(target: Path, data: bytes) -> None:
    before = target.stat() if target.exists() else None
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:40]}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        if before is not None and (os.stat(temporary).st_uid, os.stat(temporary).st_gid) != (
            before.st_uid,
            before.st_gid,
        ):
            with suppress(OSError):  # changing the owner needs a privilege
                os.chown(temporary, before.st_uid, before.st_gid)
        # mkstemp's own mode lets only the owner read
        os.chmod(temporary, stat.S_IMODE(before.st_mode) if before is not None else 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
