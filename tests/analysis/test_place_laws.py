"""Laws of the places of a step, on steps made at random: what runs, waits and is called in them has its place."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.doors.pipeline import diagnose
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.model.events import EventKind
from gobrrr.model.profile import Profile, RankProfile, TraceMeta
from tests.analysis.tables import Row, launched, table
from tests.spread import examples

STEP, HELPER = "train.py(10): step", "train.py(30): helper"
BACKWARD = "autograd::engine::evaluate_function: MulBackward0"
FORWARD, BEHIND = 0, 1
"""The program's thread, and that of the backward pass."""


class Made:
    """A step as it is written down: a host that goes on, and a device that works as soon as it can."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.now = self.device = 1_000
        self.launches = 0

    def op(self, name: str, pause: int, own: int, kernel: int, thread: int, sequence: int) -> None:
        """An operation after a pause of Python's; it launches a kernel where that takes time."""
        self.now += pause
        begin = self.now
        self.now += own
        if kernel:
            self.launches += 1
            self.device = max(self.device, self.now + 2_000)
            self.rows += launched("k", self.now, self.device, kernel, self.launches, call_ns=1_000, thread=thread)
            self.device += kernel
            self.now += 1_000
        self.now += 10
        self.rows.append(Row(EventKind.OP, name, begin, self.now - begin, thread=thread, sequence=sequence))

    def wait(self) -> None:
        """The host waits for the device."""
        begin, self.now = self.now, max(self.now, self.device) + 500
        self.rows.append(Row(EventKind.RUNTIME, "cudaDeviceSynchronize", begin, self.now - begin))


@st.composite
def steps(draw: st.DrawFn) -> Diagnosis:
    """Two steps that are alike: operations in two functions, some with a backward pass, some waited for."""
    pauses, kernels = st.integers(0, 40_000), st.integers(0, 60_000)
    call = st.tuples(pauses, pauses, kernels, st.booleans(), st.booleans())
    calls = [(0, 1_000, 500, False, False), *draw(st.lists(call, max_size=6))]
    made = Made()
    for number in range(2):
        begin = made.now
        made.now += 100
        for at, (pause, own, kernel, helps, waits) in enumerate(calls):
            called = made.now + pause // 2
            made.op("aten::mul", pause, own, kernel, FORWARD, 100 * number + at)
            if helps:
                made.rows.append(Row(EventKind.PYTHON, HELPER, called, made.now - called + 5))
                made.now += 5
            if waits:
                made.wait()
        ends, made.now = made.now + 50, made.now + 100
        for at, (pause, own, kernel, _, _) in reversed(list(enumerate(calls))):
            opened, made.now = made.now, made.now + 10
            made.op("MulBackward0", pause, own, kernel, BEHIND, 100 * number + at)
            made.rows.append(
                Row(EventKind.OP, BACKWARD, opened, made.now - opened, thread=BEHIND, sequence=100 * number + at)
            )
        made.rows.append(Row(EventKind.PYTHON, STEP, begin, ends - begin))
        made.rows.append(Row(EventKind.ANNOTATION, f"ProfilerStep#{number}", begin, made.now - begin))
        made.now += 1_000
    rank = RankProfile(meta=TraceMeta(source="made"), events=table(made.rows), frames=True)
    return diagnose(Profile(target="made", origin="trace", ranks=(rank,)))


@settings(max_examples=examples(200, 8), deadline=None)
@given(steps())
def test_all_of_the_step_is_at_its_places(one: Diagnosis):
    root, within = one.places[0], defaultdict(int)
    assert root.step_ns == pytest.approx(sum(line.ns for line in one.budget), abs=1)
    for each in one.places[1:]:
        within[each.parent] += each.step_ns
    for each in one.places:
        assert each.step_ns == each.own_ns + within[each.id]
        assert each.step_ns == each.device_ns + sum(each.host_ns.values())
        assert 0 <= each.backward_ns <= each.step_ns
    by_cause = defaultdict(float)
    for line in one.budget:
        by_cause[line.cause if line.line == "overhead" else None] += line.ns
    assert root.device_ns == pytest.approx(by_cause[None], abs=len(one.budget) + 1)
    for cause, ns in root.host_ns.items():
        assert ns == pytest.approx(by_cause[cause], abs=len(one.places) + 1)


@settings(max_examples=examples(200, 8), deadline=None)
@given(steps())
def test_the_backward_pass_is_where_the_forward_operation_is(one: Diagnosis):
    """Each backward operation lies in the multiplication that it is of, wherever that was called from."""
    places = one.places
    for each in places:
        if each.name == "MulBackward0":
            assert places[each.parent].name == "aten::mul"
            assert each.backward_ns == each.step_ns
    assert all(one_.place is not None for one_ in one.findings if not one_.code.startswith("Q"))
