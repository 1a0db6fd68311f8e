"""What takes a trace apart takes four times as long for four times the trace, and finds what a plain search finds."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from gobrrr.analysis.events.intervals import inside_spans, latest, union
from gobrrr.analysis.events.links import link
from gobrrr.analysis.events.observer import NO_COST
from gobrrr.analysis.events.steps import find_steps
from gobrrr.analysis.events.stream_waits import _by_stream
from gobrrr.analysis.host.optimizers import _updates_begin, begun_inside, optimizer_spans
from gobrrr.analysis.replay.graph import _awaited, _previous_end, graph_of
from gobrrr.analysis.savings.regions import without
from gobrrr.model.events import I8, EventKind, EventTable
from tests.analysis.tables import Row, launched, table

SEEDS = range(20)
LENGTHS = 1_500, 6_000
WORST = 10.0
"""Times as long for four times as much: 16 would be quadratic, 4 and a little is what sorting takes."""


def training(steps: int) -> EventTable:
    """Steps of a backward operation, an optimizer's kernel on one of two streams, and a wait for it."""
    rows: list[Row] = []
    for number in range(steps):
        at = number * 100_000
        rows += [
            Row(EventKind.OP, "autograd::engine::evaluate_function: MmBackward0", at, 10_000),
            Row(EventKind.ANNOTATION, "Optimizer.step#Adam.step", at + 20_000, 60_000),
            *launched("adam", at + 30_000, at + 45_000, 20_000, number + 1, stream=7 + number % 2),
            Row(EventKind.RUNTIME, "cudaDeviceSynchronize", at + 50_000, 18_000),
        ]
    return table(rows)


def taken_apart(events: EventTable) -> None:
    links = link(events)
    steps = find_steps(events, links)
    assert steps.count > 1
    graph = graph_of(events, links, NO_COST, steps.start, steps.stop)
    assert (graph.awaited >= 0).all()
    spans = optimizer_spans(events)
    assert begun_inside(events, links.launch, spans, _updates_begin(events, spans)).all()
    pieces = without((events.start_ns[spans], events.end_ns[spans]), (events.start_ns[links.device], graph.issued + 1))
    assert len(pieces[0]) == len(spans)


def seconds(do: Callable[[EventTable], None], events: EventTable) -> float:
    begin = time.process_time()
    do(events)
    return time.process_time() - begin


def test_four_times_the_steps_take_no_more_than_some_four_times_as_long() -> None:
    small, large = (training(one) for one in LENGTHS)
    pairs = ((seconds(taken_apart, small), seconds(taken_apart, large)) for _ in range(3))
    assert any(more < WORST * less for less, more in pairs)


def numbers(seed: int, *lengths: int) -> list[I8]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 40, one) for one in lengths]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_wait_waits_for_what_ended_last_of_all_that_was_launched(seed: int) -> None:
    start, length, call, end = numbers(seed, 12, 12, 15, 15)
    end = np.random.default_rng(seed).permutation(np.arange(15) * 3)  # no two at once
    target, reaction = _awaited(start, start + length, call, end)
    for one, (first, last) in enumerate(zip(start, start + length, strict=True)):
        known = [work for work in range(15) if end[work] <= last and call[work] < last]
        found = max(known, key=lambda work: end[work], default=-1)
        found = -1 if found < 0 or end[found] <= first else found
        assert target[one] == found
        assert reaction[one] == (last - end[found] if found >= 0 else 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_end_before_each_on_its_stream(seed: int) -> None:
    stream, end = numbers(seed, 30, 30)
    stream %= 3
    before = [max([end[one] for one in range(at) if stream[one] == stream[at]], default=0) for at in range(30)]
    assert _previous_end(stream, end).tolist() == before
    assert _previous_end(stream[:0], end[:0]).tolist() == []


@pytest.mark.parametrize("seed", SEEDS)
def test_the_first_and_the_last_on_a_stream(seed: int) -> None:
    stream, called = numbers(seed, 30, 30)
    stream %= 3
    for number, one in _by_stream(stream, called).items():
        mine = np.flatnonzero(stream == number).tolist()
        for when in range(-1, 42):
            later, until = (
                [work for work in mine if keep(called[work], when)] for keep in (np.greater_equal, np.less_equal)
            )
            assert one.first_from(when) == min(later, key=lambda work: called[work], default=-1)
            assert one.last_until(when) == max(until, key=lambda work: called[work], default=-1)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_latest_before_each(seed: int) -> None:
    at, value, when = numbers(seed, 10, 10, 20)
    told = [max([int(one), *value[at < one].tolist()]) for one in when]
    assert latest(at, value, when).tolist() == told
    assert latest(at[:0], value[:0], when).tolist() == when.tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_inside_and_outside_of_spans(seed: int) -> None:
    start, length, begin, lasts = numbers(seed, 6, 6, 8, 8)
    length //= 5
    spans = union(start, start + length)
    at = np.arange(60)
    inside = ((start[:, None] <= at) & (at < (start + length)[:, None])).any(axis=0)
    assert inside_spans(at, *spans).tolist() == inside.tolist()
    assert not inside_spans(at, start[:0], start[:0]).any()
    for first, stop in zip(begin, begin + lasts, strict=True):
        left = union(*without((np.array([first]), np.array([stop])), (start, start + length)))
        assert inside_spans(at, *left).tolist() == (~inside & (at >= first) & (at < stop)).tolist()
