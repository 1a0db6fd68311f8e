"""Bytes of a trace, wherever they are: a file, standard input, a URL; plain or gzip, told by content, never by name."""

from __future__ import annotations

import contextlib
import os
import queue
import stat
import sys
import threading
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, cast

from gobrrr.errors import InputError

BLOCK_BYTES = 1 << 21
GZIP_BLOCK_BYTES = 1 << 18
"""Compressed bytes at once: what an inflater leaves over is copied, so that large blocks cost."""

GZIP_MAGIC = b"\x1f\x8b"
STDIN = "-"
_AHEAD = 4  # blocks that a thread inflates or fetches before they are asked for
_WEB_TIMEOUT_S = 60
_PIPE_TIMEOUT_S = 10
_POLL_S = 0.05
_HTTP = ("http://", "https://")

Progress = Callable[[int, "int | None"], None]
"""Called with (bytes read, bytes in all or None), not always from the thread that reads the trace."""


def is_remote(target: str) -> bool:
    """Whether the target names a filesystem ("s3://...", "https://..."), not a local path."""
    return "://" in target


@contextlib.contextmanager
def open_target(target: str) -> Iterator[IO[bytes]]:
    """Open `target` for reading bytes; standard input is left open afterwards.

    Raises InputError with one line when it can't be opened.
    """
    if target == STDIN:
        if sys.stdin is None:
            raise InputError("there is no standard input; pass a file instead")
        yield sys.stdin.buffer
        return
    with refused(target):
        stream = _open_remote(target) if is_remote(target) else _open_local(target)
    with contextlib.closing(stream):
        yield stream


