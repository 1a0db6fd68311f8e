"""Write docs/calibration.md from bench/results/calibration*.json and the package's data/fitted.json.

`--check` says if the page is current. `python -m bench.calibration --fit` makes what it shows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bench import pages
from bench.calibration import COLUMNS, RESULTS, Line, Table, table
from gobrrr.analysis.replay.fitted import Fitted, LeftOut, ResidualSpread, fitted

PAGE = pages.DOCS / "calibration.md"
FIT, FINAL = RESULTS / "calibration.json", RESULTS / "calibration_final.json"

HEAD = """# Predicted savings against measured ones

A predicted saving is a replay of the step's graph with the change in it, plus a correction that was fitted: the
quantiles of the residuals that the bench of treatments measured (`bench/gpu/treatments.py`), by the mechanism of the
treatment. A third of the workloads was set aside before anything was fitted, to be looked at once. The form of the fit
(its scale, its groups, how strongly a small group is drawn to the one around it, which quantiles) was chosen by trying
many on the workloads of the first table. So the figures of that table, although each workload is left out of its own
fit, are somewhat better than those of workloads that nobody has seen.

Other scales were fitted on the same workloads: what a change saves, what it touches, the replay's own width, the
device's idle share, whether the device or the host bounds the step, whether it trains, whether pieces are compiled or
narrower; with one scale for both ends and with one for each. None had an interval score that was better by more than a
point, nor a median width under 20 points. The remaining width is how much two steps differ that look alike to the
replay, above all under `compile` where the host bounds the step.

The replay lacks these known effects. In a CUDA graph, kernels of cuDNN's recurrent layers run side by side on several
streams; the replay keeps their order (a GRU saved 63 %, 28 % are predicted). Such layers take longer under autocast. A
loss within the user's own step is not compiled with the model. Larger batches use a busy device a little better. Where
the device hides the host, the host may be half or one and a half times as fast.

Three columns are compared with the same measurements. `replay` is the replay alone; `usual` is what a treatment saves
on the other workloads of the same regime; `calibrated` is what answers show. In the first table each workload is
predicted by a fit without it. The error is the distance between the expected and the measured saving, in points of the
step. An interval is meant to cover 80 %. The interval score is its width plus 10 times the distance of a measured
saving outside it (Gneiting and Raftery 2007): less is better.

Each prediction is for a step of the length that was measured together with the treatment. Between the profile and that
measurement hosts became up to twice as fast or as slow. Where the host bounds the step, its time in the replay is
scaled until the step has the measured length; `gobrrr treat` does the same for a trial. The intervals hold for such a
step. The interval of a diagnosis does not cover that the host changes its speed before a trial. Where the device hides
the host, the host's time is that of issuing one step to an idle device. A live run measures it; for the workloads here
it was measured on another day (`bench/gpu/issue_time.py`).

The high end of a saving is never above the time of the work that a change touches and the idle time that it can fill.
A measured saving above that lies outside by construction.
"""

SPREADS = """## What was fitted

Quantiles of the residuals, in units of a saving's scale (`src/gobrrr/analysis/replay/predictive.py`), after groups with
few workloads were drawn to the group around them. "Left out": each workload by a fit without it.
"""


def page(fit: Table, final: Table | None, made: Fitted) -> str:
    """The page."""
    parts = [HEAD, _section("Workloads that the fit may see, each left out", fit)]
    parts.append(
        _section("The third that was set aside", final)
        if final is not None
        else "## The third that was set aside\n\nNot looked at yet.\n"
    )
    parts.append(SPREADS)
    parts.append(_about(made))
    parts.append("\n".join(_spreads(made.spreads)) + "\n")
    return "\n".join(parts)


def _section(title: str, kept: Table) -> str:
    about = " ".join(kept.about)
    made = f"`{kept.command}`, {kept.date}, {', '.join(kept.hardware)}."
    return "\n".join([f"## {title}", "", made, about, "", *_no_better(kept.lines), "", *table(kept.lines), ""])


def _no_better(lines: Sequence[Line]) -> list[str]:
    """The kinds that one of the other columns predicts as well or better than what is shown, a sentence a measure."""
    by = {(line.kind, line.column): line.told for line in lines}
    kinds = list(dict.fromkeys(line.kind for line in lines))

    def said(measure: str, of: Callable[[LeftOut], float]) -> str:
        worse = [
            f"{kind} ({column})"
            for kind in kinds
            for column in COLUMNS[:-1]
            if (kind, column) in by and of(by[kind, column]) <= of(by[kind, COLUMNS[-1]])
        ]
        return f"What is shown is not better than another column by its {measure}: {', '.join(worse) or 'nowhere'}."

    return [said("interval score", lambda out: out.score), said("median error", lambda out: out.error)]


def _about(made: Fitted) -> str:
    low, _, high = (f"{100 * level:.0f}" for level in made.levels)
    return (
        f"`{made.command}`, {made.date}; {'; '.join(made.hardware)}. Quantiles {low} and {high} %, and the median; a "
        f"group is drawn to the one around it as if that had {made.drawn:.0f} workloads; measurements whose rounds "
        f"vary by more than {100 * made.noisy:.0f} % of the step are left out.\n"
    )


def _spreads(spreads: Sequence[ResidualSpread]) -> list[str]:
    rows = pages.heads(
        "device | works by | points | workloads | low | median | high | ends | left out: error, covered, width"
    )
    for spread in spreads:
        out = spread.left_out
        told = "" if out is None else f"{100 * out.error:.1f}, {100 * out.coverage:.0f} %, {100 * out.width:.1f}"
        rows.append(
            f"| {spread.device} | {spread.mechanism or 'any'} | {spread.points} | {spread.workloads} | "
            f"{spread.low:.2f} | {spread.middle:.2f} | {spread.high:.2f} | {spread.least:.2f} to {spread.most:.2f} | "
            f"{told} |"
        )
    return rows


def read(path: Path) -> Table | None:
    """A kept table; None where there is none."""
    return msgspec.json.decode(path.read_bytes(), type=Table) if path.is_file() else None


def files() -> dict[Path, str]:
    """The page by its path. Raises SystemExit where nothing was fitted yet."""
    fit = read(FIT)
    if fit is None:
        raise SystemExit("python -m bench.calibration --fit comes first")
    return {PAGE: page(fit, read(FINAL), fitted())}


def main() -> int:
    return pages.main(__doc__, files, "python -m tools.make_calibration")


if __name__ == "__main__":
    sys.exit(main())
