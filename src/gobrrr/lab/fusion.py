"""Experiment 2: cos against cos().cos(), one operation at a time and fused; and a longer chain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gobrrr.lab import article
from gobrrr.lab.judge import interval, judged, ratio, within
from gobrrr.lab.session import ITEM_BYTES, Lab
from gobrrr.lab.tables import columns
from gobrrr.model.experiment import Experiment, Judgement, LabTable
from gobrrr.model.measured import Quantity

CHAIN = 8
"""Operations of the longer chain."""


@dataclass(frozen=True)
class Run:
    """One way to run it: `accesses` are the reads and writes of an element that are predicted; no time: not run."""

    name: str
    accesses: int
    time_s: Quantity | None
    elements: int
    there_s: float | None = None  # on the H100 of article.json

    @property
    def bytes_per_s(self) -> Quantity | None:
        """Bandwidth if exactly the predicted accesses were made."""
        return self.time_s.rate(float(self.elements * self.accesses * ITEM_BYTES)) if self.time_s else None


def run(lab: Lab) -> Experiment:
    """Time all six; the fused ones only where a compiler works."""
    x = lab.floats()
    out = lab.torch.empty_like(x).fill_(0.5)
    between = lab.torch.empty_like(x).fill_(0.5)
    runs, why = [], ""
    for name, accesses, call, fusable, key in _cases(lab.torch, x, between, out):
        if fusable is not None:
            compiled, problem = lab.try_fused(fusable, x, out)
            call, why = (lambda it=compiled: it(x, out)) if compiled else None, why or problem
        there = article.h100().get(key)
        took = lab.time(call) if call else None
        runs.append(Run(name, accesses, took, x.numel(), there * 1e-3 if there else None))
    return result(runs, why, lab.settings(elements=x.numel(), dtype="float32"))


Case = tuple[str, int, Callable[[], object] | None, Callable[..., None] | None, str]


def _cases(torch: Any, x: Any, between: Any, out: Any) -> list[Case]:
    """(name, accesses an element, eager call, function to fuse, the H100's key). Outputs are allocated beforehand."""

    def cos_cos() -> None:
        torch.cos(x, out=between)
        torch.cos(between, out=out)

    def chain() -> None:
        torch.mul(x, 1.5, out=between)
        for at in range(1, CHAIN):
            (torch.add if at % 2 else torch.mul)(between, 0.5, out=between if at < CHAIN - 1 else out)

    def fused_cos(x: Any, out: Any) -> None:
        out.copy_(x.cos())

    def fused_cos_cos(x: Any, out: Any) -> None:
        out.copy_(x.cos().cos())

    def fused_chain(x: Any, out: Any) -> None:
        x = x * 1.5
        for at in range(1, CHAIN):
            x = x + 0.5 if at % 2 else x * 0.5
        out.copy_(x)

    return [
        ("cos, eager", 2, lambda: torch.cos(x, out=out), None, "cos_eager"),
        ("cos, fused", 2, None, fused_cos, "cos_fused"),
        ("cos.cos, eager", 4, cos_cos, None, "coscos_eager"),
        ("cos.cos, fused", 2, None, fused_cos_cos, "coscos_fused"),
        (f"chain of {CHAIN}, eager", 2 * CHAIN, chain, None, ""),
        (f"chain of {CHAIN}, fused", 2, None, fused_chain, ""),
    ]


def result(runs: Sequence[Run], why: str, settings: dict[str, str]) -> Experiment:
    """The record of the six times: pure."""
    times = {one.name: one.time_s for one in runs}
    return Experiment(
        name="fusion",
        title="What fusing pointwise operations saves",
        tables=(_table(runs), _gains(runs)),
        judgements=(_twice(times), _same(times)),
        notes=(f"not fused: {why}",) if why else (),
        settings=settings,
    )


def _table(runs: Sequence[Run]) -> LabTable:
    heads = columns("", "accesses", "time [s]", "bandwidth [B/s]", "H100 time [s]")
    rows = tuple((one.name, float(one.accesses), one.time_s, one.bytes_per_s, one.there_s) for one in runs)
    return LabTable(title="Accesses an element as predicted, time as measured", columns=heads, rows=rows)


def _gains(runs: Sequence[Run]) -> LabTable:
    """Eager over fused: what the accesses predict, what was measured."""
    rows = []
    for eager, fused in zip(runs[::2], runs[1::2], strict=True):
        measured = ratio(eager.time_s, fused.time_s) if eager.time_s and fused.time_s else None
        there = eager.there_s / fused.there_s if eager.there_s and fused.there_s else None
        rows.append((eager.name.partition(",")[0], eager.accesses / fused.accesses, measured, there))
    heads = columns("speedup by fusing", "predicted [x]", "measured [x]")
    return LabTable(title="Fused against eager", columns=(*heads, *columns("H100 [x]")), rows=tuple(rows))


def _twice(times: dict[str, Quantity | None]) -> Judgement:
    rule = "eager over fused is 1.7 to 2.3"
    eager, fused = times["cos.cos, eager"], times["cos.cos, fused"]
    if not eager or not fused:
        return judged(article.TWICE, "can't tell", "nothing was fused here", rule)
    gain = ratio(eager, fused)
    return judged(article.TWICE, within(gain, 1.7, 2.3), f"x.cos().cos() runs {interval(gain)} times as fast", rule)


def _same(times: dict[str, Quantity | None]) -> Judgement:
    rule = "fused cos.cos takes 0.9 to 1.1 times as long as cos"
    quantity, two = times["cos, fused"] or times["cos, eager"], times["cos.cos, fused"]
    if not quantity or not two:
        return judged(article.SAME, "can't tell", "nothing was fused here", rule)
    cost = ratio(two, quantity)
    return judged(article.SAME, within(cost, 0.9, 1.1), f"fused cos.cos takes {interval(cost)} times as long", rule)