@contextlib.contextmanager
def refused(target: str) -> Iterator[None]:
    """What opening a target raises, as one InputError that names it."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{target}: no such file or folder") from None
    except urllib.error.HTTPError as error:
        raise InputError(
            f"{target}: the server answers {error.code} {reason(error)}{_ASKS.get(error.code, '')}"
        ) from None
    except urllib.error.URLError as error:
        raise InputError(f"{target}: the server can't be reached: {reason(error)}") from None
    except TimeoutError:
        raise InputError(f"{target}: no answer within {_WEB_TIMEOUT_S} s") from None
    except ImportError as error:
        raise InputError(f"{target}: needs another package: {error}") from None
    except Exception as error:  # a remote filesystem raises its own kinds of errors
        raise InputError(f"{target}: can't be opened: {reason(error)}") from None


_ASKS = dict.fromkeys((401, 403, 407), ": it asks for a login; download the file and pass its path")
"""What to do, by the status that a web server answers with."""


def reason(error: BaseException) -> str:
    """What went wrong, in one line."""
    if isinstance(error, urllib.error.URLError):  # what it is made from; of an HTTPError, the server's own words
        error = error.reason if isinstance(error.reason, BaseException) else OSError(str(error.reason))
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())


def _open_local(target: str) -> IO[bytes]:
    if stat.S_ISFIFO(os.stat(target).st_mode) and hasattr(os, "O_NONBLOCK"):
        return cast("IO[bytes]", _Pipe(target))
    return open(target, "rb")


class _Pipe:
    """A named pipe that something writes to. `open` would wait for that without an end."""

    def __init__(self, target: str) -> None:
        handle = os.open(target, os.O_RDONLY | os.O_NONBLOCK)
        self._file = open(handle, "rb", buffering=0)  # noqa: SIM115
        try:
            self._first = self._awaited(target, handle)
            os.set_blocking(handle, True)
        except BaseException:
            self._file.close()
            raise

    def _awaited(self, target: str, handle: int) -> bytes:
        """The first byte, or none yet where something has opened the pipe to write."""
        began = time.monotonic()
        while time.monotonic() - began < _PIPE_TIMEOUT_S:
            try:
                if byte := os.read(handle, 1):
                    return byte
            except BlockingIOError:
                return b""
            time.sleep(_POLL_S)
        raise InputError(f"{target}: a pipe that nothing writes to (none did within {_PIPE_TIMEOUT_S:g} s)")

    def read(self, count: int = -1) -> bytes:
        """As a file reads."""
        first, self._first = self._first, b""
        return first + ((self._file.read(count) if count != len(first) else b"") or b"")

    def close(self) -> None:
        """Read no more."""
        self._file.close()


def _open_remote(target: str) -> IO[bytes]:
    """A web address as it is, anything else through fsspec."""
    if target.startswith(_HTTP):
        return _open_web(target)
    import fsspec

    return fsspec.open(target, "rb").open()  # type: ignore[no-any-return]


def _open_web(target: str) -> IO[bytes]:
    try:
        return urllib.request.urlopen(target, timeout=_WEB_TIMEOUT_S)  # type: ignore[no-any-return]
    except urllib.error.HTTPError as error:
        error.close()  # it holds the connection
        raise


def list_remote(target: str) -> list[str] | None:
    """URLs of the files in a remote folder; None where `target` is no folder. A web server has none."""
    if target.startswith(_HTTP):
        return None
    import fsspec

    with refused(target):
        system, path = fsspec.core.url_to_fs(target)
        if not system.isdir(path):
            return None
        return [str(system.unstrip_protocol(item["name"])) for item in system.ls(path) if item["type"] == "file"]


def size_of(target: str) -> int | None:
    """Bytes of a local file; None where that is not known beforehand."""
    try:
        return os.path.getsize(target) if os.path.isfile(target) else None
    except (OSError, ValueError):
        return None


@dataclass
class Blocks:
    """Iterates over the decompressed bytes of a stream in blocks, and remembers what went wrong with it."""

    stream: IO[bytes]
    block_bytes: int = BLOCK_BYTES
    progress: Progress | None = None
    total_bytes: int | None = None
    fault: str = ""  # why reading ended before the end of the stream
    is_gzip: bool = False
    read_bytes: int = 0

    def __iter__(self) -> Iterator[bytes]:
        first = self._read(GZIP_BLOCK_BYTES)
        if first.startswith(GZIP_MAGIC):
            self.is_gzip = True
            yield from ahead(self._gunzip(first))
            return
        while first:
            yield first
            first = self._read(self.block_bytes)

    def _read(self, count: int) -> bytes:
        try:
            block = self.stream.read(min(count, self.block_bytes))
        except Exception as error:  # a remote filesystem raises its own kinds of errors
            self.fault = f"reading stopped after {self.read_bytes:,} bytes: {reason(error)}"
            return b""
        self.read_bytes += len(block)
        if self.progress is not None:
            self.progress(self.read_bytes, self.total_bytes)
        return block

    def _gunzip(self, data: bytes) -> Iterator[bytes]:
        """Decompress member after member; a broken or truncated stream ends with a fault, never with an exception."""
        inflater = zlib.decompressobj(wbits=31)
        while data:
            before = inflater.copy()
            try:
                # bounded output: 30 MB of gzip can hold 1 GB of JSON
                block = inflater.decompress(data, self.block_bytes)
            except zlib.error as error:
                at = self.read_bytes - len(data)
                self.fault = f"the gzip stream is damaged after byte {at:,}{self._of_all()} ({reason(error)})"
                yield _before_damage(before, data)
                return
            if block:
                yield block
            data = inflater.unconsumed_tail
            if inflater.eof:
                data = inflater.unused_data or self._read(GZIP_BLOCK_BYTES)
                if not data.startswith(GZIP_MAGIC[: max(1, len(data))]):
                    return  # padding after the last member
                inflater = zlib.decompressobj(wbits=31)
            elif not data:
                data = self._read(GZIP_BLOCK_BYTES)
        if not inflater.eof:
            yield inflater.flush()
            self.fault = self.fault or f"the gzip stream has no end, only its first {self.read_bytes:,} bytes are there"

    def _of_all(self) -> str:
        return "" if self.total_bytes is None else f" of {self.total_bytes:,}"


def _before_damage(inflater: Any, data: bytes) -> bytes:
    """What can still be inflated of `data`, in steps so small that the failing one takes little with it."""
    whole: list[bytes] = []
    try:
        for at in range(0, len(data), 64):
            step = data[at : at + 64]
            while step:
                whole.append(inflater.decompress(step, 256))
                step = inflater.unconsumed_tail
    except zlib.error:
        pass
    return b"".join(whole)


_END = object()


def ahead(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The same blocks, made by a thread while the caller works on earlier ones (zlib runs without the GIL)."""
    made: queue.Queue[Any] = queue.Queue(_AHEAD)
    left = threading.Event()

    def hand_over(item: object) -> None:
        while not left.is_set():
            with contextlib.suppress(queue.Full):
                made.put(item, timeout=0.1)
                return

    def work() -> None:
        try:
            for block in blocks:
                hand_over(block)
                if left.is_set():
                    return
            hand_over(_END)
        except BaseException as error:  # for the caller to see
            hand_over(error)

    worker = threading.Thread(target=work, name="gobrrr-inflate", daemon=True)
    worker.start()
    try:
        while (item := made.get()) is not _END:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        left.set()
        worker.join()
