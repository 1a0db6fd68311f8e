"""N02, gradients reduced on every micro-batch, and N03, a barrier in every step: sick, healthy and negative.

The same is run with two real ranks at night (tests/live/test_cases.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from gobrrr.analysis.findings.evidence import Evidence
from tests.conditions.makers import extra
from tests.evidence import certain, check, evidence_from, found
from tests.traces import Trace

MATRIX = [[64, 64], [64, 64]]


def test_gradients_reduced_after_each_micro_batch_are_named() -> None:
    finding = found("N02", extra("ddp_accum_sync.rank0"))
    assert finding.evidence[:2] == [
        "4 forward passes for each step of the optimizer, and 52 collectives a step: 13 after each pass",
        "39 of them move sums that a later one moves again",
    ]
    assert finding.treatments == ["no-sync"]


@pytest.mark.parametrize("name", ["ddp_accum_nosync.rank0", "ddp_good.rank0"])
def test_gradients_reduced_once_a_step_are_not(name: str) -> None:
    assert check("N02", extra(name)) is None


def waiting(folder: Path, waits_us: Sequence[float], kernel_us: float = 10.0) -> Evidence:
    """Steps with a barrier of so many us each; none where that is 0."""
    trace = Trace()
    for number, us in enumerate(waits_us):
        with trace.step(number):
            trace.op("aten::mm", MATRIX, kernel_us)
            if us:
                trace.host("c10d::barrier", us)
            trace.synchronize()
    return certain(evidence_from(trace.write(folder)))


def test_a_barrier_in_every_step_is_named_with_what_the_device_idles_in_it(tmp_path: Path) -> None:
    finding = found("N03", waiting(tmp_path, [2_000.0] * 4))
    assert finding.at_stake_ns[0] == 0
    assert finding.at_stake_ns[1] == pytest.approx(2e6, rel=0.05)  # the replay's host is a little faster
    assert finding.treatments == ["no-barrier"]


def test_steps_without_one_or_with_one_now_and_then_are_healthy(tmp_path: Path) -> None:
    assert check("N03", waiting(tmp_path, [0.0] * 4)) is None
    assert check("N03", waiting(tmp_path, [0.0, 2_000.0, 0.0, 0.0])) is None


def test_a_barrier_while_the_device_works_has_nothing_at_stake(tmp_path: Path) -> None:
    assert check("N03", waiting(tmp_path, [100.0] * 4, kernel_us=2_000.0)) is None
