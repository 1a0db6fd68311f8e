"""bench.gpu.issue_time: a step's issue time is measured, its passes too, and what was there stays as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from bench.gpu import issue_time_one, runs  # noqa: E402
from bench.gpu.treatment_workloads.form import trained  # noqa: E402


def test_a_workload_is_measured_with_its_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, fewer in (("FEWEST", 1), ("BLOCK_NS", 0.0), ("PARTED", 1)):
        monkeypatch.setattr(issue_time_one, name, fewer)
    monkeypatch.setattr(issue_time_one, "WARM_S", 0.1)
    plain = torch.autograd.backward
    model = torch.nn.Linear(2, 2)
    workload = trained(model, torch.nn.functional.mse_loss, (torch.ones(2, 2),), (torch.ones(2, 2),))
    found = issue_time_one.measure(workload, seconds=0.0)
    assert len(found["issues"]) == issue_time_one.SINGLE
    assert found["least_issue_ns"] <= found["issue_ns"] <= found["alone_ns"]
    passes = found["passes"]
    assert set(passes) == {"forward", "backward", "optimizer", "step"}
    assert all(ns > 0 for ns in passes.values())
    assert found["waits"] == 0
    assert torch.autograd.backward is plain


def test_it_goes_on_where_it_stopped_and_errors_are_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "issue_h200.json"
    path.write_text(json.dumps({"workloads": {"a": {"issue_ns": 1.0}, "b": {"error": "ended with status 1"}}}))
    known = runs.earlier(tmp_path, "issue_h200")
    assert [name for name, found in known.items() if runs.unfinished(found)] == ["b"]
