"""Whose code a source file is: by where it lies, not by what its folders are called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import msgspec
import numpy
import pytest

import gobrrr
from gobrrr.observe.installed import Owner, owner

HOME = Path(gobrrr.__file__).parent
GENERATED = "/tmp/torchinductor_me/ab/c" + "a2" * 25 + "b.py"


@pytest.mark.parametrize(
    "file",
    [
        "/home/me/torch/train.py",
        "/home/me/gobrrr/train.py",
        "/home/me/gobrrr/torch/site-packages/train.py",
        "/home/me/site-packages-notes/train.py",
        "/home/me/site-packages/train.py",
        "/data/torchinductor_notes/ab/train.py",
        f"{sys.base_prefix}/src/app/train.py",  # /usr/src/app, where the interpreter's own prefix is /usr
        f"{sys.base_prefix}-projects/train.py",
        f"{HOME}-notes/train.py",
        f"{HOME.parent}/train.py",
        f"{HOME}/lab/example.py",  # the demonstration's program stands for a user's
        __file__,
    ],
)
def test_a_users(file: str) -> None:
    assert owner(file) is Owner.USER


@pytest.mark.parametrize(
    ("file", "whose"),
    [
        (f"{HOME}/live.py", Owner.GOBRRR),
        (json.__file__, Owner.PACKAGE),
        (numpy.__file__, Owner.PACKAGE),
        (msgspec.__file__, Owner.PACKAGE),
        (pytest.__file__, Owner.PACKAGE),
        (os.path.join(sysconfig.get_path("purelib"), "einops", "einops.py"), Owner.PACKAGE),
        (GENERATED, Owner.PACKAGE),
        ("<string>", Owner.NOBODY),
        ("<frozen importlib._bootstrap>", Owner.NOBODY),
    ],
)
def test_everybody_elses(file: str, whose: Owner) -> None:
    assert owner(file) is whose


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    assert owner(torch.nn.__file__) is Owner.TORCH


def test_packages_of_another_prefix_that_is_on_the_search_path(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = "/apps/pytorch/2.9/lib/python3.11/site-packages"
    monkeypatch.syspath_prepend(folder)
    owner.cache_clear()
    assert owner(f"{folder}/einops/einops.py") is Owner.PACKAGE
    assert owner("/apps/pytorch/2.9/train.py") is Owner.USER
    owner.cache_clear()


def test_a_script_in_a_folder_called_site_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend("/home/me/site-packages")
    owner.cache_clear()
    assert owner("/home/me/site-packages/train.py") is Owner.USER


def test_it_is_asked_without_torch() -> None:
    code = "import sys; from gobrrr.observe.installed import owner; owner('/x/a.py'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(HOME.parent)})
