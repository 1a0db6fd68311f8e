"""Experiment 5: additions in Python and in the framework, the ladder between them, and running ahead of the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gobrrr.hardware.measure.host import PYTHON_LOOP, python_loops
from gobrrr.lab import article
from gobrrr.lab.judge import interval, judged, ratio, within
from gobrrr.lab.session import Lab
from gobrrr.lab.tables import columns
from gobrrr.model.experiment import Experiment, Flame, Frame, Judgement, LabTable
from gobrrr.model.measured import Quantity

LADDER = (
    "a + b, with autograd",
    "a + b, without autograd",
    "a + b, inference mode",
    "into an existing tensor",
    "the addition itself",
)
"""Each rung does less than the one before it."""
BIG = 2**14
QUEUE = 60
"""Operations that are issued before the wait: well below the launch queue's depth."""
AGREES = (0.25, 4.0)
"""A rate is the article's order of magnitude within this factor of it."""


@dataclass(frozen=True)
class Ahead:
    """A stream of operations on a GPU: when the host had issued it, when the device had done it."""

    name: str
    issued_s: Quantity
    done_s: Quantity


def run(lab: Lab) -> Experiment:
    """Measure the rates, the ladder, and on a GPU who waits for whom."""
    loops = python_loops()
    add = lab.bench.host(loops["addition"], budget_s=0.5).scaled(1 / PYTHON_LOOP)
    rungs = ladder(lab)
    ahead = [] if lab.cpu else [_ahead(lab, "tiny", 16), _ahead(lab, "large", 2**25)]
    return result(add, rungs, ahead, lab.vector_peak(), lab.settings(elements=1, dtype="float32"))


def ladder(lab: Lab) -> dict[str, Quantity]:
    """Seconds of one addition of one number, with less and less around it; the last is the arithmetic's own slope."""
    torch, spec = lab.torch, lab.device.spec
    a, b, out = torch.rand(1, device=spec), torch.rand(1, device=spec), torch.empty(1, device=spec)
    w = torch.rand(1, device=spec, requires_grad=True)
    found = {LADDER[0]: lab.bench.host(lambda: w + b)}
    with torch.no_grad():
        found[LADDER[1]] = lab.bench.host(lambda: w + b)
    with torch.inference_mode():
        found[LADDER[2]] = lab.bench.host(lambda: a + b)
        found[LADDER[3]] = lab.bench.host(lambda: torch.add(a, b, out=out))
    found[LADDER[4]] = _kernel(lab) if not lab.cpu else _slope(lab)
    return found


def _kernel(lab: Lab) -> Quantity:
    """The device's time for one tiny addition, its launch in a replayed graph included."""
    torch, spec = lab.torch, lab.device.spec
    a, b, out = (torch.rand(1, device=spec) for _ in range(3))
    return lab.bench.graph(lambda: torch.add(a, b, out=out), calls=200)


def _slope(lab: Lab) -> Quantity:
    """Seconds an element of an addition that fits the first cache: what one number's arithmetic takes of a call."""
    torch = lab.torch
    a, b, out = torch.rand(BIG), torch.rand(BIG), torch.empty(BIG)
    small, small_out = torch.rand(1), torch.empty(1)
    big = lab.bench.host(lambda: torch.add(a, b, out=out))
    tiny = lab.bench.host(lambda: torch.add(small, small, out=small_out))
    spent = [max(one, 0.0) / BIG for one in (big.value - tiny.value, big.low - tiny.high, big.high - tiny.low)]
    return Quantity(value=spent[0], low=spent[1], high=spent[2], runs=min(big.runs, tiny.runs))


def _ahead(lab: Lab, name: str, elements: int) -> Ahead:
    """Issue QUEUE additions, note the time, wait, note it again."""
    x = lab.torch.rand(elements, device=lab.device.spec)

    def issue() -> None:
        for _ in range(QUEUE):
            x.add_(1.0)

    def both() -> None:
        issue()
        lab.device.wait()

    return Ahead(name, lab.bench.issue(issue), lab.bench.issue(both))


def result(
    add: Quantity, rungs: Mapping[str, Quantity], ahead: Sequence[Ahead], peak: float | None, settings: dict[str, str]
) -> Experiment:
    """The record: pure."""
    framework = rungs[LADDER[1]]
    return Experiment(
        name="overhead",
        title="What Python and the framework cost, and running ahead",
        tables=(_rates(add, framework, peak), _rungs(rungs), *_streams(ahead)),
        flames=(flame(rungs),),
        judgements=(_python(add), _framework(framework), _box(rungs), *_waits(ahead)),
        notes=_notes(rungs),
        settings=settings,
    )


