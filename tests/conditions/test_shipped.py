"""The shipped H100 workloads: each fault is named on the faulty trace and not on the fixed one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gobrrr.analysis.findings.evidence import Evidence
from tests.analysis import tables
from tests.conftest import H100
from tests.evidence import findings, found, predict

FAULTS = {
    "gpt_fp32_notf32": ("C01", "bf16-autocast"),
    "gpt_eager_attn": ("M02", "sdpa"),
    "mlp_tiny": ("O01", "cuda-graph"),
    "pointwise_chain": ("M01", "compile"),
    "resnet_slow_loader": ("D01", "dataloader-workers"),
    "moe_host_loop": ("O02", "remove-sync"),
    "dit_adaln": ("M01", "compile"),
}
CURED = {**FAULTS, "moe_host_loop": ("O04", "grouped-matmul")}
"""The loop over experts costs launches more than waits: what cures both is the loop's own finding's."""
TOLERANCE = 0.1
"""A predicted saving may miss the measured one by this share of the step (docs/design.md, section 10)."""


def evidence(name: str, form: str, folder: Path = H100) -> Evidence:
    return tables.evidence(next(iter(folder.rglob(f"{name}.{form}.json.gz"))))


def truth() -> dict[str, dict[str, dict[str, float]]]:
    return json.loads((H100 / "truth.json").read_text(encoding="utf-8"))


def test_every_workload_with_a_known_fault_is_here():
    assert set(FAULTS) == set(truth())


@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_among_the_first_two_findings(name: str):
    first = findings(evidence(name, "faulty"))[:2]
    assert FAULTS[name][0] in [one.code for one in first]


@pytest.mark.parametrize("name", FAULTS)
def test_the_fixed_form_does_not_have_it(name: str):
    assert FAULTS[name][0] not in [one.code for one in findings(evidence(name, "fixed"))]


@pytest.mark.parametrize("form", ["faulty", "fixed"])
@pytest.mark.parametrize("name", FAULTS)
def test_stakes_and_predictions_are_intervals_within_the_step(name: str, form: str):
    seen = evidence(name, form)
    most = max(seen.wall_ns, (seen.unprofiled.wall.high if seen.unprofiled.wall else None) or 0.0)
    for finding in findings(seen):
        low, high = finding.at_stake_ns
        assert 0 <= low <= high <= seen.wall_ns
        assert finding.evidence
        for treatment in finding.treatments:
            given = predict(treatment, seen, finding)
            if given is not None:
                assert 0 <= given.predicted_saving_ns[0] <= given.predicted_saving_ns[1] <= most


@pytest.mark.parametrize("name", FAULTS)
def test_the_predicted_saving_is_near_the_measured_one(name: str):
    """As shares of the step, because the traced run and the timed run had different hosts' loads."""
    code, treatment = CURED[name]
    seen = evidence(name, "faulty")
    given = predict(treatment, seen, found(code, seen))
    assert given is not None
    times = truth()[name]
    measured = 1 - times["fixed"]["sync_ms"] / times["faulty"]["sync_ms"]
    low, high = (ns / seen.wall_ns for ns in given.predicted_saving_ns)
    assert low - TOLERANCE <= measured <= high + TOLERANCE


def test_the_expert_loop_is_named():
    finding = found("O02", evidence("moe_host_loop", "faulty"))
    assert finding.where[0].op == "aten::nonzero"
    assert finding.where[0].count == 32
    assert any("loop over experts" in fact for fact in finding.evidence)
    assert found("O04", evidence("moe_host_loop", "faulty")).treatments[0] == "grouped-matmul"
    # once: the loop's time is O04's
    assert "grouped-matmul" not in found("O01", evidence("moe_host_loop", "faulty")).treatments


def test_a_replayed_graph_is_not_launch_bound_and_its_kernels_are_not_checked():
    from gobrrr.model.diagnosis import NotChecked
    from tests.evidence import check

    seen = evidence("mlp_tiny", "fixed")
    assert check("O01", seen) is None
    result = check("M01", seen)
    assert isinstance(result, NotChecked)
    assert "graph" in result.needs
