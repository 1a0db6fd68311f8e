"""The step's length by replay, and what plans save: on real traces, in part and in full, and on a CPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.analysis.events.links import link
from gobrrr.analysis.events.observer import ObserverCost
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.replay.graph import StepGraph, serial_graph
from gobrrr.analysis.replay.simulator import replayed
from gobrrr.analysis.replay.what_if import burdened, captured, dropped, hosted, shortened, unwaited
from gobrrr.analysis.savings import gains
from gobrrr.analysis.savings.gains import Effect, Stopwatch, TreatmentPlan, length
from gobrrr.doors.pipeline import evidence_of
from gobrrr.model.diagnosis import Wall
from gobrrr.model.events import EventKind
from gobrrr.model.profile import RankProfile, TraceMeta
from gobrrr.treatments.framework.rank_plans import RankPlans
from gobrrr.treatments.framework.together import Combiner
from tests.analysis.slow_simulator import every, unprofiled
from tests.analysis.tables import DDP, HOLDOUT, SHIPPED, Row, evidence, launched, short, table
from tests.conftest import H100, H100_EXTRA
from tests.spread import examples, spread
from tests.traces import Trace

CLOSE = 0.002
IN_PART = 0.02
MATRIX = [[64, 64], [64, 64]]


def halved(graph: StepGraph) -> StepGraph:
    return shortened(graph, every(graph), np.full(len(graph.duration), 0.5))


def quicker(graph: StepGraph) -> StepGraph:
    return hosted(graph, graph.at[:1], graph.at[-1:], 0.5)


def nothing(_: float):
    return lambda graph: graph


def plan(effect: Effect | None, **more) -> TreatmentPlan:
    return TreatmentPlan("how", "assumes", effect, **more)


@dataclass(frozen=True)
class Gain:
    """A saving in ns of one step, and the step without and with the change, as expected."""

    low: float
    value: float
    high: float
    before: float

    @property
    def after(self) -> float:
        return self.before - self.value


def gain_of(one: Evidence, made: TreatmentPlan) -> Gain:
    """What one plan alone saves of a step."""
    wall = Wall(value=one.wall_ns, low=None, high=None, how="estimated")
    combiner = Combiner([RankPlans(one, (("alone", None, made),), np.empty(0, dtype=np.int64))], wall, spreads=())
    value, low, high = combiner.saving(["alone"])
    return Gain(low, value, high, combiner.before)


# -- the length of a step ------------------------------------------------------------


@pytest.mark.parametrize("path", spread([*SHIPPED, *DDP, *HOLDOUT]), ids=short)
def test_the_graph_of_a_trace_runs_as_long_as_its_step(path: Path):
    one = evidence(path)
    assert length(one, one.graph) == pytest.approx(one.wall_ns, rel=CLOSE)
    assert gain_of(one, plan(None)).before == pytest.approx(one.wall_ns)


@pytest.mark.parametrize("path", spread([*SHIPPED[3:30:4], *HOLDOUT[::4]]), ids=short)
def test_a_slower_host_takes_no_less_and_one_without_waits_no_more(path: Path):
    one = evidence(path)
    low, high = (length(one, one.graphs[end]) for end in (0, -1))
    assert low <= length(one, one.graph) * (1 + CLOSE)
    assert length(one, one.graph) <= high * (1 + CLOSE)
    for change in (unwaited, halved, quicker):
        assert length(one, change(one.graph)) <= length(one, one.graph) * (1 + CLOSE)


# -- a part of the trace ------------------------------------------------------------

LONG = [
    H100 / "gpt_eager_attn.faulty.json.gz",
    H100 / "mlp_tiny.faulty.json.gz",
    H100_EXTRA / "holdout" / "foreach_off.json.gz",
    H100_EXTRA / "holdout" / "lstm_cells.json.gz",
]


@pytest.mark.parametrize("change", [halved, quicker], ids=["device", "host"])
@pytest.mark.parametrize("path", LONG, ids=short)
def test_a_trace_replayed_in_part_saves_the_same_share(path: Path, change, monkeypatch: pytest.MonkeyPatch):
    """Two of three steps."""
    one = evidence(path)
    whole = _share(one, change)
    monkeypatch.setattr(gains, "MOST_REPLAYED_WORK", int(len(one.graph.duration) * 0.7))
    assert gains._until(one) in one.recorded_steps.begins
    assert _share(one, change) == pytest.approx(whole, abs=IN_PART)


def test_a_part_of_a_step_saves_the_same_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Steps that are everywhere alike, bound by the device or by the host."""
    for host, kernel in ((10.0, 100.0), (100.0, 10.0)):
        trace = Trace(shapes=False)
        for number in range(3):
            with trace.step(number):
                for _ in range(300):
                    trace.op("aten::mul", MATRIX, kernel, host_us=host)
        one = unprofiled(trace, tmp_path)
        whole = [_share(one, change) for change in (halved, quicker)]
        monkeypatch.setattr(gains, "MOST_REPLAYED_WORK", 150)
        assert gains._until(one) not in (None, *one.recorded_steps.begins)
        assert [_share(one, change) for change in (halved, quicker)] == pytest.approx(whole, abs=IN_PART)
        monkeypatch.undo()


