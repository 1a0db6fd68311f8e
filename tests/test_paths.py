"""Paths are named as an import finds them, or below "~": nobody's home folder is in what is passed on."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gobrrr.system.paths import bytes_without_home, short, without_home


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/data/people/ada")


@pytest.mark.parametrize(
    ("path", "folders", "expected"),
    [
        ("/data/people/ada/proj/pkg/model.py(3): f", ["/data/people/ada/proj"], "pkg/model.py(3): f"),
        ("/data/people/ada/proj/pkg/model.py", ["/data/people/ada/proj", "/data/people/ada/proj/pkg"], "model.py"),
        ("/data/people/ada/proj/model.py", ["/data/people/ada/pro"], "~/proj/model.py"),
        ("/data/people/ada/proj/model.py", ["", "/", "/data", "/data/people/"], "~/proj/model.py"),
        ("/data/people/ada/model.py", ["/data/people/ada"], "model.py"),
        ("/srv/model.py", ["/", "/srv"], "model.py"),
        ("/srv/model.py", ["/"], "/srv/model.py"),
        ("/opt/model.py", ["/srv"], "/opt/model.py"),
        ("<string>(1): f", ["/srv"], "<string>(1): f"),
    ],
)
def test_below_the_innermost_folder(path: str, folders: list[str], expected: str) -> None:
    assert short(path, folders) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("can't read /data/people/ada/x.json: gone", "can't read ~/x.json: gone"),
        ("in /data/people/ada.", "in ~."),
        ("/data/people/adam/x", "/data/people/adam/x"),
        ("/data/people/ada-2/x", "/data/people/ada-2/x"),
        ("/mnt/data/people/ada/x", "/mnt/data/people/ada/x"),
        ("file:///data/people/ada/x", "file://~/x"),
        ("/home/bob/proj/model.py(3): f", "~/proj/model.py(3): f"),
        ("/Users/bob/m.py and /root/n.py", "~/m.py and ~/n.py"),
        (r"C:\Users\bob\m.py", r"~\m.py"),
        ("/srv/home/bob/m.py", "/srv/home/bob/m.py"),
        ("the /home page", "the /home page"),
        ("/tmp/torchinductor_ada/ab/cab.py", "/tmp/torchinductor_user/ab/cab.py"),
        ("torchinductor_max is a name", "torchinductor_max is a name"),
    ],
)
def test_no_home_folder_in_a_text(text: str, expected: str) -> None:
    assert without_home(text) == expected
    assert msgspec.json.decode(bytes_without_home(msgspec.json.encode(text))) == expected


def test_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for nowhere in ("/", ""):
        monkeypatch.setenv("HOME", nowhere)
        assert without_home("/srv/x.py") == "/srv/x.py"


def test_a_home_folder_that_is_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "ada").symlink_to(tmp_path / "real")
    monkeypatch.setenv("HOME", str(tmp_path / "ada"))
    assert without_home(f"{tmp_path}/ada/x {tmp_path}/real/x {tmp_path}/reality/x") == f"~/x ~/x {tmp_path}/reality/x"
