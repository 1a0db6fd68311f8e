"""Measurements that are kept and found again; damaged files stop nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.errors import UsageError
from gobrrr.hardware import cache
from tests.hardware.measured_samples import H100, entry, environment, h100


def test_what_is_saved_is_found(tmp_path: Path) -> None:
    path = cache.save(h100(), tmp_path)
    assert path.parent == tmp_path
    assert cache.decode(path.read_bytes()) == h100()
    machine = cache.load_measured(H100, tmp_path)
    assert machine is not None
    assert machine.matrix_flop_per_s["bfloat16"].value == 729e12
    found = cache.look_up(H100, tmp_path)
    assert found.machine == machine
    assert found.notes[0].startswith(f"least times use ceilings measured on {H100}, 2026-01-02, torch 2.11.0")


def test_only_the_same_name_is_found(tmp_path: Path) -> None:
    cache.save(h100(), tmp_path)
    for name in ("NVIDIA H100", "NVIDIA H100 80GB HBM3 MIG", "nvidia h100 80gb hbm3", "", None):
        assert cache.look_up(name, tmp_path) == cache.KeptMachine(None)
    assert cache.load_measured(H100, tmp_path / "missing") is None


def test_the_newest_counts_and_versions_have_files_of_their_own(tmp_path: Path) -> None:
    old = h100(environment=environment(date="2025-01-01T00:00:00+00:00"))
    new = h100(
        environment=msgspec.structs.replace(environment(), torch="2.13.0"), entries=(entry("matrix", "int8", 1e15),)
    )
    cache.save(new, tmp_path)
    cache.save(old, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert cache.newest(H100, tmp_path)[0] == new
    cache.save(h100(), tmp_path)  # the same device, driver and torch as the old one: over it
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"null", b"\xff\xfe", b'{"environment": {}}', b"[1]"],
)
def test_a_damaged_file_is_ignored_with_a_note(tmp_path: Path, damage: bytes) -> None:
    path = cache.save(h100(), tmp_path)
    path.write_bytes(damage)
    found = cache.look_up(H100, tmp_path)
    assert found.machine is None
    assert path.name in found.notes[0]
    assert "gobrrr machine" in found.notes[0]


def test_a_newer_format_and_a_figure_that_can_not_be_are_ignored(tmp_path: Path) -> None:
    path = cache.save(h100(format=99), tmp_path)
    assert "format 99" in cache.look_up(H100, tmp_path).notes[0]
    path.unlink()
    cache.save(h100(entries=(entry("memory", "copy", 0.0, "B/s"),)), tmp_path)
    assert cache.look_up(H100, tmp_path).machine is None


def test_nothing_half_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(cache.os, "replace", fail)
    with pytest.raises(UsageError, match="disk full"):
        cache.save(h100(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "gobrrr" / "machines"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert cache.folder() == tmp_path / "home" / ".cache" / "gobrrr" / "machines"


@given(st.text(max_size=80))
def test_any_name_is_a_file_name(name: str) -> None:
    path = cache.path_of(environment(name), Path("x"))
    assert path.parent == Path("x")
    assert path.name.isascii()
    assert len(path.name) < 100
