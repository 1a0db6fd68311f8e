"""From the budget to the regime, how certain that is, and the checks that speak for or against it."""

from __future__ import annotations

from dataclasses import dataclass

from gobrrr import units
from gobrrr.analysis.answer.achieved import Achieved, in_words
from gobrrr.analysis.answer.scales import scaled
from gobrrr.analysis.answer.summary import LEAST_PRICED
from gobrrr.analysis.budget.idle import INPUT, UNEXPLAINED
from gobrrr.model.diagnosis import BudgetLine, Certainty, Regime, Wall
from gobrrr.model.live import Scaling

MAJORITY = 0.5
PERCEPTIBLE = 0.2
WAITING = ("overhead", "communication")

ON_FLOORS = ("compute", "memory", "mixed")
"""Regimes that floors decide; whether the device works at all needs none."""
ON_DEVICE = ("compute", "memory", "communication")
"""Regimes of a step that its device bounds: a host that is kept waiting makes it no longer."""

DOUBTFUL, REFUTED = 0.1, 0.3
"""Shares of the time beyond which a verdict is medium and low at most: of the device's in kernels faster than their
floor, of the step's waiting for processors that others had or that the recorded steps do not have. With floors that
rest on a lower bound in more than the first it is medium at most."""


@dataclass(frozen=True)
class Verdict:
    """The regime, its certainty and the evidence in words."""

    regime: Regime
    certainty: Certainty
    evidence: tuple[str, ...]


def judge(
    budget: list[BudgetLine],
    wall: Wall,
    covered: float | None,
    reached: Achieved | None,
    ahead: float | None,
    contradicted: float = 0.0,
    on_device: bool = True,
    scaling: Scaling | None = None,
    bounds: float = 0.0,
    lost: float = 0.0,
    unmatched: float = 0.0,
    on_host: bool = False,
) -> Verdict:
    """One share over half: that regime. Otherwise mixed; unknown where what is not priced could decide it.

    `covered`: share of the device's compute time with a floor; `reached`: its FLOPs beside their peaks; `ahead`: share
    of device work that the host had issued before the device was free, None if launches are not recorded;
    `contradicted`: share of device time in kernels faster than their floor; `on_device`: whether the budget is a
    device's, not the host's; `scaling`: the step with its batch multiplied, None where that was not tried; `bounds`:
    share of the device's compute time whose floor rests on a lower bound of a ceiling; `lost`: share of the step for
    which other processes kept the host waiting, which is the device where `on_host`; `unmatched`: share of the measured
    step that the recorded steps, which the budget is split by, do not have. Evidence that speaks against the
    regime lowers the certainty.
    """
    shares = _shares(budget)
    regime = _regime(shares)
    lines = [*_beaten(contradicted), *_achieved(covered, reached, wall), *_run_ahead(ahead, shares)]
    lines += _silent(shares, on_device)
    grown = scaled(scaling, regime)
    lines += grown.lines
    certainty = _certainty(regime, budget, wall, covered)
    if regime == "overhead" and ahead is not None and ahead > MAJORITY and certainty == "high":
        certainty = "medium"  # the checks disagree
    if grown.against:
        certainty = "medium" if certainty == "high" else "low"
    if bounds > DOUBTFUL and regime in ON_FLOORS and certainty == "high":
        certainty = "medium"  # the floors are upper bounds: a side may be less than it is said to be
    if on_host or regime not in ON_DEVICE:
        certainty = _at_most(certainty, lost)
    return Verdict(regime, _at_most(certainty, max(contradicted, unmatched)), tuple(lines))


def _at_most(certainty: Certainty, contradicted: float) -> Certainty:
    """`contradicted`: the share of the time that speaks against the verdict."""
    if contradicted > REFUTED:
        return "low"
    return "medium" if contradicted > DOUBTFUL and certainty == "high" else certainty


def _beaten(contradicted: float) -> list[str]:
    if contradicted <= DOUBTFUL:
        return []
    share = units.percent(contradicted)
    return [f"{share} of the device time is in kernels faster than their floor: the machine or a count is not right"]


def regime_of(budget: list[BudgetLine]) -> Regime:
    """The regime that a budget alone says: one share over half, else mixed or unknown."""
    return _regime(_shares(budget))


