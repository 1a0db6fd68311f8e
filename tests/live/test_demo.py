"""The step that `gobrrr demo` runs and diagnoses here."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gobrrr.doors import live  # noqa: E402
from gobrrr.hardware import cache  # noqa: E402
from tests.live.look import CPU  # noqa: E402


def test_the_demonstrations_step_names_its_faults_at_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_measure_once", lambda _: None)
    monkeypatch.setattr("gobrrr.doors.pipeline.look_up", lambda _: cache.KeptMachine(CPU))
    for _ in range(3):  # a shared machine can stall one run
        places = {one.code: one.where[0] for one in live.diagnose_demo().findings}
        if {"M02", "O03"} <= set(places):
            break
    assert (places["M02"].source or "").endswith("forward")
    assert "lab/example.py" in (places["O03"].source or "")
