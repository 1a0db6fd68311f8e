"""The words of the answer: names of the budget's lines, and the sentence behind the verdict."""

from __future__ import annotations

from collections.abc import Callable

from gobrrr import units
from gobrrr.model.diagnosis import BudgetLine, Diagnosis
from gobrrr.report import unpriced
from gobrrr.report.text import sanitise

PRICED_ENOUGH = 0.8
"""With floors for less than this share of the device time, the verdict may be unknown; chosen."""

TINY_SHARE = 0.005
"""Lines of the budget below this share are merged; chosen."""

VERDICTS = {"no_change": "no change", "inconclusive": "unclear"}
"""Verdicts of trials whose name on the screen is another."""

BUDGET_GROUPS = {
    "compute": "compute",
    "memory": "memory",
    "below_roof": "below the roof",
    "unpriced": "not judged",
    "communication": "communication",
    "transfer": "transfer",
    "overhead": "overhead",
}
"""Kind of a budget line -> its name, in the order of the table."""

LINE_LABELS = {
    "compute": "at its roof",
    "memory": "at its roof",
    "unpriced": "least time unknown",
    "communication": "not overlapped",
    "transfer": "host-device copies",
}
"""Kind of a budget line without a cause -> its label."""

# (the start of a cause's name, its label in the table, what the device does meanwhile)
CAUSE_LABELS = (
    ("waiting", "waiting for ranks", "waiting for the slowest rank"),
    ("launch", "launching", "waiting for launches"),
    ("python", "Python between ops", "waiting for Python"),
    ("drain", "synchronisation", "waiting after synchronisations with the host"),
    ("sync", "synchronisation", "waiting after synchronisations with the host"),
    ("input", "input data", "waiting for input data"),
    ("alloc", "allocator", "waiting for the allocator"),
    ("garbage", "garbage collection", "waiting for garbage collection"),
    ("gc", "garbage collection", "waiting for garbage collection"),
    ("host", "host computation", "waiting for computation on the host"),
    ("compil", "compiling", "waiting for a compiler"),
    ("unexplained", "unexplained", "and the trace does not show why"),
)


CPU_CAUSE_WORDS = {
    "input data": "waiting for input data",
    "allocator": "in the allocator",
    "garbage collection": "in garbage collection",
    "compiling": "compiling",
}
"""Label of a cause -> what the processor does meanwhile, if operations run on it."""

CAUSE_CHARACTERS = 30
"""Characters of an unknown cause that are shown; chosen."""


def _cause(cause: str | None) -> tuple[str, str]:
    key = sanitise(cause or "unexplained", limit=CAUSE_CHARACTERS).lower()
    for start, label, meanwhile in CAUSE_LABELS:
        if key.startswith(start):
            return label, meanwhile
    return key, f"mostly in {key}"


def cause(name: str | None) -> str:
    """The label of a cause of overhead."""
    return _cause(name)[0]


def label(line: BudgetLine, *, cpu: bool = False) -> str:
    """The label of a line in the second column; `cpu`: operations are dispatched, not launched."""
    if line.line == "below_roof":
        return f"{sanitise(line.cause)} kernels" if line.cause else ""
    if line.line == "overhead":
        name = _cause(line.cause)[0]
        return "dispatch" if cpu and name == "launching" else name
    return sanitise(line.cause) if line.cause else LINE_LABELS[line.line]


def share(diagnosis: Diagnosis, line: str, cause: str | None = None) -> float:
    """The share of the step that lines of this kind (and, if given, this cause) take together."""
    return sum(row.share for row in diagnosis.budget if row.line == line and cause in (None, row.cause))


def sides(diagnosis: Diagnosis) -> dict[str, float]:
    """Shares of the step by regime: time below the roof counts for what bounds its kernel."""
    below = {side: share(diagnosis, "below_roof", side) for side in ("compute", "memory")}
    waiting = sum(line.share for line in diagnosis.budget if is_input(line))
    return {
        "compute": share(diagnosis, "compute") + below["compute"],
        "memory": share(diagnosis, "memory") + below["memory"],
        "overhead": share(diagnosis, "overhead") - waiting,
        "input": waiting,
        "communication": share(diagnosis, "communication"),
        "transfer": share(diagnosis, "transfer"),
    }


def is_input(line: BudgetLine) -> bool:
    """Whether the line is the wait for input data, an overhead that is a regime of its own."""
    return line.line == "overhead" and (line.cause or "").lower().startswith("input")


