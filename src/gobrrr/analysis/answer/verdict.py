"""From the budget to the regime, its certainty, and the checks that support or contradict it."""

from __future__ import annotations

from dataclasses import dataclass

from gobrrr import units
from gobrrr.analysis.answer.achieved import Achieved, in_words
from gobrrr.analysis.answer.scales import scaled
from gobrrr.analysis.answer.summary import LEAST_PRICED
from gobrrr.analysis.budget.idle import INPUT_CAUSE, UNEXPLAINED
from gobrrr.model.diagnosis import BudgetLine, Certainty, Regime, Wall
from gobrrr.model.live import Scaling

MAJORITY = 0.5
"""A side with more than this share of the step is the regime."""

LEAST_DECISIVE_UNPRICED = 0.2
"""Unpriced time above this share of the step can leave the regime unknown. Chosen."""

WAITING_LINES = ("overhead", "communication")
"""The lines that get longer or shorter with the wall time: waiting for the host or for other ranks."""

REGIMES_FROM_FLOORS = ("compute", "memory", "mixed")
"""Regimes that depend on floors; the others follow from when the device is busy."""
DEVICE_BOUND_REGIMES = ("compute", "memory", "communication")
"""Regimes in which the device bounds the step: a host that is kept waiting does not make it longer."""

DOUBTFUL, REFUTED = 0.1, 0.3
"""Where more than these shares of the time contradict a verdict, its certainty is at most medium and at most low.
They apply to device time in kernels faster than their floor, to time spent waiting for processors that other processes
used, and to time that the recorded steps do not have. Floors that rest on a lower bound: the first, for medium.
Chosen."""


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
    """The regime is the side with more than half of the step; mixed if there is none; unknown if unpriced time decides.

    Evidence against the regime lowers the certainty. `covered`: share of the device's compute time with a floor.
    `reached`: the FLOPs beside their peaks. `ahead`: share of device work that the host had launched before the device
    was free; None if launches are not recorded. `contradicted`: share of device time in kernels faster than their
    floor. `on_device`: the budget is a device's, not the host's. `scaling`: the step at other batch sizes, if tried.
    `bounds`: share of the compute time whose floor rests on a lower bound of a ceiling. `lost`: share of the step for
    which other processes kept the host waiting. `unmatched`: share of the measured step that the recorded steps do not
    have. `on_host`: the host's processor is the device.
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
    if bounds > DOUBTFUL and regime in REGIMES_FROM_FLOORS and certainty == "high":
        certainty = "medium"  # the floors are upper bounds: a side may be smaller than it seems
    if on_host or regime not in DEVICE_BOUND_REGIMES:
        certainty = _at_most(certainty, lost)
    return Verdict(regime, _at_most(certainty, max(contradicted, unmatched)), tuple(lines))


def _at_most(certainty: Certainty, contradicted: float) -> Certainty:
    """The certainty that is left where the share `contradicted` of the time contradicts the verdict."""
    if contradicted > REFUTED:
        return "low"
    return "medium" if contradicted > DOUBTFUL and certainty == "high" else certainty


def _beaten(contradicted: float) -> list[str]:
    if contradicted <= DOUBTFUL:
        return []
    share = units.percent(contradicted)
    return [f"{share} of the device time is in kernels faster than their floor: a ceiling or a count is wrong"]


def regime_of(budget: list[BudgetLine]) -> Regime:
    """The regime that follows from a budget alone."""
    return _regime(_shares(budget))


def _shares(budget: list[BudgetLine]) -> dict[str, float]:
    """Share of the wall time by side. Time below the roof counts for what bounds its kernel."""
    shares: dict[str, float] = dict.fromkeys(
        ("compute", "memory", "overhead", "communication", "transfer", "input", "unpriced", "unexplained"), 0.0
    )
    for line in budget:
        side: str = line.line
        if side == "below_roof":
            side = line.cause if line.cause in ("compute", "memory") else "unpriced"
        elif side == "overhead" and line.cause == INPUT_CAUSE:
            side = "input"
        elif side == "overhead" and line.cause == UNEXPLAINED:
            side = "unexplained"
        shares[side] += line.share
    return shares


def _regime(shares: dict[str, float]) -> Regime:
    sides = ("compute", "memory", "overhead", "communication", "transfer", "input")
    if not any(shares.values()):
        return "unknown"
    # a device that idles, for whatever reason, does not lack compute or bandwidth
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
        return "input"  # the data's whole way to the device: waiting for it, and copying it while nothing else runs
    if (
        any(shares[side] + shares["unpriced"] > MAJORITY for side in sides)
        and shares["unpriced"] > LEAST_DECISIVE_UNPRICED
    ):
        return "unknown"
    return "mixed"


def _certainty(regime: Regime, budget: list[BudgetLine], wall: Wall, covered: float | None) -> Certainty:
    """High if the regime holds over the whole interval of the wall time and enough time is priced; low if neither."""
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
    """The budget if the step took `other`: only the device's waiting for the host and other ranks changes."""
    waiting = sum(line.ns for line in budget if line.line in WAITING_LINES)
    left = max(waiting + other - value, 0.0)
    factor = left / waiting if waiting > 0 else 0.0
    total = sum(line.ns for line in budget) - waiting + (left if waiting > 0 else 0.0)
    result = []
    for line in budget:
        ns = line.ns * factor if line.line in WAITING_LINES else line.ns
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
    text = f"the host had launched {units.percent(ahead)} of the device's work before the device was free for it"
    bound_by_host = shares["overhead"] + shares["input"] > MAJORITY
    if bound_by_host and ahead > MAJORITY:
        text += ", which speaks against overhead as the bound"
    return [text]


def _silent(shares: dict[str, float], on_device: bool) -> list[str]:
    if shares["unexplained"] <= 0.05:
        return []
    share = units.percent(shares["unexplained"])
    idles = "the device idles and no host event is recorded" if on_device else "no host event is recorded"
    return [f"in {share} of the step {idles}: the trace can't say why"]
