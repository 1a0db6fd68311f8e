"""Experiment 4: share of FLOP and of runtime by operator class, for BERT training or for any step given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gobrrr.lab import article
from gobrrr.lab.bert import training_step
from gobrrr.lab.counting import ORDER, OTHER, flop_by_class, profile, record, time_by_class
from gobrrr.lab.judge import exactly, judged
from gobrrr.lab.session import Lab
from gobrrr.lab.tables import columns
from gobrrr.model.experiment import ArticleClaim, Experiment, Judgement, LabTable
from gobrrr.model.measured import Quantity

CONTRACTION = ORDER[0]
FACTOR = 3.0
"""A figure is the article's when it is within this factor of it: another model, another machine."""


def run(lab: Lab) -> Experiment:
    """Count one step's FLOP, profile a few for the shares of time, and time it without the profiler."""
    step, what = (lab.step, "the given step") if lab.step else (_bert(lab), "BERT training, forward and backward")
    for _ in range(2):
        step()
    calls = record(lab.torch, step)
    flop, unknown = flop_by_class(calls)
    took = lab.bench.wall(step, budget_s=0.15 * lab.budget_s)
    steps = max(1, min(5, int(0.15 * lab.budget_s / max(took.value, 1e-9))))
    times = time_by_class(profile(lab.torch, step, cpu=lab.cpu, steps=steps))
    notes = [f"not counted: {', '.join(unknown)}"] if unknown else []
    settings = lab.settings(step=what, operations=len(calls), **({} if lab.step else _size(lab)))
    return result(flop, times, took, tuple(notes), settings, bert=lab.step is None)


def _size(lab: Lab) -> dict[str, int]:
    if lab.cpu:
        return {"layers": 2, "width": 512, "heads": 8, "batch": 4, "length": 128}
    return {"layers": 6, "width": 1024, "heads": 16, "batch": 16, "length": 512}


def _bert(lab: Lab) -> Callable[[], object]:
    return training_step(lab.torch, lab.device.spec, dtype=_autocast(lab), **_size(lab))


def _autocast(lab: Lab) -> Any:
    """Mixed precision on a GPU, as in the paper that the article's table is from; float32 on a CPU."""
    if lab.cpu:
        return None
    return lab.torch.bfloat16 if lab.torch.cuda.is_bf16_supported() else lab.torch.float16


def result(
    flop: Mapping[str, float],
    times: Mapping[str, float],
    step_s: Quantity,
    notes: tuple[str, ...],
    settings: dict[str, str],
    *,
    bert: bool = True,
) -> Experiment:
    """The record of the two tables: pure."""
    gaps = {name: gap(flop, times, name) for name in ORDER}
    judgements = (_flop(flop), _runtime(times), *_gaps(gaps)) if bert else ()
    time_note = "runtime is what the profiler gives each op itself; the step's own time is without it"
    return Experiment(
        name="operators",
        title="Where FLOP and runtime go, by operator class",
        tables=(_table(flop, times, gaps), _whole(flop, times, step_s)),
        judgements=judgements,
        notes=(time_note, *notes)
        if bert
        else (time_note, "the article's figures are for BERT; none is judged", *notes),
        settings=settings,
    )


def share(of: Mapping[str, float], name: str) -> float | None:
    """A class's share of the three classes; None where they sum to nothing."""
    total = sum(of.get(one, 0.0) for one in ORDER)
    return of.get(name, 0.0) / total if total else None


def gap(flop: Mapping[str, float], times: Mapping[str, float], name: str) -> float | None:
    """The contractions' FLOP/s over a class's: how many times less it achieves. None where one is not known."""
    rates = []
    for one in (CONTRACTION, name):
        done, took = flop.get(one, 0.0), times.get(one, 0.0)
        if not done or not took:
            return None
        rates.append(done / took)
    return rates[0] / rates[1]


def _table(flop: Mapping[str, float], times: Mapping[str, float], gaps: Mapping[str, float | None]) -> LabTable:
    heads = columns(
        "operator class", "FLOP [share]", "article [share]", "runtime [share]", "article [share]", "less FLOP/s [x]"
    )
    rows = tuple(
        (name, share(flop, name), said_flop, share(times, name), said_time, gaps[name])
        for name, (said_flop, said_time) in article.OPERATOR_SHARES.items()
    )
    return LabTable(title="Shares by class, beside the article's BERT", columns=heads, rows=rows)


def _whole(flop: Mapping[str, float], times: Mapping[str, float], step_s: Quantity) -> LabTable:
    total = sum(flop.values())
    heads = columns("step time [s]", "FLOP [FLOP]", "achieved [FLOP/s]", "in other ops [s]")
    return LabTable(title="The step", columns=heads, rows=((step_s, total, step_s.rate(total), times.get(OTHER, 0.0)),))


def _flop(flop: Mapping[str, float]) -> Judgement:
    rule = "outside contractions at most 1 % of the FLOP"
    there = share(flop, CONTRACTION)
    outside = None if there is None else 1 - there
    here = "no FLOP was counted" if outside is None else f"{100 * outside:.2f} % of the FLOP outside contractions"
    return judged(article.ROUNDING, exactly(None if outside is None else outside <= 0.01), here, rule)


def _runtime(times: Mapping[str, float]) -> Judgement:
    rule = f"13 to 80 % of the runtime outside contractions (the article's 39 % within a factor of {FACTOR:g})"
    there = share(times, CONTRACTION)
    outside = None if there is None else 1 - there
    here = "no time was seen" if outside is None else f"{100 * outside:.0f} % of the runtime outside contractions"
    return judged(article.RUNTIME, exactly(None if outside is None else 0.39 / FACTOR <= outside <= 0.8), here, rule)


def _gaps(gaps: Mapping[str, float | None]) -> tuple[Judgement, ...]:
    claims: dict[str, ArticleClaim] = {
        "statistical normalization": article.NORMALIZATION,
        "element-wise": article.POINTWISE,
    }
    return tuple(_gap(claim, name, gaps[name]) for name, claim in claims.items())


def _gap(claim: ArticleClaim, name: str, found: float | None) -> Judgement:
    said = article.OPERATOR_GAPS[name]
    rule = f"within a factor of {FACTOR:g} of {said:.0f} times less"
    if found is None:
        return judged(claim, "can't tell", "not counted here", rule)
    return judged(claim, exactly(said / FACTOR <= found <= said * FACTOR), f"{found:,.0f} times less here", rule)
