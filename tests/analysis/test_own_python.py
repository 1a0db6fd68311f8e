"""Without frames Python that goes on for very long is the program's own, unless it is an optimizer's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gobrrr.analysis.budget.idle import IDLE_CAUSES, LAUNCHING, PYTHON_CAUSE, Gaps
from gobrrr.analysis.host.holding import own_python
from gobrrr.model.events import EventKind

US = 1_000


def step(python_us: list[int], wall_us: int, name: str = "") -> Any:
    """A step with a gap before each of its launches, of which 5 us are launching."""
    ns = np.zeros((len(python_us), len(IDLE_CAUSES)), dtype=np.int64)
    ns[:, IDLE_CAUSES.index(PYTHON_CAUSE)] = np.array(python_us) * US
    ns[:, IDLE_CAUSES.index(LAUNCHING)] = 5 * US
    stop = np.cumsum(ns.sum(axis=1))
    gaps = Gaps(start=stop - ns.sum(axis=1), stop=stop, next_work=np.arange(len(ns)), ns=ns)
    whole = np.array([int(stop[-1])])
    events = SimpleNamespace(
        names=[name], name=np.zeros(1, dtype=np.int32), kind=np.array([int(EventKind.ANNOTATION)]),
        start_ns=whole * 0, end_ns=whole,
    )  # fmt: skip
    return SimpleNamespace(
        budget=SimpleNamespace(gaps=gaps), wall_ns=wall_us * US, replayed=events, profile=SimpleNamespace(frames=False)
    )


@pytest.mark.parametrize(
    ("python_us", "wall_us", "name", "own"),
    [
        ([10] * 20 + [5_000], 6_000, "", [20]),  # builds a tensor from lists
        ([10] * 20 + [100], 6_000, "", []),  # as torch's own goes on
        ([300] * 20, 7_000, "", []),  # slow, but as slow before each launch
        ([10] * 20 + [5_000], 6_000, "Optimizer.step#AdamW.step", []),
    ],
)
def test_long_python_without_a_launch(python_us: list[int], wall_us: int, name: str, own: list[int]):
    one = step(python_us, wall_us, name)
    found = own_python(one, np.arange(len(python_us)))
    assert np.flatnonzero(found).tolist() == own
    assert found.sum() == sum(python_us[at] for at in own) * US
