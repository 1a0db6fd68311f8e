"""Replay traces unchanged: how far the replayed step is from the trace's own.

    python -m bench.fidelity                 the shipped and held-out traces; write bench/results/fidelity.json and
                                             docs/fidelity.md
    python -m bench.fidelity --more FOLDER   also all traces under FOLDER (rows that are already known are kept)
    python -m bench.fidelity --check         exit 1 when the page differs from the results

Nothing is taken out of the host's time. A replay keeps the order of launches, streams and waits and the length of each
kernel, and makes up every begin: what it gets wrong of the trace's own times it would get wrong of a change as well.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench import pages
from bench.pages import ROOT
from gobrrr.analysis.answer.study import unreplayable
from gobrrr.analysis.events.links import link
from gobrrr.analysis.events.observer import NO_COST
from gobrrr.analysis.events.steps import find_steps
from gobrrr.analysis.replay.graph import graph_of
from gobrrr.analysis.replay.simulator import replayed
from gobrrr.errors import GobrrrError
from gobrrr.observe.trace import read_trace
from gobrrr.units import duration

OWN = (ROOT / "src" / "gobrrr" / "data" / "h100", ROOT / "tests" / "data" / "h100", ROOT / "tests" / "data" / "h200")
RESULTS = ROOT / "bench" / "results" / "fidelity.json"
PAGE = ROOT / "docs" / "fidelity.md"
PROMISED = 0.02


def traces(folder: Path) -> Iterator[Path]:
    """Every trace under a folder."""
    yield from sorted(path for path in folder.rglob("*.json*") if path.is_file() and path.stat().st_size > 1024)


def measure(path: Path) -> list[dict[str, Any]]:
    """One row a rank: the step as recorded and as replayed, in ns, and the kernels' begins; no row without GPU work."""
    try:
        profile = read_trace(str(path))
    except GobrrrError:
        return []
    return [row for rank in profile.ranks if (row := _row(path, rank.events, rank.whole)) is not None]


def _row(path: Path, events: Any, whole: bool) -> dict[str, Any] | None:
    links = link(events)
    if not len(links.device):
        return None
    steps = find_steps(events, links)
    doubt = unreplayable(events, links, steps) if whole else "part of the file is missing"
    moved = replayed(graph_of(events, links, NO_COST, steps.start, steps.stop))
    own, then = steps.wall_ns, find_steps(moved, links).wall_ns
    inside = links.device[(events.start_ns[links.device] >= steps.start) & (events.start_ns[links.device] < steps.stop)]
    late = moved.start_ns[inside] - events.start_ns[inside]
    shift = np.abs(late - np.median(late)) if len(late) else np.zeros(1)
    return {
        "name": path.name.split(".json")[0], "steps": steps.count, "work": len(links.device), "step_ns": own,
        "replayed_ns": then, "error": then / own - 1 if own else 0.0,
        "shift_ns": [float(np.median(shift)), float(shift.max())], "refused": doubt,
    }  # fmt: skip


def line(results: dict[str, Any]) -> str:
    """The results in one sentence."""
    rows = [row for row in results["rows"] if row["refused"] is None]
    errors = [abs(row["error"]) for row in rows]
    within = sum(error <= PROMISED for error in errors)
    return (
        f"Replayed unchanged, {within} of {len(rows)} traces give their own step within 2 %; the largest error is "
        f"{max(errors):.2%} (`{results['command']}`)."
    )


def page(results: dict[str, Any]) -> str:
    """The page in Markdown."""
    rows = [row for row in results["rows"] if row["refused"] is None]
    errors = [abs(row["error"]) for row in rows]
    within = sum(error <= PROMISED for error in errors)
    lines = [
        "# Fidelity of the replay",
        "",
        f"Made by `{results['command']}` ({results['date']}). Each trace is replayed as it is, with nothing taken",
        "out of the host's time: the step that comes out beside the trace's own, and by how much the begins of the",
        "kernels moved (median and largest, against the median of all). Traces that are not in the repository were",
        "read once with `--more FOLDER`; their rows are kept.",
        "",
        f"{within} of {len(rows)} steps are within 2 % of the trace's own; the largest error is {max(errors):.2%}, the",
        f"median {statistics.median(errors):.3%}.",
        "",
        *pages.heads("trace | steps | kernels and copies | step | replayed | error | begins moved by"),
    ]
    for row in sorted(rows, key=lambda row: row["name"]):
        middle, most = (duration(value) for value in row["shift_ns"])
        lines.append(
            f"| {row['name']} | {row['steps']} | {row['work']:,} | {duration(row['step_ns'])} | "
            f"{duration(row['replayed_ns'])} | {row['error']:+.2%} | {middle}, {most} |"
        )
    refused = [row for row in results["rows"] if row["refused"] is not None]
    if refused:
        lines += ["", "Not replayed, since the trace does not say what is needed:", ""]
        lines += [f"- {row['name']}: {row['refused']}" for row in refused]
    return "\n".join([*lines, ""])


def main() -> int:
    parser = pages.parser(__doc__)
    parser.add_argument("--more", type=Path, help="a folder with more traces")
    asked = parser.parse_args()

    def measure_all() -> dict[str, Any]:
        folders = [*OWN, *([asked.more] if asked.more else [])]
        rows = [row for folder in folders for path in traces(folder) for row in measure(path)]
        if not asked.more and RESULTS.exists():
            new = {row["name"] for row in rows}
            rows += [row for row in pages.read(RESULTS)["rows"] if row["name"] not in new]
        return {"rows": rows}

    return pages.measured(asked, "bench.fidelity", PAGE, page, measure_all)


if __name__ == "__main__":
    sys.exit(main())
