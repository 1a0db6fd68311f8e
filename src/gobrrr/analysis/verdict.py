"""From the budget to the regime, how certain that is, and the checks that speak for or against it."""

from __future__ import annotations

from dataclasses import dataclass

from gobrrr import units
from gobrrr.analysis.idle import INPUT, UNEXPLAINED
from gobrrr.analysis.scales import scaled
from gobrrr.analysis.summary import LEAST_PRICED
from gobrrr.model.diagnosis import BudgetLine, Certainty, Regime, Totals, Wall
from gobrrr.model.live import Scaling
from gobrrr.model.machine import Machine

MAJORITY = 0.5
PERCEPTIBLE = 0.2
WAITING = ("overhead", "communication")

DOUBTFUL, REFUTED = 0.1, 0.3
"""Shares of device time in kernels faster than their floor, beyond which a verdict is medium and low at most."""


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
    totals: Totals,
    machine: Machine | None,
    ahead: float | None,
    contradicted: float = 0.0,
    on_device: bool = True,
    scaling: Scaling | None = None,
) -> Verdict:
    """One share over half: that regime. Otherwise mixed; unknown where what is not priced could decide it.

    `covered`: share of the device's compute time with a floor; `ahead`: share of device work that the host had issued
    before the device was free, None if launches are not recorded; `contradicted`: share of device time in kernels
    faster than their floor; `on_device`: whether the budget is a device's, not the host's; `scaling`: the step with its
    batch multiplied, None where that was not tried. Evidence that speaks against the regime lowers the certainty.
    """
    shares = _shares(budget)
    regime = _regime(shares)
    lines = [*_beaten(contradicted), *_achieved(covered, totals, wall, machine), *_run_ahead(ahead, shares)]
    lines += _silent(shares, on_device)
    grown = scaled(scaling, regime)
    lines += grown.lines
    certainty = _certainty(regime, budget, wall, covered)
    if regime == "overhead" and ahead is not None and ahead > MAJORITY and certainty == "high":
        certainty = "medium"  # the checks disagree
    if grown.against:
        certainty = "medium" if certainty == "high" else "low"
    return Verdict(regime, _at_most(certainty, contradicted), tuple(lines))


def _at_most(certainty: Certainty, contradicted: float) -> Certainty:
    """Where the kernels themselves contradict the floors, what rests on the floors is in doubt."""
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


def _achieved(covered: float | None, totals: Totals, wall: Wall, machine: Machine | None) -> list[str]:
    """The article's first check: achieved over peak."""
    if not totals.flop or machine is None or not wall.value:
        return []
    peak = max((one.value for one in machine.matrix_flop_per_s.values()), default=None)
    dense = machine.matrix_flop_per_s.get("bfloat16") or machine.matrix_flop_per_s.get("float16")
    peak = dense.value if dense is not None else peak
    if peak is None:
        return []
    rate = totals.flop / wall.value * 1e9
    name = "16-bit"
    if rate > peak:  # the step works in a smaller type
        name, highest = max(machine.matrix_flop_per_s.items(), key=lambda item: item[1].value)
        peak = highest.value
    achieved, share = units.rate(rate, "FLOP"), units.percent(rate / peak)
    least = "" if covered is None or covered >= LEAST_PRICED else "at least "
    if rate > peak:  # the peak of the type that it works in is not known
        return [f"achieved {least}{achieved}, more than any dense peak that is known of this device"]
    return [f"achieved {least}{achieved}, {share} of the dense {name} peak"]


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
