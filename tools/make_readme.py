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

import argparse
import json
import sys
from pathlib import Path

import gobrrr
from bench import fidelity, pairs
from bench.accuracy import RESULTS, summary
from gobrrr.report.terminal import render
from tools import make_prediction

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
MANUAL = ROOT / "docs" / "manual.md"
TRACE = ROOT / "src" / "gobrrr" / "data" / "h100" / "gpt_eager_attn.faulty.json.gz"


def capture() -> str:
    """The answer for the shipped trace, as a fenced block under its command."""
    text = render(gobrrr.diagnose(TRACE), width=80, color=False).rstrip()
    lines = [line.rstrip() for line in text.splitlines()]
    return "\n".join(["```", f"$ gobrrr diagnose {TRACE.name}", *lines, "```"])


def accuracy() -> str:
    """How far the estimates of the held-out traces are off."""
    results = json.loads(RESULTS.read_text())
    parts = " ".join(summary(results["held_out"]))
    return f"  Held-out steps on an H100 ({results['date']}, `{results['command']}`): {parts}"


def changes() -> str:
    """How far what-ifs are off, and how near a replay without a change is."""
    held, replayed = (json.loads(one.RESULTS.read_text()) for one in (pairs, fidelity))
    return f"{pairs.line(held)}\n\n{fidelity.line(replayed)}"


def prediction() -> str:
    """How far predictions of models that nothing was fitted to are off."""
    results = json.loads(make_prediction.RESULTS_FILE.read_text())
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


def stale() -> dict[Path, str]:
    """The files that differ from what they should be, and what that is."""
    wanted = {file: filled(file.read_text(), made) for file, made in blocks().items()}
    return {file: text for file, text in wanted.items() if file.read_text() != text}


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    differing = stale()
    if parser.parse_args().check:
        for file in differing:
            print(f"{file.name} differs: run python tools/make_readme.py")
        return int(bool(differing))
    for file, text in differing.items():
        file.write_text(text)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
