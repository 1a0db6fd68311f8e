"""Which part of a trace is a step: annotations, repetition, the whole; backlog and the first step."""

from __future__ import annotations

from gobrrr.analysis.events.links import link
from gobrrr.analysis.events.steps import StepWindow, find_steps, steady
from gobrrr.model.events import EventKind
from tests.analysis.tables import Row, launched, table

NAMES = ["embed", "attend", "project", "norm", "loss", "update"]


def loop(count: int, *, period: int = 1_000_000, lag: int = 30_000, marks: bool = False,
         names: list[str] = NAMES, offset: int = 0) -> list[Row]:  # fmt: skip
    """`count` turns of a loop; in each the host launches `names` 100 us apart, and each runs for 50 us `lag` later."""
    rows = []
    for turn in range(count):
        begin = offset + turn * period
        if marks:
            rows.append(Row(EventKind.ANNOTATION, f"ProfilerStep#{turn + 7}", begin, period - 10_000))
        for place, name in enumerate(names):
            call = begin + 10_000 + place * 100_000
            rows += launched(name, call, call + lag, 50_000, offset + turn * 100 + place + 1)
    return rows


def found(rows: list[Row]) -> StepWindow:
    events = table(rows)
    return find_steps(events, link(events))


def test_annotated_steps_end_with_their_device_work():
    """The host is 5 ms ahead: the last launch at 2.51 ms runs from 7.51 to 7.56 ms."""
    steps = found(loop(3, marks=True, lag=5_000_000))
    assert (steps.count, steps.marked, steps.how) == (3, True, "3 ProfilerStep annotations")
    assert steps.begins == (0, 1_000_000, 2_000_000)
    assert (steps.start, steps.stop) == (0, 2_510_000 + 5_000_000 + 50_000)
    assert steps.wall_ns == 7_560_000 / 3


def test_annotated_steps_end_with_their_annotation_if_the_device_is_done():
    steps = found(loop(2, marks=True))
    assert (steps.start, steps.stop) == (0, 1_990_000)


def test_work_launched_outside_the_annotations_is_of_no_step():
    rows = loop(2, marks=True, offset=100_000)
    rows += launched("warm", 10_000, 20_000, 60_000, 9_001) + launched("after", 5_000_000, 5_010_000, 90_000, 9_002)
    steps = found(rows)
    assert (steps.start, steps.stop, steps.count) == (100_000, 2_090_000, 2)


def test_an_annotation_twice_counts_once():
    """The autograd thread carries a copy of it."""
    rows = loop(2, marks=True)
    rows += [Row(EventKind.ANNOTATION, "ProfilerStep#8", 1_200_000, 200_000, thread=1)]
    assert found(rows).count == 2


def test_other_annotations_are_no_steps():
    rows = [Row(EventKind.ANNOTATION, "Optimizer.step#SGD.step", 0, 900_000), *loop(1)]
    steps = found(rows)
    assert (steps.count, steps.marked) == (1, False)


def test_repetition_of_the_launch_sequence():
    steps = found(loop(5))
    assert (steps.count, steps.marked) == (5, False)
    assert steps.how == "5 repetitions of the same sequence of launches"
    assert steps.begins == tuple(turn * 1_000_000 + 10_000 for turn in range(5))
    # first to last device work: 40 us to 4.51 ms + 30 us + 50 us
    assert (steps.start, steps.stop) == (40_000, 4_590_000)


def test_repetition_is_the_shortest_period():
    """Layers repeat within the step: embed, four times the same block, loss. The step is the whole, not the block."""
    names = ["embed", *["attend", "project", "norm", "mlp"] * 4, "loss"]
    assert found(loop(3, names=names, period=3_000_000)).count == 3


def test_no_repetition_is_one_step():
    names = [f"kernel {number}" for number in range(24)]
    steps = found(loop(1, names=names, period=3_000_000))
    assert (steps.count, steps.begins, steps.marked) == (1, (), False)
    assert "whole trace" in steps.how


def test_what_only_resembles_itself_is_no_repetition():
    """Every turn has one kernel of its own among six."""
    rows = []
    for turn in range(5):
        rows += loop(1, names=[*NAMES[:5], f"own {turn}"], offset=turn * 1_000_000)
    assert found(rows).count == 1


def test_one_step_and_a_half_is_no_repetition():
    rows = loop(2)
    cut = {row.correlation for row in rows if row.start > 1_300_000}
    steps = found([row for row in rows if row.correlation not in cut])
    assert steps.count == 1


def test_without_device_work_the_host_s_span():
    steps = found([Row(EventKind.OP, "aten::mm", 5_000, 9_000), Row(EventKind.OP, "aten::add", 20_000, 1_000)])
    assert (steps.start, steps.stop, steps.count) == (5_000, 21_000, 1)


def test_backlog_is_not_of_the_steps():
    """The recording begins with 300 us of work in flight that nothing in the trace launched."""
    rows = loop(2, marks=True, lag=400_000)
    rows += [Row(EventKind.KERNEL, "before", 0, 200_000), Row(EventKind.KERNEL, "before", 210_000, 90_000)]
    steps = found(rows)
    assert (steps.start, steps.count) == (300_000, 2)


def test_unlaunched_work_in_the_middle_is_no_backlog():
    rows = [*loop(2, marks=True, offset=50_000), Row(EventKind.KERNEL, "graph", 900_000, 90_000)]
    assert found(rows).start == 50_000


def uneven(*lengths: int) -> list[Row]:
    """Annotated steps of the given lengths (us), one kernel each that ends with the step."""
    rows, begin = [], 0
    for number, length in enumerate(lengths):
        rows.append(Row(EventKind.ANNOTATION, f"ProfilerStep#{number}", begin, length * 1_000))
        rows += launched("k", begin + 1_000, begin + 10_000, length * 1_000 - 20_000, number + 1)
        begin += length * 1_000
    return rows


def test_a_slow_first_step_is_left_out():
    events = table(uneven(900, 300, 310))
    links = link(events)
    steps = steady(events, links, find_steps(events, links))
    assert (steps.start, steps.stop, steps.count) == (900_000, 1_510_000, 2)
    assert steps.wall_ns == 305_000


def test_a_first_step_like_the_others_stays():
    events = table(uneven(330, 300, 310))
    links = link(events)
    assert steady(events, links, find_steps(events, links)) == find_steps(events, links)


def test_two_steps_are_too_few_to_leave_one_out():
    events = table(uneven(900, 300))
    links = link(events)
    assert steady(events, links, find_steps(events, links)).count == 2


def test_a_step_begins_when_the_device_is_done_with_the_one_before():
    """The host begins at 0, 100 and 200 us; the device needs 900 us for the first step and 300 us for the others."""
    rows = []
    for number, (start, length) in enumerate([(50, 900), (950, 300), (1_250, 300)]):
        rows.append(Row(EventKind.ANNOTATION, f"ProfilerStep#{number}", number * 100_000, 90_000))
        rows += launched("k", number * 100_000 + 1_000, start * 1_000, length * 1_000, number + 1)
    events = table(rows)
    links = link(events)
    steps = steady(events, links, find_steps(events, links))
    assert (steps.start, steps.stop, steps.count) == (950_000, 1_550_000, 2)