@pytest.mark.parametrize("where", ["front", "behind"])
def test_what_a_part_of_a_step_has_alone_is_not_scaled(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """30 products of 100 us before or behind 270 of 10 us: no more can be saved than 3 ms."""
    trace, long = Trace(shapes=False), range(30) if where == "front" else range(270, 300)
    for number in range(2):
        with trace.step(number):
            for each in range(300):
                trace.op("aten::mul", MATRIX, 100.0 if each in long else 10.0, host_us=5.0)
    one = unprofiled(trace, tmp_path)
    work = np.flatnonzero(one.graph.duration == 100_000)

    def effect(share: float):
        return lambda graph: shortened(graph, work, np.full(len(work), 1 - share))

    whole = gain_of(one, plan(effect))
    monkeypatch.setattr(gains, "MOST_REPLAYED_WORK", 100)
    assert gains._until(one) not in (None, *one.recorded_steps.begins)
    gain = gain_of(one, plan(effect))
    assert gain.high <= 3e6
    assert (gain.low, gain.value, gain.high) == pytest.approx((whole.low, whole.value, whole.high), rel=0.05)


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from([H100 / "mlp_tiny.faulty.json.gz", H100 / "moe_host_loop.faulty.json.gz"]),
    st.integers(0, 10**6),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_no_more_is_saved_than_the_time_that_is_touched(path: Path, seed: int, device: float, host: float):
    one = evidence(path)
    work = np.flatnonzero(np.random.default_rng(seed).random(len(one.graph.duration)) < 0.3)
    steps, first = one.recorded_steps, one.recorded_steps.count - one.steps.count
    start, stop = steps.begins[first], steps.begins[first] + (steps.stop - steps.begins[first]) // 3

    def effect(share: float):
        def change(graph: StepGraph) -> StepGraph:
            shorter = shortened(graph, work, np.full(len(work), 1 - device * share))
            return hosted(shorter, np.array([start]), np.array([stop]), 1 - host * share)

        return change

    inside = work[(one.graph.called[work] >= start) & (one.graph.called[work] < steps.stop)]
    most = max(float(np.diff(graph.passed(np.array([start, stop])))[0]) for graph in one.graphs)
    by_hand = (device * one.graph.duration[inside].sum() + host * most) / one.steps.count
    assert gain_of(one, plan(effect)).high <= by_hand * (1 + 1e-6) + 1


def _share(one: Evidence, change) -> float:
    gain = gain_of(one, plan(lambda _: change))
    return gain.value / gain.before


# -- plans ------------------------------------------------------------


@settings(max_examples=examples(20), deadline=None)
@given(
    st.sampled_from([H100 / "mlp_tiny.faulty.json.gz", H100 / "moe_host_loop.faulty.json.gz"]),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1e7),
    st.sampled_from([1.0, 2.0, 7.5]),
)
def test_the_ends_of_a_gain_are_in_order(path: Path, device: float, host: float, least: float, work: float):
    def effect(share: float):
        def change(graph: StepGraph) -> StepGraph:
            shorter = shortened(graph, every(graph), np.full(len(graph.duration), 1 - device * share))
            return hosted(shorter, graph.at[:1], graph.at[-1:], 1 - host * share)

        return change

    gain = gain_of(evidence(path), plan(effect, least_ns=(least, least), work=work))
    assert gain.low <= gain.value <= gain.high
    assert gain.value == pytest.approx(gain.before - gain.after)