def headline(diagnosis: Diagnosis) -> str:
    """The verdict in one word."""
    return diagnosis.regime.upper() if diagnosis.regime in ("mixed", "unknown") else f"{diagnosis.regime.upper()}-BOUND"


def reason(diagnosis: Diagnosis) -> str:
    """The reason for the verdict in one sentence with a number; "" if the budget is empty."""
    if diagnosis.regime == "unknown":
        return _unknown(diagnosis)
    if not diagnosis.budget:
        return ""
    return _REASONS[diagnosis.regime](diagnosis)


def _unknown(diagnosis: Diagnosis) -> str:
    if not diagnosis.devices and diagnosis.budget:
        return f"{unpriced.NO_DEVICE}: the host's time alone does not show what bounds the step"
    priced = diagnosis.coverage.device_time
    if priced is None or priced >= PRICED_ENOUGH or share(diagnosis, "unpriced") < TINY_SHARE:
        return "the recording does not show where the step's time goes"
    if (why := unpriced.no_machine(diagnosis)) is not None:
        return f"the least time for the work is not known: {why}"
    part = f"only {units.percent(priced)}" if priced else "no part"
    rest = unpriced.most(diagnosis)
    rest = f"; most of the rest {rest}" if rest and priced else f"; most of it {rest}" if rest else ""
    return f"the least time for the work is known for {part} of the device's compute time{rest}"


def _side(side: str, what: str) -> Callable[[Diagnosis], str]:
    def sentence(diagnosis: Diagnosis) -> str:
        whole, below = sides(diagnosis)[side], share(diagnosis, "below_roof", side)
        text = f"{what} takes {units.percent(whole)} of the step"
        if below < TINY_SHARE:
            return text
        return f"{text}: {units.percent(whole - below)} at the roof, {units.percent(below)} below it"

    return sentence


def _overhead(diagnosis: Diagnosis) -> str:
    lines = [line for line in diagnosis.budget if line.line == "overhead"]
    idle = units.percent(share(diagnosis, "overhead"))
    largest = _cause(max(lines, key=lambda line: line.ns).cause) if lines else None
    if not diagnosis.devices:  # the budget is the host's
        text = f"the host runs no operation in {idle} of the step"
        return f"{text}, most of it {largest[0]}" if largest else text
    if not diagnosis.device_model.asynchronous:
        return _dispatching(diagnosis, lines)
    text = f"the device idles {idle} of the step"
    return f"{text}, {largest[1]}" if largest else text


def _dispatching(diagnosis: Diagnosis, lines: list[BudgetLine]) -> str:
    """The overhead of a step whose operations run on the processor."""
    whole = units.percent(share(diagnosis, "overhead"))
    dispatch = sum(line.share for line in lines if cause(line.cause) in ("launching", "Python between ops"))
    if dispatch > share(diagnosis, "overhead") / 2:
        return f"the processor spends {whole} of the step in dispatch and Python, not computing"
    largest = cause(max(lines, key=lambda line: line.ns).cause) if lines else ""
    text = f"the processor spends {whole} of the step not computing"
    return f"{text}, most of it {CPU_CAUSE_WORDS.get(largest, largest)}" if largest else text


def _waiter(diagnosis: Diagnosis) -> str:
    """What waits for the input."""
    if not diagnosis.device_model.asynchronous:
        return "step"
    return "device" if diagnosis.devices else "host"


def _mixed(diagnosis: Diagnosis) -> str:
    first, second, *_ = sorted(sides(diagnosis).items(), key=lambda item: -item[1])
    largest = ", ".join(f"{name} {units.percent(part)}" for name, part in (first, second))
    return f"{largest}: none takes half of the step"


def _and_copies(diagnosis: Diagnosis) -> str:
    """Copies to and from the device that are not overlapped, if they take 5 % of the step (chosen)."""
    copies = share(diagnosis, "transfer")
    return f", and copies take {units.percent(copies)}" if copies >= 0.05 else ""


_REASONS: dict[str, Callable[[Diagnosis], str]] = {
    "compute": _side("compute", "arithmetic"),
    "memory": _side("memory", "moving bytes"),
    "overhead": _overhead,
    "input": lambda d: (
        f"the {_waiter(d)} waits for input data {units.percent(sides(d)['input'])} of the step{_and_copies(d)}"
    ),
    "communication": lambda d: f"exposed communication takes {units.percent(share(d, 'communication'))} of the step",
    "transfer": lambda d: (
        f"host-device copies with nothing else running take {units.percent(share(d, 'transfer'))} of the step"
    ),
    "mixed": _mixed,
}
