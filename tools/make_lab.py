"""Write the pages of the article, re-measured, from bench/results/lab_*.json; `--check` says if they are current.

docs/lab_h100.html, docs/lab_cpu.html   what `gobrrr lab --all --html FILE` writes
docs/intensity_h100.svg                 the first plot of `intensity`
docs/lab.md                             which claims hold where, in a table; the ceilings beside an earlier run's
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from bench import pages
from gobrrr.model.experiment import LabReport
from gobrrr.report import svg
from gobrrr.report.lab import page_of
from tools import agreement

RESULTS = {name: pages.RESULTS / f"lab_{name}.json" for name in ("h100", "cpu")}
HEAD = """# The article, re-measured

Made by `python -m tools.make_lab` from `bench/results/lab_*.json`, which `gobrrr lab --all --json` wrote. The claims
are those of "Making Deep Learning Go Brrrr From First Principles"; each is quoted, with the numbers behind the verdict,
in the page of its device.
"""


def reports() -> dict[str, LabReport]:
    """The measured reports by device, as far as there are results."""
    present = {name: path for name, path in RESULTS.items() if path.is_file()}
    return {name: msgspec.json.decode(path.read_bytes(), type=LabReport) for name, path in present.items()}


def files() -> dict[Path, str]:
    """Every file with its content."""
    found = reports()
    by_device = {pages.DOCS / f"lab_{name}.html": page_of(report) for name, report in found.items()}
    plot = next(experiment for experiment in found["h100"].experiments if experiment.name == "intensity").plots[0]
    return {**by_device, pages.DOCS / "intensity_h100.svg": svg.draw(plot), pages.DOCS / "lab.md": _summary(found)}


def _summary(found: dict[str, LabReport]) -> str:
    lines = [HEAD]
    for name, report in found.items():
        env = report.environment
        lines.append(f"- [{name}](lab_{name}.html): {env.device_name}, torch {env.torch}, {env.date[:10]}")
    verdicts = {
        name: {
            judgement.claim.number: judgement.verdict for each in report.experiments for judgement in each.judgements
        }
        for name, report in found.items()
    }
    quotes = {
        judgement.claim.number: judgement.claim.quote
        for each in found["h100"].experiments
        for judgement in each.judgements
    }
    lines += ["", f"| | claim | {' | '.join(found)} |", f"| --- | --- |{' --- |' * len(found)}"]
    for number, quote in quotes.items():
        cells = " | ".join(verdicts[name].get(number, "not measured") for name in found)
        text = quote.replace("|", "\\|")
        lines.append(f"| {number} | {text} | {cells} |")
    return "\n".join(lines) + "\n" + agreement.text()


def main() -> int:
    return pages.main(__doc__, files, "python -m tools.make_lab")


if __name__ == "__main__":
    sys.exit(main())
