"""Where a trace may come from: a file, a folder of ranks, standard input, a pipe, a URL."""

from __future__ import annotations

import gzip
import http.server
import io
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gobrrr.errors import InputError
from gobrrr.observe import source
from gobrrr.observe.trace import read_trace
from gobrrr.report.json import load, to_json
from tests.observe.traces import op, rows, step, trace, write
from tests.report import samples

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


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_that_nothing_writes_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_PIPE_TIMEOUT_S", 0.1)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for read in (read_trace, load):
        with pytest.raises(InputError) as caught:
            read(pipe)
        assert str(caught.value) == f"{pipe}: a pipe that nothing writes to (none did within 0.1 s)"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_whose_writer_takes_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_PIPE_TIMEOUT_S", 0.3)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def slowly() -> None:
        with open(pipe, "wb") as out:
            time.sleep(0.8)
            out.write(ZIPPED)

    writer = threading.Thread(target=slowly)
    writer.start()
    profile = read_trace(pipe)
    writer.join()
    assert rows(profile.ranks[0].events) == expected(tmp_path)


def test_a_saved_diagnosis_through_a_pipe(tmp_path: Path) -> None:
    pipe, saved = tmp_path / "pipe", samples.overhead()
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(to_json(saved),))
    writer.start()
    assert load(pipe) == saved
    writer.join()


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
    """A web server on this machine: /plain, /gzip, /cut, which promises more than it sends, /silent, which does not."""
    silence = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = {"/plain": PLAIN, "/gzip": ZIPPED, "/cut": PLAIN[:-200], "/silent": b" "}.get(self.path)
            status = {"/secret": 403, "/broken": 500}.get(self.path, 404)
            self.send_response(200 if body else status)
            self.send_header("Content-Length", str(len(body or b"") + (200 if self.path == "/cut" else 0)))
            self.end_headers()
            if self.path == "/silent":
                self.wfile.flush()
                silence.wait(5)
            with suppress(OSError):
                self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            pass

    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=web.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{web.server_address[1]}"
    silence.set()
    web.shutdown()
    thread.join()
    web.server_close()


@pytest.mark.parametrize("name", ["plain", "gzip"])
def test_http(tmp_path: Path, server: str, name: str) -> None:
    profile = read_trace(f"{server}/{name}")
    assert rows(profile.ranks[0].events) == expected(tmp_path)


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("nothing", "the server answers 404 Not Found"),
        (
            "secret",
            "the server answers 403 Forbidden: it asks for a login; download the file and pass its path",
        ),
        ("broken", "the server answers 500 Internal Server Error"),
    ],
)
def test_http_without_such_a_page(server: str, page: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        read_trace(f"{server}/{page}")
    assert str(caught.value) == f"{server}/{page}: {says}"


def test_http_that_breaks_off(server: str) -> None:
    assert "the file is cut off" in read_trace(f"{server}/cut").notes[0]


def test_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_WEB_TIMEOUT_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/t.json"
        with pytest.raises(InputError) as caught:
            read_trace(url)
    assert str(caught.value) == f"{url}: no answer within 0.2 s"


def test_a_server_that_falls_silent(monkeypatch: pytest.MonkeyPatch, server: str) -> None:
    monkeypatch.setattr(source, "_WEB_TIMEOUT_S", 0.2)
    with pytest.raises(InputError, match="nothing could be read: reading stopped after 0 bytes: timed out"):
        read_trace(f"{server}/silent")


def test_a_refused_connection() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{one.getsockname()[1]}/t.json"
    with pytest.raises(InputError) as caught:
        read_trace(url)
    assert str(caught.value) == f"{url}: the server can't be reached: Connection refused"


def test_a_server_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    url = "https://no-such-host.invalid/t.json"
    with pytest.raises(InputError) as caught:
        read_trace(url)
    assert str(caught.value) == f"{url}: the server can't be reached: Name or service not known"


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
        "the folder has 4 of 8 ranks: what the others did is not known",
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


@pytest.mark.parametrize(
    ("files", "says"), [([], "no .json or .json.gz file"), (["x.json"], "no file in it is a trace")]
)
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
