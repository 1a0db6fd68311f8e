"""What a file is that is no trace, by its first bytes, its keys or its name: one line that says what to do instead."""

from __future__ import annotations

import re

from gobrrr.errors import EmptyTraceError, InputError, NotATraceError

_EXPECTED = "expected the JSON that torch.profiler's export_chrome_trace writes"
_RECORD = "run the step inside torch.profiler.profile(...) and export the trace after it"

_ARCHIVES = {b"PK\x03\x04": 0, b"ustar": 257}
"""How zip and tar archives begin, and where."""

_PACKED = "an archive: save it as a file, whose traces are then read as the ranks of one run"

_MAGIC = (
    (b"SQLite format 3\x00", "an SQLite database (Nsight Systems and rocprof export these): " + _EXPECTED),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd: decompress it first (zstd -d), or use gzip"),
    (b"\xfd7zXZ\x00", "compressed with xz: decompress it first (xz -d), or use gzip"),
    (b"BZh", "compressed with bzip2: decompress it first (bzip2 -d), or use gzip"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it and pass the .json or .json.gz inside"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself: run git lfs pull"),
    (b"\xff\xfe", "UTF-16 text: convert it to UTF-8 first"),
    (b"\xfe\xff", "UTF-16 text: convert it to UTF-8 first"),
    (b"NVR\x00", "an Nsight Compute report: " + _EXPECTED),
)
_SUFFIXES = (
    ((".nsys-rep", ".qdrep"), "an Nsight Systems report: " + _EXPECTED),
    ((".ncu-rep",), "an Nsight Compute report: " + _EXPECTED),
    ((".sqlite", ".db"), "a database (Nsight Systems and rocprof export these): " + _EXPECTED),
    ((".pb", ".pftrace", ".perfetto-trace"), "a protocol-buffer trace: " + _EXPECTED),
    ((".py",), "a program, not a trace: " + _EXPECTED),
)
_KEYS = (
    (("rocprofiler-sdk-tool",), "a result of rocprofv3, not a PyTorch trace: profile with torch.profiler instead"),
    (("not_checked", "budget"), "a saved gobrrr diagnosis, not a trace: pass the trace that it was made from"),
    (("schema", "nodes"), "a PyTorch execution trace (ExecutionTraceObserver), which has no kernels: " + _EXPECTED),
    (("$schema",), "a profile of another tool (speedscope?): " + _EXPECTED),
)


def not_a_trace(name: str, start: bytes, fault: str = "") -> InputError:
    """The error for a file without an event list. `start`: its first bytes, decompressed; `fault`: why they end."""
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text.strip(b"\x00"):
        return _nothing(name, start, fault)
    return NotATraceError(f"{name}: {_what(name, start, text)}{f' ({fault})' if fault else ''}")


def _nothing(name: str, start: bytes, fault: str) -> InputError:
    if fault:
        return InputError(f"{name}: nothing could be read: {fault}")
    return InputError(f"{name}: the file {'holds nothing but blanks' if start else 'is empty'}; export the trace again")


def _what(name: str, start: bytes, text: bytes) -> str:
    for magic, what in _MAGIC:
        if start.startswith(magic):
            return what
    if begins_an_archive(start):
        return _PACKED
    for suffixes, what in _SUFFIXES:
        if name.lower().endswith(suffixes):
            return what
    if text.startswith(b"<"):
        return "a web page or XML, not a trace (saved from a link that asks for a login?): download the file itself"
    return _object(text) if text.startswith(b"{") else f"not JSON: {_EXPECTED}"


def _object(text: bytes) -> str:
    for keys, what in _KEYS:
        if all(re.search(rb'"%s"\s*:' % re.escape(key.encode()), text) for key in keys):
            return what
    if b'"traceEvents"' in text:
        return f"traceEvents is no list of events: {_EXPECTED}"
    return f"JSON, but without traceEvents: {_EXPECTED}"


def begins_an_archive(start: bytes) -> bool:
    """Whether the first bytes of a file are those of an archive."""
    return any(start[at : at + len(magic)] == magic for magic, at in _ARCHIVES.items())


def archive(name: str) -> InputError:
    """The error for an archive that comes through a pipe or from a server."""
    return InputError(f"{name}: {_PACKED}")


def several(name: str) -> InputError:
    """The error for a file with several traces one after another."""
    return InputError(
        f"{name}: holds several traces, one after another: write each into a file of its own; a folder of them is read "
        "as the ranks of one run"
    )


def nothing_timed(name: str, events: int | None, python_frames: int, faults: list[str]) -> InputError:
    """The error for a trace without one event that can be placed in time."""
    if python_frames:
        what = f"holds nothing but Python frames ({python_frames:,}): profile with activities=[CPU, CUDA]"
    elif faults:
        what = f"holds no event that can be used: {'; '.join(faults)}"
    elif events:
        what = f"holds no event with a duration, only metadata and marks ({events:,}): {_RECORD}"
    else:
        what = f"holds no events: {_RECORD}"
    return EmptyTraceError(f"{name}: the trace {what}")


def not_pytorch(name: str, categories: list[str]) -> InputError:
    """The error for a Chrome trace of which no event has a category of the profiler."""
    some = ", ".join(repr(category) for category in categories[:3]) or "none"
    return NotATraceError(f"{name}: a Chrome trace, but not of PyTorch's profiler (categories: {some}): {_EXPECTED}")