def test_a_step_takes_no_less_than_what_the_plan_says_and_counts_what_it_does():
    one = evidence(H100 / "mlp_tiny.faulty.json.gz")
    wall = one.wall_ns

    def gone(_: float):
        return lambda graph: hosted(dropped(graph, every(graph)), graph.at[:1], graph.at[-1:], 0.0)

    assert gain_of(one, plan(gone)).after < 0.05 * wall
    bounded = gain_of(one, plan(gone, least_ns=(0.6 * wall, 0.6 * wall)))
    assert bounded.after == pytest.approx(0.6 * wall)
    assert bounded.value == pytest.approx(0.4 * wall)
    # at least 0.4 of the step at the effect's most and 0.8 at its least: 0.6 where half is expected
    assert gain_of(one, plan(gone, least_ns=(0.4 * wall, 0.8 * wall))).after == pytest.approx(0.6 * wall)
    twice = gain_of(one, plan(nothing, work=2.0))
    assert twice.after == pytest.approx(wall / 2)
    assert gain_of(one, plan(nothing, work=2.0, least_ns=(3 * wall, 3 * wall))).after == pytest.approx(1.5 * wall)


def test_a_plan_that_changes_nothing_saves_nothing():
    one = evidence(H100 / "mlp_tiny.faulty.json.gz")
    for made in (plan(None), plan(nothing)):
        gain = gain_of(one, made)
        assert (gain.low, gain.value, gain.high) == (0.0, 0.0, 0.0)
        assert gain.before == gain.after == pytest.approx(one.wall_ns)


def test_what_is_saved_outside_of_the_steps_is_added():
    one = evidence(H100 / "mlp_tiny.faulty.json.gz")
    gain = gain_of(one, plan(nothing, beyond=3_000.0, beyond_low=1_000.0))
    assert (gain.low, gain.value, gain.high) == (1_000.0, 2_000.0, 3_000.0)


# -- at another time ------------------------------------------------------------


def of_launches(host_ns: int, kernel_ns: int) -> Evidence:
    """Two steps of ten launches each."""
    rows, at, free = [], 1_000, 0
    for step in range(2):
        begin = at
        for number in range(10):
            start = max(at + 4_000, free)
            rows.append(Row(EventKind.OP, "aten::mul", at, host_ns))
            rows += launched("mul", at + 1_000, start, kernel_ns, 10 * step + number + 1, call_ns=2_000)
            free, at = start + kernel_ns, at + host_ns
        rows.append(Row(EventKind.ANNOTATION, f"ProfilerStep#{step}", begin, at - begin))
    return evidence_of(RankProfile(meta=TraceMeta(source=""), events=table(rows)))[0]


def with_ends(one: Evidence, ends: tuple[ObserverCost, ObserverCost] | None) -> Evidence:
    return replace(one, unprofiled=replace(one.unprofiled, cost_ends=ends))


@pytest.mark.parametrize("times", [0.5, 0.8, 1.5, 2.0])
def test_at_another_time_the_host_is_as_fast_as_the_step_then_says(times: float):
    """A graph leaves the device's work, whatever the host took before: what it saves is the rest."""
    one = with_ends(of_launches(20_000, 1_000), None)
    watch = Stopwatch(one, wall_ns=one.wall_ns)
    then = watch.of_step(times * one.wall_ns)
    assert then.before(then.middle) == pytest.approx(times * one.wall_ns)
    assert then.pace == pytest.approx(times, rel=0.1)

    def graph(of: StepGraph) -> StepGraph:
        return captured(of, np.array([0]), of.at[-1:] + 1, 0.0)

    assert then.after([graph]) == pytest.approx(watch.after([graph]), rel=0.25)
    assert then.after([quicker]) == pytest.approx(then.before(then.middle) / 2, rel=0.2)


