"""All ranks and devices together: one budget and one wall time.

Ranks that reduce gradients together take equally long for a step: as long as the slowest. In a collective, bytes move
only once the last rank has arrived. So the shortest duration of a collective over all ranks is the transfer, and
whatever it takes longer on another rank is waiting. A rank's own step is its step without that waiting. The common step
is the longest of these; each faster rank waits for the difference.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from gobrrr.analysis.answer.study import Study
from gobrrr.analysis.answer.summary import in_steps
from gobrrr.analysis.events.ratios import share as share_of
from gobrrr.analysis.pricing.price import WorkClass
from gobrrr.model.diagnosis import Wall
from gobrrr.model.events import I8

WAITING_FOR_RANKS = "waiting"
"""Cause of the communication line: time in a collective before its last rank arrives."""

Lines = dict[tuple[str, str | None], float]


def combine(studies: list[Study]) -> tuple[Lines, Wall]:
    """(line, cause) -> ns of one step, as the mean over ranks and devices, and the wall time that they sum to.

    Every study must have evidence.
    """
    estimated = all(study.wall.value is not None for study in studies)
    shares = transfer_shares(studies) if len(studies) > 1 and estimated else None
    if not estimated:
        return _mean_lines([_recorded(study) for study in studies]), Wall(
            value=None, low=None, high=None, how="unknown"
        )
    if shares is None:
        walls = [study.wall for study in studies]
        wall = Wall(
            value=_mean([wall.value for wall in walls]),
            low=_mean([wall.low for wall in walls]),
            high=_mean([wall.high for wall in walls]),
            how=walls[0].how,
        )
        return _mean_lines([_lines(study) for study in studies]), wall
    return _synchronous(studies, shares)


def _synchronous(studies: list[Study], shares: list[float]) -> tuple[Lines, Wall]:
    """Ranks that run the same collectives: each without its waiting, then padded with waiting to the slowest."""
    own, highs, lows = [], [], []
    for study, share in zip(studies, shares, strict=True):
        lines = _lines(study)
        waiting = lines.get(("communication", None), 0.0) * (1.0 - share)
        if waiting:
            lines["communication", None] -= waiting
        own.append(lines)
        highs.append((study.wall.high or 0.0) - waiting)
        lows.append(study.wall.low or 0.0)
    lengths = [sum(lines.values()) for lines in own]
    value = max(lengths)
    for lines, length in zip(own, lengths, strict=True):
        lines["communication", WAITING_FOR_RANKS] = value - length
    wall = Wall(value=value, low=min(max(lows), value), high=max([*highs, value]), how="estimated")
    return _mean_lines(own), wall


def _lines(study: Study) -> Lines:
    """One rank's budget, the mean over its devices, in ns of one step."""
    sums: Lines = defaultdict(float)
    for evidence in study.evidence:
        for key, ns in evidence.budget.lines.items():
            sums[key] += ns / evidence.steps.count / len(study.evidence)
    return sums


def _recorded(study: Study) -> Lines:
    """One rank's budget, scaled to the step as it was recorded."""
    lines = _lines(study)
    scale = share_of(study.recorded_ns, sum(lines.values())) or 1.0
    return {key: ns * scale for key, ns in lines.items()}


def _mean_lines(ranks: list[Lines]) -> Lines:
    sums: Lines = defaultdict(float)
    for lines in ranks:
        for key, ns in lines.items():
            sums[key] += ns / len(ranks)
    return sums


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def transfer_shares(studies: list[Study]) -> list[float] | None:
    """For each rank, the share of its collectives' time that moves bytes; None unless all ranks ran the same ones.

    Collectives are matched by their order; their number and names must agree.
    """
    sequences = [_collectives(study) for study in studies]
    names = [
        [study.rank.events.name_of(int(row)) for row in rows] for study, rows in zip(studies, sequences, strict=True)
    ]
    if not names[0] or any(other != names[0] for other in names[1:]):
        return None
    durations = np.stack(
        [study.rank.events.duration_ns[rows] for study, rows in zip(studies, sequences, strict=True)]
    ).astype(np.float64)
    shortest = durations.min(axis=0)
    totals = durations.sum(axis=1)
    return [float(shortest.sum() / total) if total > 0 else 1.0 for total in totals.tolist()]


def _collectives(study: Study) -> I8:
    """Rows of the communication kernels of the steps, by start."""
    events, priced = study.rank.events, study.priced
    wanted = in_steps(events, priced.links, study.steps) & (priced.kind == WorkClass.COMMUNICATION)
    rows = priced.links.device[np.flatnonzero(wanted)]
    return rows[np.argsort(events.start_ns[rows], kind="stable")]
