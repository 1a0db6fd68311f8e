"""O06, sick and healthy."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.model.diagnosis import Finding
from tests.evidence import certain, check, evidence_from, found, predict
from tests.traces import Trace


def allocating(trace: Trace, us: float, name: str = "cudaMalloc") -> None:
    """An operation that asks the driver for memory."""
    with trace.inside("aten::empty"):
        trace._add("cuda_runtime", name, trace.now, us, {"correlation": trace._next()})
        trace.now += us


def steps(folder: Path, sick: set[int], *, count: int = 4, name: str = "cudaMalloc", first: bool = True) -> Path:
    """Steps of 2 ms of matmuls; those in `sick` allocate for 1 ms before them, or behind their launches."""
    trace = Trace()
    for number in range(count):
        with trace.step(number):
            if number in sick and first:
                allocating(trace, 1000.0, name)
            for _ in range(10):
                trace.op("aten::mm", [[4096, 4096], [4096, 4096]], 200.0, host_us=10.0)
            if number in sick and not first:
                allocating(trace, 1000.0, name)
            trace.synchronize()
    return trace.write(folder)


@pytest.mark.parametrize("name", ["cudaMalloc", "cudaFree", "hipMalloc", "hipFree"])
def test_each_step_allocates(tmp_path: Path, name: str):
    seen = evidence_from(steps(tmp_path, {0, 1, 2, 3}, name=name))
    finding = found("O06", seen)
    assert finding.at_stake_ns == pytest.approx((1e6, 1e6), rel=0.05)
    assert finding.at_stake_ns[1] == pytest.approx(seen.line("overhead", "allocator"))
    assert finding.certainty == "high"
    assert finding.where[0].op == "aten::empty"
    assert f"calls a step: 1 {name}" in finding.evidence
    assert "4 of 4 recorded steps allocate" in finding.evidence
    # nothing hides what the host does in front of the first launch: as known as the host's time is
    given, sure = (predict("allocator", one, finding) for one in (seen, certain(seen)))
    assert given is not None
    assert sure is not None
    assert sure.predicted_saving_ns == pytest.approx(finding.at_stake_ns, rel=0.02)
    assert given.expected_ns == sure.expected_ns
    assert given.predicted_saving_ns[0] < finding.at_stake_ns[0]
    # however little is known of the step: no saving is above what its finding has at stake
    assert given.predicted_saving_ns[1] == pytest.approx(finding.at_stake_ns[1])


def test_no_call_is_promised_more_than_it_took_as_recorded(tmp_path: Path):
    """A host is taken for no slower than it was recorded."""
    seen = evidence_from(steps(tmp_path, {0, 1, 2, 3}))
    given = predict("allocator", seen, found("O06", seen))
    assert given is not None
    assert given.predicted_saving_ns[1] <= 1.01e6


def test_a_recorded_warm_up_is_said_to_be_one(tmp_path: Path):
    """Two steps, so that the first is not left out of the estimate as an outlier."""
    finding = found("O06", evidence_from(steps(tmp_path, {0}, count=2)))
    assert finding.at_stake_ns[0] == 0
    assert finding.at_stake_ns[1] > 0
    assert finding.certainty == "medium"
    assert "only the first recorded step allocates: warm up before profiling" in finding.evidence


def test_of_one_step_it_can_not_be_told(tmp_path: Path):
    finding = found("O06", evidence_from(steps(tmp_path, {0}, count=1)))
    assert finding.at_stake_ns[0] == 0
    assert any("one step was recorded" in fact for fact in finding.evidence)


def test_a_step_without_allocations(tmp_path: Path):
    assert check("O06", evidence_from(steps(tmp_path, set()))) is None


def test_allocating_while_the_device_works_costs_nothing(tmp_path: Path):
    assert check("O06", evidence_from(steps(tmp_path, {0, 1, 2, 3}, first=False))) is None


@pytest.mark.parametrize(("kind", "switch"), [("cuda", "PYTORCH_NO_CUDA_MEMORY_CACHING"),
                                              ("hip", "PYTORCH_NO_HIP_MEMORY_CACHING")])  # fmt: skip
@pytest.mark.parametrize(("freed", "told"), [(5, True), (1, False)])
def test_what_is_freed_as_often_as_it_is_allocated_was_given_back(
    tmp_path: Path, kind: str, switch: str, freed: int, told: bool
):
    trace = Trace()
    for number in range(3):
        with trace.step(number):
            for at in range(5):
                allocating(trace, 200.0, f"{kind}Malloc")
                trace.op("aten::mm", [[512, 512], [512, 512]], 200.0, host_us=10.0)
                if at < freed:
                    allocating(trace, 200.0, f"{kind}Free")
            trace.synchronize()
    seen = evidence_from(trace.write(tmp_path))
    given = predict("allocator", seen, found("O06", seen))
    assert given is not None
    assert (switch in given.how) == told
    assert ("expandable_segments" in given.how) != told


def test_another_finding_gets_nothing_from_it(tmp_path: Path):
    seen = evidence_from(steps(tmp_path, set()))
    other = Finding(code="O01", title="", where=[], at_stake_ns=(0, 1), certainty="high", treatments=["allocator"])
    assert predict("allocator", seen, other) is None
