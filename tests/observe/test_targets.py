"""Where a trace may come from: a file, a folder of ranks, standard input, a pipe, a URL."""

from __future__ import annotations

import gzip
import http.server
import io
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gobrrr.errors import InputError
from gobrrr.observe import source
from gobrrr.observe.trace import read_trace
from tests.observe.traces import op, rows, step, trace, write

PLAIN = json.dumps(trace(step())).encode()
ZIPPED = gzip.compress(PLAIN)


def expected(tmp_path: Path) -> list[tuple[Any, ...]]:
    return rows(read_trace(write(tmp_path / "expected.json", PLAIN)).ranks[0].events)


@pytest.mark.parametrize("data", [PLAIN, ZIPPED], ids=["plain", "gzip"])
def test_standard_input_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    profile = read_trace("-")
    assert rows(profile.ranks[0].events) == expected(tmp_path)
    assert (profile.target, profile.notes) == ("-", ())
    assert sys.stdin.read() == ""


def test_no_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="no standard input"):
        read_trace("-")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("data", [PLAIN, ZIPPED], ids=["plain", "gzip"])
def test_a_named_pipe(tmp_path: Path, data: bytes) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(data,))
    writer.start()
    profile = read_trace(pipe)
    writer.join()
    assert rows(profile.ranks[0].events) == expected(tmp_path)


@pytest.mark.parametrize("data", [PLAIN, ZIPPED], ids=["plain", "gzip"])
def test_urls_that_fsspec_opens(tmp_path: Path, data: bytes) -> None:
    import fsspec

    (tmp_path / "t").write_bytes(data)
    memory = fsspec.filesystem("memory")
    memory.pipe("/a/t", data)
    try:
        for url in ((tmp_path / "t").as_uri(), "memory://a/t"):
            profile = read_trace(url)
            assert rows(profile.ranks[0].events) == expected(tmp_path)
            assert profile.target == url
    finally:
        memory.rm("/a", recursive=True)


