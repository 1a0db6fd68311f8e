"""The demonstration's table: what was found beside what was wrong by design, predicted beside measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gobrrr import units
from gobrrr.errors import InputError
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.report.layout import Line, Page, fold, row, spread
from gobrrr.report.terminal import interval
from gobrrr.report.text import sanitise
from gobrrr.system.paths import without_home

NAME_CELLS, REGIME_CELLS, PREDICTED_CELLS, MEASURED_CELLS = 26, 14, 22, 17


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What is known of a shipped trace from outside it: its fault and its step times without the profiler, in ms.

    `measured_ms` are two ways to time the same step (a synchronize after each one, and without). None: not known.
    """

    regime: str | None
    what: str | None
    measured_ms: tuple[float, float] | None


@dataclass(frozen=True)
class DemoRow:
    """One trace's answer beside its truth."""

    name: str
    diagnosis: Diagnosis
    truth: Truth


SUFFIX = ".json.gz"
EXAMPLE = "gobrrr.lab.example:workload"
"""The step that the demonstration runs."""


def shipped(names: Sequence[str] | None = None) -> list[tuple[Path, Truth]]:
    """The traces in the package's data (`names`: only these), with what is known of each.

    Raises InputError where the installation lacks them.
    """
    folder = Path(__file__).parents[1] / "data" / "h100"
    known = truths(folder, SUFFIX)
    chosen = sorted(known) if names is None else [name for name in names if name in known]
    if not chosen:
        raise InputError(f"{folder}: the shipped traces are not in this installation; install gobrrr again")
    return [(folder / f"{name}{SUFFIX}", known[name]) for name in chosen]


def truths(folder: Path, suffix: str) -> dict[str, Truth]:
    """What is known of each trace `NAME` + `suffix` in `folder`; {} where there is none.

    Read from the folder's truth.json (faulty and fixed workloads) and labels.json (public models).
    """
    names = sorted(path.name.removesuffix(suffix) for path in folder.glob(f"*{suffix}"))
    workloads, models = (_read(folder / name) for name in ("truth.json", "labels.json"))
    return {name: _truth(name, workloads, models) for name in names}


def _read(path: Path) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _truth(name: str, workloads: dict[str, Any], models: dict[str, Any]) -> Truth:
    case, _, variant = name.rpartition(".")
    workload, model = workloads.get(case), models.get(case)
    if workload and variant in workload:
        times = workload[variant]
        measured = (times["sync_ms"], times["pipelined_ms"])
        if variant == "faulty":
            return Truth(regime=workload["regime"], what=workload["what"], measured_ms=measured)
        return Truth(regime=None, what=f"fixed: {workload['what']}", measured_ms=measured)
    if model and variant in model:
        return Truth(regime=None, what=None, measured_ms=tuple(model[variant]))
    return Truth(regime=None, what=None, measured_ms=None)


def heading(folder: Path, page: Page) -> list[Line]:
    """What the answers that follow are, and where their traces lie."""
    said = f"Each answer is that of gobrrr diagnose FILE for a trace in {sanitise(without_home(str(folder)))}."
    return [[(" Traces of an H100, shipped with gobrrr", "bold")], *page.wrapped(said, first=" "), []]


def live_heading(page: Page, *, has_torch: bool) -> list[Line]:
    """What the last answer is of; without torch, why there is none."""
    said = f"The answer is that of gobrrr diagnose {EXAMPLE}."
    if not has_torch:
        said = "torch is not installed here: with it, a small step is run and diagnosed as well."
    return [[], [(" A step that is run here: a small language model in training", "bold")],
            *page.wrapped(said, first=" "), []]  # fmt: skip


def table(rows: Sequence[DemoRow], page: Page) -> list[Line]:
    """Two lines a trace: the figures, and the fault that was built in."""
    lines: list[Line] = [
        spread([(" Found, beside what is known from outside the trace", "bold")], [], page.width),
        *_columns("trace", "regime found", "without the profiler", "measured", "dim"),
    ]
    for one in rows:
        lines += _row(one, page)
    within = [one for one in rows if _covered(one)]
    judged = [one for one in rows if one.truth.measured_ms and one.diagnosis.unprofiled_wall_ns.value is not None]
    if judged:
        text = f"The predicted interval holds a measured time for {len(within)} of {len(judged)}."
        lines += [[], [(f" {text}", "")]]
    return fold(lines, page.width)


def _row(one: DemoRow, page: Page) -> list[Line]:
    wall, measured = one.diagnosis.unprofiled_wall_ns, one.truth.measured_ms
    predicted = units.duration(wall.value) + (f" ({interval(wall)})" if wall.value is not None else "")
    seen = units.duration_range(*(ms * 1e6 for ms in sorted(measured))) if measured else "?"
    lines = _columns(sanitise(one.name), one.diagnosis.regime, predicted, seen, "")
    if one.truth.what:
        built = "" if _agrees(one) else f" (built to be {one.truth.regime}-bound)"
        lines += page.wrapped(f"{one.truth.what}{built}", first="   ", style="dim")
    return lines


def _agrees(row: DemoRow) -> bool:
    """Whether the regime is the one that was built in; waiting for input is a kind of overhead."""
    found = row.diagnosis.regime
    return row.truth.regime in (None, found) or (found, row.truth.regime) == ("input", "overhead")


def _covered(row: DemoRow) -> bool:
    wall, measured = row.diagnosis.unprofiled_wall_ns, row.truth.measured_ms
    if measured is None or wall.low is None or wall.high is None:
        return False
    return wall.low <= max(measured) * 1e6 and min(measured) * 1e6 <= wall.high


def _columns(name: str, regime: str, predicted: str, measured: str, style: str) -> list[Line]:
    text = f" {regime:<{REGIME_CELLS}}{predicted:>{PREDICTED_CELLS}}{measured:>{MEASURED_CELLS}}"
    return row(name, NAME_CELLS - 1, text, styles=(style, style))
