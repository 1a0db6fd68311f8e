"""Archives of traces are the ranks of one run; a file with several traces in it is refused with what to do."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from gobrrr.errors import InputError
from gobrrr.observe import archive
from gobrrr.observe.trace import read_trace
from tests.observe.traces import rows, step, trace

Files = dict[str, bytes]


def ranks(count: int = 2) -> Files:
    return {f"run/rank{n}.json": json.dumps(trace(step(), distributedInfo={"rank": n})).encode() for n in range(count)}


def tar(path: Path, files: Files, mode: str = "w") -> Path:
    with tarfile.open(path, mode) as out:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
    return path


def zipped(path: Path, files: Files) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in files.items():
            out.writestr(name, data)
    return path


MAKERS = {
    "tar": tar,
    "tar.gz": lambda path, files: tar(path, files, "w:gz"),
    "zip": zipped,
    "anything": tar,  # told by its content
}


@pytest.mark.parametrize("kind", MAKERS)
def test_an_archive_is_a_folder_of_ranks(tmp_path: Path, kind: str) -> None:
    files = {**ranks(), "run/readme.txt": b"no trace", "run/._rank0.json": b"of another system"}
    found = read_trace(MAKERS[kind](tmp_path / f"all.{kind}", files))
    assert [one.rank for one in found.ranks] == [0, 1]
    (tmp_path / "run").mkdir()
    for name, data in ranks().items():
        (tmp_path / name).write_bytes(data)
    there = read_trace(tmp_path / "run")
    assert [rows(one.events) for one in found.ranks] == [rows(one.events) for one in there.ranks]
    assert found.notes == there.notes
    assert found.target == str(tmp_path / f"all.{kind}")


def test_one_trace_in_an_archive(tmp_path: Path) -> None:
    found = read_trace(zipped(tmp_path / "a.zip", {"deep/in/t.json.gz": gzip.compress(ONE)}))
    assert (len(found.ranks), found.notes) == (1, ())


def refused(target: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_trace(target)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{target}: ")


def test_archives_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = zipped(tmp_path / "a.zip", {"readme.txt": b"x"})
    assert refused(empty) == "no .json or .json.gz file there"
    whole = tar(tmp_path / "whole.tar", ranks()).read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[:700])
    assert refused(tmp_path / "cut.tar") == "the archive is cut off or damaged: unexpected end of data"
    (tmp_path / "cut.zip").write_bytes(zipped(tmp_path / "whole.zip", ranks()).read_bytes()[:-30])
    assert refused(tmp_path / "cut.zip") == "the archive is cut off or damaged: File is not a zip file"
    same = tar(tmp_path / "same.tar", {"a/t.json": b"{}", "b/t.json": b"{}"})
    assert refused(same) == "two files in it are called t.json: unpack it and name one folder"
    two = zipped(tmp_path / "two.zip", {"eager.json": ONE, "other.json": ONE})
    assert refused(two) == ("2 traces of 2 runs, not the ranks of one: unpack the archive and name those of one run")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 0, 9))
    assert "in it needs" in refused(zipped(tmp_path / "large.zip", ranks()))


def test_nothing_is_left_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(archive.tempfile, "tempdir", str(scratch))
    read_trace(tar(tmp_path / "a.tar", ranks()))
    hostile = tar(tmp_path / "b.tar", {"../../up.json": b"{}", "/abs.json": b"{}", **ranks()})
    assert len(read_trace(hostile).ranks) == 2
    assert list(scratch.iterdir()) == []
    assert not (tmp_path / "up.json").exists()


@pytest.mark.parametrize("files", [ranks(), {"t.txt": b"x"}], ids=["traces", "none"])
def test_an_archive_through_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Files) -> None:
    data = tar(tmp_path / "a.tar", files).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    with pytest.raises(InputError, match="-: an archive: save it as a file, whose traces are then read as the ranks"):
        read_trace("-")


ONE = json.dumps(trace(step())).encode()
LIST = json.dumps(trace(step())["traceEvents"]).encode()


@pytest.mark.parametrize(
    "data", [ONE + ONE, ONE + b"\n" + ONE, gzip.compress(ONE) + gzip.compress(ONE), LIST + LIST, LIST + b"\n\n" + LIST],
    ids=["objects", "lines", "gzip", "lists", "lines_of_lists"],
)  # fmt: skip
def test_several_traces_one_after_another(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "t.json").write_bytes(data)
    assert refused(tmp_path / "t.json") == (
        "holds several traces, one after another: write each into a file of its own; a folder of them is read as the "
        "ranks of one run"
    )


@pytest.mark.parametrize("behind", [b"", b"\n", b"\0" * 100, b"garbage", b'{"a": 1}', b'"traceEvents"', b"]]]}}}"])
def test_what_else_stands_behind_a_trace(tmp_path: Path, behind: bytes) -> None:
    (tmp_path / "t.json").write_bytes(ONE + behind)
    assert len(read_trace(tmp_path / "t.json").ranks) == 1


def test_a_key_of_that_name_is_no_other_trace(tmp_path: Path) -> None:
    whole: dict[str, Any] = trace(step())
    (tmp_path / "t.json").write_text(json.dumps(whole | {"before": {"traceEvents": []}}))
    assert len(read_trace(tmp_path / "t.json").ranks) == 1


def test_an_event_larger_than_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gobrrr.observe import damage, decode, scan

    for home in (scan, decode, damage):
        monkeypatch.setattr(home, "LARGEST_EVENT", 1 << 20)
    whole = trace(step())
    whole["traceEvents"].insert(2, dict(whole["traceEvents"][1], name="x" * (3 << 20)))
    (tmp_path / "t.json").write_text(json.dumps(whole))
    notes = " ".join(read_trace(tmp_path / "t.json").notes)
    assert "of the event list are no JSON, or of an event of more than 1 MiB, and were skipped" in notes


def test_nothing_but_an_event_larger_than_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gobrrr.observe import damage, decode, scan

    for home in (scan, decode, damage):
        monkeypatch.setattr(home, "LARGEST_EVENT", 1 << 20)
    event = dict(step()[0], name="x" * (3 << 20))
    (tmp_path / "t.json").write_text(json.dumps(trace([event])))
    said = refused(tmp_path / "t.json")
    assert said.startswith("the trace holds no event that can be used: the end of the event list was not found, only 0")
    assert "or of an event of more than 1 MiB, and were skipped" in said
    assert "cut off" not in said
