"""R04: work that grows, on traces made by hand, and with what two looks and the boundaries between steps tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.diagnosis import NotChecked
from gobrrr.model.live import DeviceMemory
from gobrrr.model.recording import (
    CallLine,
    HeldMemory,
    OpTally,
    RecordedCall,
    Recording,
    SecondStep,
    Site,
    SurvivingResult,
)
from gobrrr.model.work import OpCall
from tests.conditions.lives import live_of
from tests.evidence import certain, check, evidence_from, found, predict, watched
from tests.traces import Trace

LINE, CALLER = "train.py(7): step", "train.py(1): step"
Step = Callable[[Trace, int], None]


def steps_of(folder: Path, body: Step, count: int = 4) -> Evidence:
    trace = Trace()
    for number in range(count):
        with trace.step(number):
            body(trace, number)
    return certain(evidence_from(trace.write(folder)))


def product(trace: Trace) -> None:
    trace.op("aten::mm", [[512, 512], [512, 512]], 400.0)


def more_calls(trace: Trace, number: int) -> None:
    product(trace)
    for _ in range(10 + number):
        trace.op("aten::add", [[512, 512], [512, 512]], 20.0)


def larger(trace: Trace, number: int) -> None:
    product(trace)
    trace.op("aten::sum", [[100 + 10 * number, 1000]], 100.0 + 10.0 * number)


def by_lengths(*lengths: int) -> Step:
    def body(trace: Trace, number: int) -> None:
        product(trace)
        length = lengths[number]
        trace.op("aten::sum", [[length, 1000]], float(length))

    return body


def test_calls_that_become_more(tmp_path: Path):
    seen = steps_of(tmp_path, more_calls)
    finding = found("R04", seen)
    # by hand: 0 to 3 calls of 20 us more than in the first step, 6 in four steps
    assert finding.at_stake_ns[1] == pytest.approx(6 * 20e3 / 4, rel=0.1)
    assert finding.certainty == "low"
    assert finding.where[0].op == "aten::add"
    assert "1 call more in each step, 13 in the last recorded one; after 1,000 more steps 1,013" in finding.evidence[0]
    assert "after 1,000 more steps at this rate" in finding.evidence[1]


def test_tensors_that_become_larger(tmp_path: Path):
    finding = found("R04", steps_of(tmp_path, larger))
    assert finding.where[0].op == "aten::sum"
    assert "10,000 elements more in each step, 130,000 in the last" in finding.evidence[0]
    # by hand: (0 + 10 + 20 + 30) us in four steps
    assert finding.at_stake_ns[1] == pytest.approx(15e3, rel=0.1)


@pytest.mark.parametrize(
    "lengths",
    [(300, 100, 200, 250), (100, 300, 100, 300), (100, 200, 300, 300), (400, 100, 100, 100), (100, 110, 300, 310)],
    ids=["varying", "alternating", "a curriculum that ends", "a first step", "uneven, and only four"],
)
def test_what_has_no_trend_is_silent(lengths: tuple[int, ...], tmp_path: Path):
    assert check("R04", steps_of(tmp_path, by_lengths(*lengths))) is None


def test_two_steps_show_no_trend(tmp_path: Path):
    assert isinstance(check("R04", steps_of(tmp_path, larger, count=2)), NotChecked)


NONE = (0, 0, 0, 0)


def tally(op: str, count: int, elements: int, source: str = LINE) -> OpTally:
    return OpTally(op=op, source=source, count=count, elements=elements)


def boundaries(nodes: tuple[int, ...] = NONE, hooks: tuple[int, ...] = NONE, bytes_: int = 0) -> tuple[HeldMemory, ...]:
    at = (18, 24, 25, 26)
    rows = zip(at, nodes, hooks, strict=True)
    return tuple(
        HeldMemory(step=step, nodes=n, tensors=9, bytes=step * bytes_, device_bytes=None, hooks=h)
        for step, n, h in rows
    )


def looked(seen: Evidence, later: SecondStep, **more: object) -> Evidence:
    given: dict[str, object] = {"calls": (), "sites": (), **more}
    recording = Recording(
        target="", peak_bytes=0, start_bytes=0, module_calls=0, on_cpu=False, later=later, **given
    )  # type: ignore[arg-type]  # fmt: skip
    return watched(seen, seen=recording, live=live_of())


def test_looks_behind_the_steps_tell_the_line_and_how_long_it_has_grown(tmp_path: Path):
    seen = steps_of(tmp_path, more_calls)
    fixed = tally("aten::add", 3, 3, "train.py(5): step")
    later = SecondStep(first=(tally("aten::add", 16, 16), fixed), second=(tally("aten::add", 17, 17), fixed), before=9)
    finding = found("R04", looked(seen, later))
    assert finding.certainty == "high"
    assert finding.where[0].source == LINE
    # by hand: all but one call of the first step: 9, 10, 11, 12 calls of 20 us
    assert finding.at_stake_ns[1] >= 42 * 20e3 / 4 * 0.95
    given = predict("let-go", looked(seen, later), finding)
    assert given is not None
    assert "train.py:7" in given.how


def test_growth_that_the_looks_do_not_see_has_ended(tmp_path: Path):
    same = (tally("aten::add", 13, 13),)
    assert check("R04", looked(steps_of(tmp_path, more_calls), SecondStep(first=same, second=same))) is None


def constant(trace: Trace, number: int) -> None:
    product(trace)


def held(folder: Path, later: SecondStep, **more: object) -> Evidence:
    return looked(steps_of(folder, constant), later, **more)


def test_graphs_that_stay_are_told_though_they_cost_no_time_yet(tmp_path: Path):
    kept = SurvivingResult(op="aten::add", source=LINE, nodes=40, chain=True)
    later = SecondStep(first=(), second=(), held=boundaries((10, 40, 45, 50), bytes_=1000), kept=(kept,))
    finding = found("R04", held(tmp_path, later))
    assert (finding.at_stake_ns, finding.certainty) == ((0.0, 0.0), "high")
    assert (finding.where[0].op, finding.where[0].source) == ("aten::add", LINE)
    assert "5 autograd nodes more after each step, now 50" in finding.evidence[0]
    assert "1.00 kB more after each step" in finding.evidence[1]
    given = predict("let-go", held(tmp_path, later), finding)
    assert given is not None
    assert "carries its graph into the next step" in given.how


@pytest.mark.parametrize("nodes", [(10, 10, 10, 10), (10, 40, 40, 45), (50, 10, 40, 70), (10, 40, 55, 90)])
def test_graphs_that_only_vary_are_not(nodes: tuple[int, ...], tmp_path: Path):
    assert check("R04", held(tmp_path, SecondStep(first=(), second=(), held=boundaries(nodes)))) is None


def filling(folder: Path, each: int, *, tensors: int = 6) -> Evidence:
    """A step that keeps a result of so many bytes; `tensors`: how many more the six recorded steps left."""
    kept = SurvivingResult(op="aten::exp", source=LINE, nodes=0, chain=False, bytes=each)
    rows = [(18, 9), (24, 9 + tensors), (25, 10 + tensors), (26, 11 + tensors)]
    there = tuple(
        HeldMemory(step=step, nodes=0, tensors=count, bytes=step * each, device_bytes=None, hooks=0)
        for step, count in rows
    )
    seen = held(folder, SecondStep(first=(), second=(), held=there, kept=(kept,)))
    assert seen.profile.live is not None
    return watched(
        seen, live=msgspec.structs.replace(seen.profile.live, memory=DeviceMemory(capacity_bytes=1_000_000_000))
    )


def test_results_that_only_fill_the_memory(tmp_path: Path):
    seen = filling(tmp_path, 20_000)  # by hand: 2 % of 1 GB after 1,000 steps
    finding = found("R04", seen)
    assert (finding.title, finding.certainty) == ("memory that fills from step to step", "medium")
    assert (finding.where[0].op, finding.where[0].source, finding.at_stake_ns) == ("aten::exp", LINE, (0.0, 0.0))
    assert "all of the 1.00 GB after 49,976" in finding.evidence[1]  # 24 steps are kept
    given = predict("let-go", seen, finding)
    assert given is not None
    assert "reduce it to numbers in the step" in given.how


@pytest.mark.parametrize(("each", "tensors"), [(19_000, 6), (20_000, 5)], ids=["too small to count", "replaced"])
def test_memory_that_does_not_fill(each: int, tensors: int, tmp_path: Path):
    assert check("R04", filling(tmp_path, each, tensors=tensors)) is None


def test_hooks_that_become_more(tmp_path: Path):
    line = CallLine(caller=CALLER, callee="register_forward_hook", source=LINE)
    later = SecondStep(first=(), second=(), held=boundaries(hooks=(18, 24, 25, 26)))
    seen = held(tmp_path, later, lines=(line,))
    finding = found("R04", seen)
    assert finding.where[0].source == LINE
    assert "1 hook more" in finding.evidence[0]
    given = predict("let-go", seen, finding)
    assert given is not None
    assert "handle.remove()" in given.how


def turns(folder: Path, *lengths: int, forward: tuple[int, ...] = ()) -> Evidence:
    """Backward passes of so many operations, each behind a forward pass of two, or of `forward`."""
    phases: list[str] = []
    for at, length in enumerate(lengths):
        phases += ["forward"] * (forward[at] if forward else 2) + ["backward"] * length
    names = {"forward": "aten::mm", "backward": "aten::mul"}
    calls = tuple(RecordedCall(OpCall(name=names[one]), one, 0) for one in phases)  # type: ignore[arg-type]

    def body(trace: Trace, number: int) -> None:
        for phase in phases:
            trace.op(names[phase], [[512, 512], [512, 512]], 50.0)

    lines = (CallLine(caller=CALLER, callee="grad", source=LINE),)
    same = SecondStep(first=(), second=())
    return looked(steps_of(folder, body, count=3), same, calls=calls, sites=(Site(user=CALLER),), lines=lines)


def test_backward_passes_that_grow_from_turn_to_turn(tmp_path: Path):
    seen = turns(tmp_path, 2, 4, 6, 8)
    finding = found("R04", seen)
    assert finding.title.endswith("turn to turn")
    assert finding.where[0].source == LINE
    assert finding.at_stake_ns[0] == 0
    assert finding.at_stake_ns[1] == pytest.approx((2 + 4 + 6) * 50e3, rel=0.1)  # by hand: what the first has not
    given = predict("let-go", seen, finding)
    assert given is not None
    assert "this turn's own" in given.how


@pytest.mark.parametrize(
    ("lengths", "forward"),
    [((4, 4, 4, 4), ()), ((2, 4, 6), ()), ((2, 6, 3, 8), ()), ((2, 4, 6, 8), (2, 4, 6, 8))],
    ids=["alike", "only three", "varying", "longer forward passes as well"],
)
def test_turns_that_do_not_grow(lengths: tuple[int, ...], forward: tuple[int, ...], tmp_path: Path):
    assert check("R04", turns(tmp_path, *lengths, forward=forward)) is None
