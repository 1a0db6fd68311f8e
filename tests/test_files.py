"""Files are written whole or not at all, in the place that was named; small ones are read without waiting."""

from __future__ import annotations

import os
import socket
import stat
import sys
import threading
from pathlib import Path

import pytest

from gobrrr.errors import UsageError
from gobrrr.system import files

posix = pytest.mark.skipif(sys.platform == "win32", reason="modes, links and pipes are POSIX")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@posix
def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    files.write(tmp_path / "x", b"1")
    assert mode(tmp_path / "x") == mode(tmp_path / "plain")


@posix
@pytest.mark.parametrize("before", [0o600, 0o640, 0o664])
def test_a_file_keeps_its_mode(tmp_path: Path, before: int) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    path.chmod(before)
    files.write(path, b"new")
    assert (path.read_bytes(), mode(path)) == (b"new", before)


@posix
def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    real, link, second = tmp_path / "there" / "real", tmp_path / "link", tmp_path / "second"
    real.write_bytes(b"old")
    real.chmod(0o600)
    link.symlink_to(Path("there") / "real")
    second.symlink_to(link)
    files.write(second, b"new")
    assert link.is_symlink()
    assert second.is_symlink()
    assert (real.read_bytes(), mode(real)) == (b"new", 0o600)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link", "second", "there"]


@posix
def test_a_link_to_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    files.write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


@posix
def test_links_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    (tmp_path / "away").symlink_to(tmp_path / "no" / "such")
    with pytest.raises(UsageError, match=r"away: its folder does not exist; make .*no first"):
        files.write(tmp_path / "away", b"")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    with pytest.raises(UsageError, match="round"):
        files.write(tmp_path / "round", b"")


@posix
def test_a_file_that_may_not_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "access", lambda where, _: Path(where) != path)  # root may write anything
    with pytest.raises(UsageError, match="is a file that can't be written"):
        files.write(path, b"new")
    assert path.read_bytes() == b"old"


@posix
def test_what_is_no_regular_file_stays_what_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    files.write(pipe, b"{}")
    reader.join(10)
    assert got == [b"{}"]
    assert pipe.is_fifo()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is Linux's")
def test_a_full_disk_is_said() -> None:
    with pytest.raises(UsageError, match="/dev/full: can't be written: No space left on device"):
        files.write("/dev/full", b"x")
    assert Path("/dev/full").is_char_device()


@posix
def test_reading_waits_for_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as one:
        here = os.getcwd()
        os.chdir(tmp_path)  # a socket's name is short
        try:
            one.bind("socket")
        finally:
            os.chdir(here)
    for name, what in (("pipe", "a pipe"), ("socket", "a socket"), ("folder", "a folder")):
        with pytest.raises(OSError, match=f"is {what}, not a file"):
            files.read(tmp_path / name)
    (tmp_path / "zeros").symlink_to("/dev/zero")
    with pytest.raises(OSError, match="is a device, not a file"):
        files.read(tmp_path / "zeros")
    with open(tmp_path / "large", "wb") as stream:
        stream.truncate(files.MOST_FILE_BYTES + 1)
    with pytest.raises(OSError, match="64,000,001 bytes"):
        files.read(tmp_path / "large")
    (tmp_path / "small").write_bytes(b"1")
    assert files.read(tmp_path / "small") == b"1"


def test_what_is_in_a_folder(tmp_path: Path) -> None:
    for name in ("b.json", "a.json", "a.txt", ".a.json.1.part", ".hidden.json"):
        (tmp_path / name).touch()
    assert [one.name for one in files.listed(tmp_path, end=".json")] == ["a.json", "b.json"]
    assert [one.name for one in files.listed(tmp_path, "a", ".json")] == ["a.json"]
    assert files.listed(tmp_path / "none") == []
    with pytest.raises(NotADirectoryError):
        files.listed(tmp_path / "a.txt")