def test_a_remote_folder_of_ranks(tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    for rank in range(2):
        memory.pipe(f"/job/r{rank}.json", json.dumps(trace(step(), distributedInfo={"rank": rank})).encode())
    memory.pipe("/job/readme.txt", b"no trace")
    try:
        profile = read_trace("memory://job")
    finally:
        memory.rm("/job", recursive=True)
    assert [rank.rank for rank in profile.ranks] == [0, 1]


@pytest.fixture
def server() -> Iterator[str]:
    """A web server on this machine: /plain, /gzip, and /cut, which promises more than it sends."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = {"/plain": PLAIN, "/gzip": ZIPPED, "/cut": PLAIN[:-200]}.get(self.path)
            self.send_response(200 if body else 404)
            self.send_header("Content-Length", str(len(body or b"") + (200 if self.path == "/cut" else 0)))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            pass

    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=web.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{web.server_address[1]}"
    web.shutdown()
    thread.join()
    web.server_close()


@pytest.mark.parametrize("through", ["fsspec", "urllib"])
@pytest.mark.parametrize("name", ["plain", "gzip"])
def test_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str, name: str, through: str) -> None:
    _web_through(monkeypatch, through)
    profile = read_trace(f"{server}/{name}")
    assert rows(profile.ranks[0].events) == expected(tmp_path)


@pytest.mark.parametrize("through", ["fsspec", "urllib"])
def test_http_without_such_a_page(monkeypatch: pytest.MonkeyPatch, server: str, through: str) -> None:
    _web_through(monkeypatch, through)
    with pytest.raises(InputError, match=r"(no such file|404)") as caught:
        read_trace(f"{server}/nothing")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("through", ["fsspec", "urllib"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # aiohttp leaves its socket open
def test_http_that_breaks_off(monkeypatch: pytest.MonkeyPatch, server: str, through: str) -> None:
    """Each library has its own idea of what it hands over then: the events so far, or nothing and an error."""
    _web_through(monkeypatch, through)
    try:
        notes = read_trace(f"{server}/cut").notes
    except InputError as error:
        notes = (str(error),)
    assert "the file is cut off" in notes[0] or "nothing could be read: reading stopped after 0 bytes" in notes[0]


def _web_through(monkeypatch: pytest.MonkeyPatch, through: str) -> None:
    import fsspec

    if through == "fsspec":
        pytest.importorskip("aiohttp")
        return

    def lacks_a_package(*_: object) -> None:
        raise ImportError("aiohttp")

    monkeypatch.setattr(fsspec, "open", lacks_a_package)


@pytest.mark.parametrize("target", ["nowhere://a/b", "s4://x", "file:///no/such/file", "memory://no/such/file"])
def test_urls_that_do_not_open(target: str) -> None:
    with pytest.raises(InputError) as caught:
        read_trace(target)
    assert str(caught.value).startswith(f"{target}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["missing.json", "a\0b.json", "x" * 5000, ""])
def test_files_that_do_not_open(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError):
        read_trace(os.path.join(tmp_path, "none", name))


def test_a_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: object) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "listdir", denied)
    with pytest.raises(InputError, match="can't be opened: Permission denied"):
        read_trace(tmp_path)


def test_a_folder_of_ranks(tmp_path: Path) -> None:
    for rank in (10, 2, 1):
        write(tmp_path / f"trace_rank{rank}.json.gz", trace(step()))
    write(tmp_path / "zero.json", trace(step(), distributedInfo={"rank": 0, "world_size": 8}))
    write(tmp_path / "truth.json", {"answer": 42})
    write(tmp_path / "notes.txt", b"not looked at")
    write(tmp_path / "._trace_rank0.json", b"not looked at")
    profile = read_trace(tmp_path)
    assert [rank.rank for rank in profile.ranks] == [0, 1, 2, 10]
    assert [len(rank.events) for rank in profile.ranks] == [3, 3, 3, 3]
    assert profile.notes == (
        "truth.json: left out: JSON, but without traceEvents: expected the JSON that torch.profiler's "
        "export_chrome_trace writes",
        "4 of 8 ranks are in the folder: what the others did is not known",
    )


def test_the_metadata_beats_the_name(tmp_path: Path) -> None:
    write(tmp_path / "rank7.json", trace(step(), distributedInfo={"rank": "5"}))
    assert [rank.rank for rank in read_trace(tmp_path).ranks] == [5]


def test_one_rank_twice(tmp_path: Path) -> None:
    for name in ("worker.10.json", "worker.20.json"):
        write(tmp_path / name, trace(step(), distributedInfo={"rank": 1}))
    profile = read_trace(tmp_path)
    assert [rank.meta.source[-7:] for rank in profile.ranks] == ["10.json", "20.json"]
    assert profile.notes == (
        "several files say that they are rank 1 (worker.10.json, worker.20.json): each is kept as a rank of its own",
    )


def test_traces_of_several_runs_are_not_the_ranks_of_one(tmp_path: Path) -> None:
    for name in ("good.rank0.json", "good.rank1.json", "bad.rank0.json", "bad.rank1.json"):
        write(tmp_path / name, trace(step(), distributedInfo={"rank": int(name[-6])}))
    with pytest.raises(InputError, match=r"4 traces of 2 runs, not the ranks of one; name one: '.*rank\*\.json'"):
        read_trace(tmp_path)
    assert [rank.rank for rank in read_trace(tmp_path / "good.rank*.json").ranks] == [0, 1]


def test_ranks_of_one_run_may_have_any_names(tmp_path: Path) -> None:
    for rank, name in enumerate(("first.json", "second.json")):
        write(tmp_path / name, trace(step(), distributedInfo={"rank": rank}))
    assert len(read_trace(tmp_path).ranks) == 2


def test_ranks_with_and_without_device_work(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", trace(step()))
    write(tmp_path / "rank1.json", trace([op()]))
    profile = read_trace(tmp_path)
    assert len(profile.ranks) == 2
    assert profile.notes[0].startswith("rank1.json: no kernel, copy or set on any device was recorded")
    assert profile.notes[1] == "some ranks have device work and others none (rank1.json): they can't be compared"


@pytest.mark.parametrize(("files", "says"), [([], "no .json or .json.gz file"), (["x.json"], "none of its 1 files is")])
def test_a_folder_without_a_trace(tmp_path: Path, files: list[str], says: str) -> None:
    for name in files:
        write(tmp_path / name, b"[]")
    with pytest.raises(InputError, match=says):
        read_trace(tmp_path)


def test_progress_is_told(tmp_path: Path) -> None:
    for name, data in (("t.json", PLAIN), ("t.gz", ZIPPED)):
        seen: list[tuple[int, int | None]] = []
        write(tmp_path / name, b"")
        (tmp_path / name).write_bytes(data)
        read_trace(tmp_path / name, progress=lambda done, total, seen=seen: seen.append((done, total)))  # type: ignore[misc]
        assert seen[-1] == (len(data), len(data))


def test_a_thread_that_works_ahead_hands_over_errors_and_stops() -> None:
    def failing() -> Iterator[bytes]:
        yield b"a"
        raise MemoryError("no memory")

    blocks = source.ahead(failing())
    assert next(blocks) == b"a"
    with pytest.raises(MemoryError):
        next(blocks)
    endless = source.ahead(iter(lambda: b"x", b""))
    assert next(endless) == b"x"
    endless.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name == "gobrrr-inflate"]
