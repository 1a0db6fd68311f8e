"""The demonstration's table: the regime found beside the built-in fault, predicted times beside measured ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gobrrr import units
from gobrrr.errors import InputError
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.report import layout
from gobrrr.report.layout import Line, Page, fold, spread
from gobrrr.report.terminal import interval
from gobrrr.report.text import sanitise
from gobrrr.system.paths import without_home

TRACE_NAME_CELLS, REGIME_CELLS, PREDICTED_CELLS, MEASURED_CELLS = 26, 14, 22, 17
"""Widths of the columns, in terminal cells."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What was measured beside a shipped trace: its built-in fault and its step times without the profiler.

    `measured_ms`: the same step timed with a synchronize after each step, and without. None: not known.
    """

    regime: str | None
    what: str | None
    measured_ms: tuple[float, float] | None


@dataclass(frozen=True)
class DemoRow:
    """One trace's diagnosis beside its truth."""

    name: str
    diagnosis: Diagnosis
    truth: Truth


TRACE_SUFFIX = ".json.gz"
DEMO_STEP = "gobrrr.lab.example:workload"
"""The step that the demonstration runs."""


def shipped(names: Sequence[str] | None = None) -> list[tuple[Path, Truth]]:
    """The traces in the package's data (`names`: only these), with what is known of each.

    Raises InputError where the installation lacks them.
    """
    folder = Path(__file__).parents[1] / "data" / "h100"
    known = truths(folder, TRACE_SUFFIX)
    chosen = sorted(known) if names is None else [name for name in names if name in known]
    if not chosen:
        raise InputError(f"{folder}: the shipped traces are not in this installation; install gobrrr again")
    return [(folder / f"{name}{TRACE_SUFFIX}", known[name]) for name in chosen]


def truths(folder: Path, suffix: str) -> dict[str, Truth]:
    """The truth of each trace `NAME` + `suffix` in `folder`; {} if there is none.

    It is read from the folder's truth.json (faulty and fixed workloads) and labels.json (public models).
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
    """An introduction to the answers, with the folder of their traces."""
    text = f"Each answer is the output of gobrrr diagnose FILE for a trace in {sanitise(without_home(str(folder)))}."
    return [[(" Traces of an H100, shipped with gobrrr", "bold")], *page.wrapped(text, first=" "), []]


def live_heading(page: Page, *, has_torch: bool) -> list[Line]:
    """An introduction to the last answer; without torch, why there is none."""
    text = f"This is the output of gobrrr diagnose {DEMO_STEP}."
    if not has_torch:
        text = "torch is not installed here; with it, the demonstration also runs and diagnoses a small step."
    return [[], [(" A step that is run here: training a small language model", "bold")],
            *page.wrapped(text, first=" "), []]  # fmt: skip


def table(rows: Sequence[DemoRow], page: Page) -> list[Line]:
    """Two lines per trace: the figures, and the built-in fault."""
    lines: list[Line] = [
        spread([(" The answers beside what was measured", "bold")], [], page.width),
        *_columns("trace", "regime found", "without the profiler", "measured", "dim"),
    ]
    for row in rows:
        lines += _row(row, page)
    within = [row for row in rows if _covered(row)]
    judged = [row for row in rows if row.truth.measured_ms and row.diagnosis.unprofiled_wall_ns.value is not None]
    if judged:
        text = f"The predicted interval contains a measured time for {len(within)} of {len(judged)} traces."
        lines += [[], [(f" {text}", "")]]
    return fold(lines, page.width)


def _row(row: DemoRow, page: Page) -> list[Line]:
    wall, measured = row.diagnosis.unprofiled_wall_ns, row.truth.measured_ms
    predicted = units.duration(wall.value) + (f" ({interval(wall)})" if wall.value is not None else "")
    seen = units.duration_range(*(ms * 1e6 for ms in sorted(measured))) if measured else "?"
    lines = _columns(sanitise(row.name), row.diagnosis.regime, predicted, seen, "")
    if row.truth.what:
        built = "" if _agrees(row) else f" (built to be {row.truth.regime}-bound)"
        lines += page.wrapped(f"{row.truth.what}{built}", first="   ", style="dim")
    return lines


def _agrees(row: DemoRow) -> bool:
    """Whether the regime found is the built-in one; waiting for input counts as overhead."""
    found = row.diagnosis.regime
    return row.truth.regime in (None, found) or (found, row.truth.regime) == ("input", "overhead")


def _covered(row: DemoRow) -> bool:
    wall, measured = row.diagnosis.unprofiled_wall_ns, row.truth.measured_ms
    if measured is None or wall.low is None or wall.high is None:
        return False
    return wall.low <= max(measured) * 1e6 and min(measured) * 1e6 <= wall.high


def _columns(name: str, regime: str, predicted: str, measured: str, style: str) -> list[Line]:
    text = f" {regime:<{REGIME_CELLS}}{predicted:>{PREDICTED_CELLS}}{measured:>{MEASURED_CELLS}}"
    return layout.row(name, TRACE_NAME_CELLS - 1, text, styles=(style, style))