def _rates(add: Quantity, framework: Quantity, peak: float | None) -> LabTable:
    there = article.h100()
    python, torch = there.get("python_adds_per_s"), there.get("torch_adds_per_s_cpu")
    rows: tuple[tuple[Any, ...], ...] = (
        ("Python", add.rate(1.0), article.PYTHON_ADDS_PER_S, python, _lost(add, peak)),
        ("framework", framework.rate(1.0), article.TORCH_ADDS_PER_S, torch, _lost(framework, peak)),
    )
    heads = columns("one addition in", "here [1/s]", "article [1/s]", "H100's host [1/s]", "missed [FLOP]")
    return LabTable(
        title="Additions a second, and what the vector units could do in one's time", columns=heads, rows=rows
    )


def _lost(took: Quantity, peak: float | None) -> float | None:
    return None if peak is None else took.value * peak


def _rungs(rungs: Mapping[str, Quantity]) -> LabTable:
    whole = rungs[LADDER[0]].value
    heads = columns("rung", "time [s]", "of the whole [share]")
    rows = tuple((name, rungs[name], rungs[name].value / whole) for name in LADDER)
    return LabTable(title="The ladder from Python to the addition", columns=heads, rows=rows)


def flame(rungs: Mapping[str, Quantity]) -> Flame:
    """The ladder as nested boxes: a rung is no wider than the one that it stands in."""
    frames, width = [], rungs[LADDER[0]].value
    for depth, name in enumerate(LADDER):
        width = min(width, rungs[name].value)
        frames.append(Frame(name=name, depth=depth, start_s=0.0, duration_s=width))
    return Flame(title="One addition, from Python to the arithmetic", frames=tuple(frames))


def _notes(rungs: Mapping[str, Quantity]) -> tuple[str, ...]:
    values = [rungs[name].value for name in LADDER]
    wrong = [name for name, value, before in zip(LADDER[1:], values[1:], values, strict=False) if value > before]
    return (f"measured slower than the rung above it, so no box of its own: {', '.join(wrong)}",) if wrong else ()


def _python(add: Quantity) -> Judgement:
    here = add.rate(1.0)
    verdict = within(here.scaled(1 / article.PYTHON_ADDS_PER_S), *AGREES)
    return judged(article.PYTHON, verdict, f"{here.value / 1e6:.1f} million a second", "within a factor of 4")


def _framework(took: Quantity) -> Judgement:
    here = took.rate(1.0)
    verdict = within(here.scaled(1 / article.TORCH_ADDS_PER_S), *AGREES)
    return judged(article.FRAMEWORK, verdict, f"{here.value / 1e3:,.0f} thousand a second", "within a factor of 4")


def _box(rungs: Mapping[str, Quantity]) -> Judgement:
    part = ratio(rungs[LADDER[4]], rungs[LADDER[0]])
    here = f"the addition itself is {100 * part.value:.2g} % of the call"
    return judged(article.ONE_BOX, within(part, 0.0, 0.2), here, "at most 20 % of the call")


def _streams(ahead: Sequence[Ahead]) -> tuple[LabTable, ...]:
    if not ahead:
        return ()
    heads = columns(f"{QUEUE} additions", "issued [s]", "done [s]", "issued over done [x]")
    rows = tuple((one.name, one.issued_s, one.done_s, one.issued_s.value / one.done_s.value) for one in ahead)
    return (LabTable(title="The host running ahead, or the device starving", columns=heads, rows=rows),)


def _waits(ahead: Sequence[Ahead]) -> tuple[Judgement, ...]:
    rules = ("on large tensors the host is done in at most half the time", "on tiny ones in at least 80 % of the time")
    if len(ahead) < 2:
        why = "a CPU runs each operation before the call returns: there is nothing to run ahead of"
        return tuple(
            judged(claim, "can't tell", why, rule)
            for claim, rule in zip((article.AHEAD, article.STARVED), rules, strict=True)
        )
    tiny, large = ahead[0], ahead[1]
    first, second = ratio(large.issued_s, large.done_s), ratio(tiny.issued_s, tiny.done_s)
    return (
        judged(article.AHEAD, within(first, 0.0, 0.5), f"large: issued after {interval(first)} of the time", rules[0]),
        judged(
            article.STARVED, within(second, 0.8, 1.5), f"tiny: issued after {interval(second)} of the time", rules[1]
        ),
    )