def test_a_slower_host_takes_longer_for_what_a_change_makes_it_do_too():
    one = with_ends(of_launches(20_000, 1_000), None)
    watch, work = Stopwatch(one, wall_ns=one.wall_ns), np.arange(len(one.graph.called))
    then = watch.of_step(2 * one.wall_ns)
    more = [
        watch.after([lambda graph: burdened(graph, work, 10_000.0)]) / watch.before(watch.middle)
        for watch in (watch, then)
    ]
    assert more[1] == pytest.approx(more[0], rel=0.05)
    assert more[0] > 1.3


@pytest.mark.parametrize("times", [0.02, 0.5, 2.0])
def test_at_another_time_what_lies_outside_the_graph_keeps_its_share_of_the_step(times: float):
    """Loaders that need half of the step for a batch, and nothing else: half is left of it whenever it is timed."""
    one = with_ends(of_launches(20_000, 1_000), None)
    step = one.wall_ns

    def nothing_left(_: float):
        return lambda graph: replace(graph, left=0.0 * graph.left, duration=0 * graph.duration)

    made = TreatmentPlan("", "", nothing_left, least_ns=(step / 2, step / 2))
    seat = RankPlans(one, (("alone", None, made),), np.empty(0, dtype=np.int64))
    then = Combiner([seat], Wall(value=step, low=step, high=step, how="estimated"), spreads=()).of_step(times * step)
    assert then.before == pytest.approx(times * step)
    assert then.replayed(["alone"]).expected == pytest.approx(0.5, abs=0.02)


def test_a_longer_step_that_the_device_bounds_says_nothing_of_the_host():
    one = of_launches(3_000, 30_000)
    low, high = one.unprofiled.cost.left(0.5), one.unprofiled.cost.left(2.0)
    watch = Stopwatch(with_ends(one, (low, high)), wall_ns=one.wall_ns)
    assert watch.of_step(1.2 * one.wall_ns) is watch


# -- a CPU ------------------------------------------------------------

serial_pieces = st.lists(st.tuples(st.integers(0, 400), st.integers(1, 900)), min_size=1, max_size=12)


def on_one_processor(pieces: list[tuple[int, int]]) -> StepGraph:
    """Work of so many ns, each after so many ns of dispatching, all within one operation of the host."""
    rows, now = [], 100
    for host, work in pieces:
        rows.append(Row(EventKind.KERNEL, "aten::mm", now + host, work, stream=0))
        now += host + work
    rows.append(Row(EventKind.OP, "aten::all", 100, now - 100 + 50))
    events = table(rows)
    return serial_graph(events, link(events), 100, now + 50)


def in_all(graph: StepGraph) -> int:
    """From the first begin to the last end."""
    events = replayed(graph)
    return int(events.end_ns.max() - events.start_ns.min())


@settings(max_examples=examples(60), deadline=None)
@given(serial_pieces, st.integers(0, 1_000), st.sampled_from([0.0, 0.25, 0.5]))
def test_where_host_and_device_are_one_all_times_add_up(pieces: list[tuple[int, int]], seed: int, share: float):
    graph = on_one_processor(pieces)
    host, work = sum(one[0] for one in pieces) + 50, sum(one[1] for one in pieces)
    assert graph.left.sum() == host
    assert in_all(graph) == host + work
    chosen = np.flatnonzero(np.random.default_rng(seed).random(len(pieces)) < 0.5)
    less = (1 - share) * sum(pieces[at][1] for at in chosen)
    shorter = shortened(graph, chosen, np.full(len(chosen), share))
    assert in_all(shorter) == pytest.approx(host + work - less, abs=1)
    assert in_all(dropped(graph, chosen)) == pytest.approx(host + work - sum(pieces[at][1] for at in chosen), abs=1)
    assert in_all(hosted(graph, graph.at[:1], graph.at[-1:], 0.5)) == pytest.approx(host / 2 + work, abs=1)
    assert in_all(replace(graph, left=graph.left * 0)) == pytest.approx(work, abs=1)
