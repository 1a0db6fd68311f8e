"""Products of a matrix and one vector reach the memory's bandwidth at the most; nothing else is predicted."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.analysis.replay.what_if import FIXED_NS
from gobrrr.guarded import GuardedParts
from gobrrr.treatments import max_autotune
from gobrrr.treatments.framework import asking
from tests.evidence import certain, evidence_from
from tests.traces import Trace

STEPS = 3


def seen(folder: Path, op: str, shapes: list[list[int]], us: float):
    trace = Trace()
    for number in range(STEPS):
        with trace.step(number):
            for _ in range(10):
                trace.op(op, shapes, us)
    return certain(evidence_from(trace.write(folder)))


def saved(evidence, share: float) -> float:
    """Microseconds of a call's device work."""
    plan = max_autotune.unasked(evidence)
    assert plan is not None
    graph = evidence.graph
    return float(graph.duration.sum() - plan.effect(share)(graph).duration.sum()) / len(evidence.calls) / 1e3


@pytest.mark.parametrize(
    ("op", "shapes", "bytes_"),
    [
        ("aten::mm", [[1, 4096], [4096, 8192]], 2 * (4096 + 4096 * 8192 + 8192)),
        ("aten::mm", [[8192, 4096], [4096, 1]], 2 * (4096 + 4096 * 8192 + 8192)),
        ("aten::bmm", [[64, 1, 1024], [64, 1024, 1024]], 2 * 64 * (1024 + 1024 * 1024 + 1024)),
    ],
)
def test_a_matrix_times_a_vector_goes_from_as_it_is_to_the_roof(
    tmp_path: Path, op: str, shapes: list[list[int]], bytes_: int
):
    """Calls of 60 us; at most each takes its bytes at the roof and the fixed time of a launch."""
    evidence = seen(tmp_path, op, shapes, 60.0)
    roof = evidence.machine.memory_bytes_per_s.value
    most = 60.0 - bytes_ / roof * 1e6 - FIXED_NS / 1e3
    assert saved(evidence, 0.0) == pytest.approx(0.0, abs=1e-9)
    assert saved(evidence, 1.0) == pytest.approx(most, rel=1e-3)
    assert saved(evidence, 0.5) == pytest.approx(most / 2, rel=1e-3)


@pytest.mark.parametrize(
    ("op", "shapes", "us"),
    [
        ("aten::mm", [[2, 4096], [4096, 8192]], 60.0),  # two rows are no vector
        ("aten::mm", [[4096, 1], [1, 4096]], 60.0),  # an outer product, which any compiler turns into a pointwise one
        ("aten::mm", [[1, 4096], [4096, 8192]], 20.0),  # as fast as the memory
        ("aten::addmm", [[8192], [1, 4096], [4096, 8192]], 60.0),  # left to the library
    ],
)
def test_nothing_is_predicted_of_other_products(tmp_path: Path, op: str, shapes: list[list[int]], us: float):
    assert max_autotune.unasked(seen(tmp_path, op, shapes, us)) is None


def test_it_is_asked_for_by_its_name(tmp_path: Path):
    evidence = seen(tmp_path, "aten::mm", [[1, 4096], [4096, 8192]], 60.0)
    [(name, found, plan)] = asking.asked("max-autotune", evidence, [], GuardedParts())
    assert (name, found) == ("max-autotune", None)
    assert "max-autotune" in plan.how
