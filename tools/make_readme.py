"""Write the blocks of README.md and docs/manual.md that are made by commands; `--check` says if they are current.

README.md:
capture   what `gobrrr diagnose` prints for a shipped trace, at 80 columns
docs/manual.md:
accuracy  the summary of bench/results/accuracy.json
prediction  the summary of bench/results/predictions.json
pairs     the summary of bench/results/pairs.json and bench/results/fidelity.json

The table between the bench marks is `python -m bench.speed_table`'s.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gobrrr
from bench import fidelity, pages, pairs
from bench.accuracy import RESULTS, summary
from gobrrr.report.terminal import render
from tools import make_prediction

README, MANUAL = pages.ROOT / "README.md", pages.DOCS / "manual.md"
TRACE = pages.ROOT / "src" / "gobrrr" / "data" / "h100" / "gpt_eager_attn.faulty.json.gz"


def capture() -> str:
    """The answer for the shipped trace, as a fenced block under its command."""
    text = render(gobrrr.diagnose(TRACE), width=80, color=False).rstrip()
    lines = [line.rstrip() for line in text.splitlines()]
    return "\n".join(["```", f"$ gobrrr diagnose {TRACE.name}", *lines, "```"])


def accuracy() -> str:
    """How far the estimates of the held-out traces are off."""
    results = pages.read(RESULTS)
    parts = " ".join(summary(results["held_out"]))
    return f"  Held-out steps on an H100 ({results['date']}, `{results['command']}`): {parts}"


def changes() -> str:
    """How far what-ifs are off, and how near a replay without a change is."""
    held, replayed = (pages.read(source.RESULTS) for source in (pairs, fidelity))
    return f"{pairs.line(held)}\n\n{fidelity.line(replayed)}"


def prediction() -> str:
    """How far predictions of models that nothing was fitted to are off."""
    results = pages.read(make_prediction.RESULTS_FILE)
    about = f"On an H100 ({results['date']}, `{results['command']}`), leaving one model out"
    return f"{about}: {make_prediction.line(results)}"


def blocks() -> dict[Path, dict[str, str]]:
    """Block by mark, by file."""
    return {
        README: {"capture": capture()},
        MANUAL: {"accuracy": accuracy(), "prediction": prediction(), "pairs": changes()},
    }


def filled(text: str, blocks: dict[str, str]) -> str:
    """`text` with all blocks filled in. Raises ValueError where a mark is missing."""
    for name, block in blocks.items():
        start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
        before, found, rest = text.partition(start)
        if not found or end not in rest:
            raise ValueError(f"no {start} ... {end}")
        text = f"{before}{start}\n\n{block}\n\n{end}{rest.partition(end)[2]}"
    return text


def files() -> dict[Path, str]:
    """Both files with their blocks filled in."""
    return {file: filled(file.read_text(encoding="utf-8"), made) for file, made in blocks().items()}


def main() -> int:
    return pages.main(__doc__, files, "python -m tools.make_readme")


if __name__ == "__main__":
    sys.exit(main())
