"""Traces of public repositories, whose story is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.model.diagnosis import Finding
from tests.analysis.tables import diagnosis
from tests.conftest import PUBLIC_TRACES

pytestmark = pytest.mark.skipif(not PUBLIC_TRACES.is_dir(), reason="needs ../shared/public_traces")


def only(pattern: str) -> Path:
    return next(iter(sorted(PUBLIC_TRACES.rglob(pattern))))


def findings(pattern: str) -> dict[str, Finding]:
    return {one.code: one for one in diagnosis(only(pattern)).findings}


@pytest.mark.slow  # seconds each; conditions are tested on small traces by day
@pytest.mark.parametrize(
    "pattern", ["*num_workers_0__worker0.pt.trace.json.gz", "*num_workers_0__worker0.pt.trace@eebfef3.json.gz"]
)
def test_resnet_without_workers_waits_for_its_input(pattern: str):
    finding = findings(pattern)["D01"]
    assert "DataLoader" in (finding.where[0].op or "")


@pytest.mark.slow
def test_resnet_with_four_workers_does_not():
    assert "D01" not in findings("*num_workers_4__worker0.pt.trace.json.gz")


def test_timesformer_materialises_its_attention():
    """Softmax and batched matmuls: some 127 of 158 ms of device time."""
    found = findings("h100__facebook_timesformer*")
    first = next(iter(found.values()))
    assert first.code == "M02"
    assert first.treatments == ["sdpa", "compile"]
    assert first.at_stake_ns[1] == pytest.approx(124e6, rel=0.05)


def test_a_graph_replay_is_not_called_launch_bound():
    found = diagnosis(only("*vllm_decode_full__graph_execution*"))
    codes = [one.code for one in found.findings]
    assert "O01" not in codes
    assert "Q03" in codes
    assert found.regime != "overhead"


@pytest.mark.slow
def test_a_trace_without_shapes_says_so():
    assert "Q02" in findings("hta/df_index_resolver*")


def test_modules_that_are_loaded_in_the_step_are_named():
    assert "hipModuleLoadData" in (findings("*normalization_layer_test*")["O05"].where[0].op or "")


def test_norms_written_out_of_pointwise_calls_in_qwen():
    found = findings("h100__Qwen*")
    # compiling fuses the chains and the norms alike: the norms, which have most at stake, come first
    assert list(found)[:2] == ["M03", "M01"]
    assert max(found.values(), key=lambda one: one.at_stake_ns[1]).code == "M03"
    assert "49 norms a step" in found["M03"].evidence[0]