def _shares(budget: list[BudgetLine]) -> dict[str, float]:
    """Share of the wall by side; `below_roof` goes to its kernel's bound, waiting for input is a side of its own."""
    shares: dict[str, float] = dict.fromkeys(
        ("compute", "memory", "overhead", "communication", "transfer", "input", "unpriced", "unexplained"), 0.0
    )
    for line in budget:
        side: str = line.line
        if side == "below_roof":
            side = line.cause if line.cause in ("compute", "memory") else "unpriced"
        elif side == "overhead" and line.cause == INPUT:
            side = "input"
        elif side == "overhead" and line.cause == UNEXPLAINED:
            side = "unexplained"
        shares[side] += line.share
    return shares


def _regime(shares: dict[str, float]) -> Regime:
    sides = ("compute", "memory", "overhead", "communication", "transfer", "input")
    if not any(shares.values()):
        return "unknown"
    # a device that idles for whatever reason is not short of compute or bandwidth
    idle = shares["overhead"] + shares["input"] + shares["unexplained"]
    busy: tuple[Regime, ...] = ("compute", "memory", "communication", "transfer")
    for side in busy:
        if shares[side] > MAJORITY:
            return side
    if idle > MAJORITY:
        if shares["unexplained"] > max(shares["overhead"], shares["input"]):
            return "unknown"
        return "input" if shares["input"] > shares["overhead"] else "overhead"
    if shares["input"] + shares["transfer"] > MAJORITY and shares["input"] >= shares["transfer"]:
        return "input"  # the data's whole way to the device: waiting for it, and its copy with nothing else running
    if any(shares[side] + shares["unpriced"] > MAJORITY for side in sides) and shares["unpriced"] > PERCEPTIBLE:
        return "unknown"
    return "mixed"


def _certainty(regime: Regime, budget: list[BudgetLine], wall: Wall, covered: float | None) -> Certainty:
    """High if the regime holds over the whole interval of the wall time and enough is priced; low if it is a guess."""
    if regime == "unknown" or (covered is None and not _is_busy_elsewhere(budget)):
        return "low"
    if wall.how == "unknown" or wall.value is None or wall.low is None or wall.high is None:
        return "low"
    same = all(_regime(_shares(_stretched(budget, wall.value, other))) == regime for other in (wall.low, wall.high))
    enough = (covered or 0.0) >= LEAST_PRICED or regime in ("overhead", "input", "communication", "transfer")
    if same and enough:
        return "high"
    return "medium" if same or enough else "low"


def _is_busy_elsewhere(budget: list[BudgetLine]) -> bool:
    """Whether the device works, though it computes nothing that would need a floor."""
    return any(line.ns > 0 for line in budget if line.line in ("communication", "transfer"))


def _stretched(budget: list[BudgetLine], value: float, other: float) -> list[BudgetLine]:
    """The budget of a step that takes `other`: the difference is in what the device waits for, host or other ranks."""
    waiting = sum(line.ns for line in budget if line.line in WAITING)
    left = max(waiting + other - value, 0.0)
    factor = left / waiting if waiting > 0 else 0.0
    total = sum(line.ns for line in budget) - waiting + (left if waiting > 0 else 0.0)
    result = []
    for line in budget:
        ns = line.ns * factor if line.line in WAITING else line.ns
        result.append(BudgetLine(line=line.line, cause=line.cause, ns=ns, share=ns / total if total > 0 else 0.0))
    return result


def _achieved(covered: float | None, reached: Achieved | None, wall: Wall) -> list[str]:
    """The article's first check: achieved over peak."""
    if reached is None or not wall.value:
        return []
    return [in_words(reached, wall.value, "" if covered is None or covered >= LEAST_PRICED else "at least ")]


def _run_ahead(ahead: float | None, shares: dict[str, float]) -> list[str]:
    """The article's third check: does the host run ahead of the device?"""
    if ahead is None:
        return []
    text = f"the host had issued {units.percent(ahead)} of the device's work before the device was free for it"
    bound_by_host = shares["overhead"] + shares["input"] > MAJORITY
    if bound_by_host and ahead > MAJORITY:
        text += ", which speaks against overhead as the bound"
    return [text]


def _silent(shares: dict[str, float], on_device: bool) -> list[str]:
    if shares["unexplained"] <= 0.05:
        return []
    share = units.percent(shares["unexplained"])
    idles = "the device idles and no host event is recorded" if on_device else "no event of the host is recorded"
    return [f"in {share} of the step {idles}: the trace can't say why"]
