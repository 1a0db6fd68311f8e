"""Make docs/treat.md from what bench/gpu/treat.py measured: gobrrr.treat held against experts' recipes.

    python -m bench.treat_table            writes the page
    python -m bench.treat_table --check    exit 1 when the page differs from the results

A saving is a share of the step before the trial, per unit of work.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from bench import pages
from gobrrr.units import duration, percent

RESULTS, PAGE = pages.RESULTS / "treat_h200.json", pages.DOCS / "treat.md"

REACHED, TRIALS, SECONDS = 0.97, 3, 120.0
"""What treat is to reach of the best recipe's speed, in so many trials and so many seconds beside compiling."""

FIRST = "first_sight"
"""In the entry of a workload that was measured anew: what it gave when the code saw it for the first time."""

WHY = {
    "columns_train": "the set with a graph of the whole step had no fused optimizer, because no saving was predicted "
    "for it; each recipe that was faster had one. The fused optimizer is in every set since. One of three trials went "
    "to TF32, which does the same work as the bfloat16 that was kept; it has no trial there since",
    "gpt_script": "no saving was predicted for fetching and copying the next batch during the step, so that it was "
    "not tried; it is in every set since where the step has a loader. It was then left out, because the step was only "
    "4.5 % slower without it, give or take 5.5 %; a member without which the step is more than 2 % slower stays since",
}
"""Why treat stayed behind, of each workload in which it did when the code saw it for the first time."""

Row = dict[str, Any]


def ratio(found: Row) -> float | None:
    """The time of the best other recipe over that of what treat kept; None where they were not timed in turns."""
    timed = found.get("against", {})
    return timed["best_ns"] / timed["treat_ns"] if timed.get("best_ns") and timed.get("treat_ns") else None


def beside_compiling(found: Row) -> float | None:
    """Seconds until the last of the first trials ended, less those in which torch's compiler worked."""
    ends = found.get("treat", {}).get("trial_ends_s", [])[:TRIALS]
    return ends[-1][0] - ends[-1][1] if ends else None


def held(entries: dict[str, Row]) -> dict[str, Row]:
    """The workloads of which there is a ratio, the lowest first."""
    told = {name: entry for name, entry in entries.items() if ratio(entry) is not None}
    return dict(sorted(told.items(), key=lambda pair: ratio(pair[1]) or 0.0))


def first_sight(entries: dict[str, Row]) -> dict[str, Row]:
    """What each workload gave when the code saw it for the first time."""
    return {name: entry.get(FIRST, entry) for name, entry in entries.items()}


def page(results: Row) -> str:
    """The page in Markdown."""
    entries = results["workloads"]
    lines = [
        "# Treat against experts' recipes",
        "",
        f"Made by `python -m bench.treat_table` from what `{results['command']}` measured ({results['date']}) on one "
        f"{results['device']} with torch {results['torch']}, driver {results.get('driver', 'unknown')}.",
        "",
        f"`gobrrr.treat` had its default budget and was ended after {TRIALS} trials. What it kept, and each recipe "
        "that an expert would apply at once, were then timed in turns in a process without a profiler. The recipes "
        "(bench/gpu/treat_one.py) were chosen before anything was measured. All weights and data are random; none of "
        "the workloads is among those that were set aside for judging predictions.",
        "",
        *_summary(entries),
        "",
        "## Workloads",
        "",
        "The last two columns are the time of the best recipe over that of what treat kept: below 1, the recipe was "
        'faster. Where treat kept one of the recipes, it is compared with the best of the others. "At first sight" is '
        "the code as it was before it was run on the workload.",
        "",
        *_workloads(entries),
        *_unfinished(entries),
        "",
        f"## Below {percent(REACHED)}",
        "",
        *_low(entries),
        "",
        "## Trials",
        "",
        "Savings are shares of the step before the trial, with the predicted interval in brackets.",
        "",
        *_trials(entries),
        "",
    ]
    return "\n".join(lines)


def _summary(entries: dict[str, Row]) -> list[str]:
    lines = [_reached("At first sight", held(first_sight(entries)))]
    if any(FIRST in entry for entry in entries.values()):
        lines.append(_reached("Now", held(entries)))
    return lines


def _reached(when: str, told: dict[str, Row]) -> str:
    far = sum((ratio(entry) or 0.0) >= REACHED for entry in told.values())
    quick = sum((beside_compiling(entry) or 0.0) <= SECONDS for entry in told.values())
    short = sum(bool(entry["against"].get("left")) for entry in told.values())
    doubt = f" On {short} of them the time did not reach every recipe (the table names those)." if short else ""
    return (
        f"- {when}, treat reached {percent(REACHED)} of the best recipe's speed on {far} of {len(told)} workloads. On "
        f"{quick} of {len(told)} its trials ended within {SECONDS:.0f} s beside compiling.{doubt}"
    )


def _workloads(entries: dict[str, Row]) -> list[str]:
    lines = pages.heads(
        "workload | what it is | untreated | treat | treat kept | best recipe | of | trials | s | s of them "
        "compiling | at first sight | now"
    )
    for name, found in held(entries).items():
        timed, treated = found["against"], found["treat"]
        times = [duration(timed[key]) for key in ("untreated_ns", "treat_ns", "best_ns")]
        first = ratio(found.get(FIRST, found))
        at_first = "not timed" if first is None else f"{first:.3f}"
        now = f"{ratio(found):.3f}" if FIRST in found else "the same"
        lines.append(
            f"| {name} | {_cell(found['what'])} | {times[0]} | {times[1]} | {timed['mine'] or 'nothing'} | "
            f"{times[2]} | {timed['best'] or 'the step as it was'}{_left(timed)} | {len(treated['trials'])} | "
            f"{treated['seconds']:.0f} | {treated['compiling_s']:.0f} | {at_first} | {now} |"
        )
    return lines


def _left(timed: Row) -> str:
    """The recipes that the time did not reach."""
    return f" (not timed: {'; '.join(timed['left'])})" if timed.get("left") else ""


def _unfinished(entries: dict[str, Row]) -> list[str]:
    left = sorted(name for name, entry in entries.items() if ratio(entry) is None)
    return ["", f"The time did not reach the end of {', '.join(left)}."] if left else []


def _low(entries: dict[str, Row]) -> list[str]:
    """Each workload below REACHED at first sight, with the reason."""
    low = {name: ratio(entry) or 0.0 for name, entry in held(first_sight(entries)).items()}
    return [f"- {name} ({low[name]:.3f} at first sight): {WHY[name]}." for name in low if low[name] < REACHED] or [
        "None."
    ]


def trials(entries: dict[str, Row]) -> Iterator[tuple[str, Row]]:
    """Every trial with its workload's name; those of first sight are named so."""
    for name, found in entries.items():
        for about, entry in ((f"{name}, at first sight", found.get(FIRST, {})), (name, found)):
            for trial in entry.get("treat", {}).get("trials", ()):
                yield about, trial


def measured(trial: Row) -> float | None:
    """The measured saving as a share of the step before, per unit of work; None where nothing was timed."""
    timing = trial.get("timing")
    return None if timing is None else 1 - timing["after_ns"] / trial.get("work", 1.0) / timing["before_ns"]


def predicted(trial: Row) -> tuple[float, ...] | None:
    """(expected, low, high) of the saving as shares of the step as it was diagnosed; None where nothing predicts it."""
    expected, step = trial.get("expected_ns"), trial.get("step_ns")
    if expected is None or not step:
        return None
    return tuple(ns / step for ns in (expected, *trial.get("predicted_saving_ns", ())))


def _trials(entries: dict[str, Row]) -> list[str]:
    lines = pages.heads("workload | tried | predicted | measured | verdict")
    for about, trial in trials(entries):
        got = measured(trial)
        lines.append(
            f"| {about} | {trial['way']} | {_interval(predicted(trial))} | {'' if got is None else percent(got)} | "
            f"{trial['verdict'].replace('_', ' ')} |"
        )
    return lines


def _interval(told: tuple[float, ...] | None) -> str:
    if told is None:
        return "nothing predicts it"
    expected, *ends = map(percent, told)
    return f"{expected} ({' to '.join(ends)})" if ends else expected


def _cell(text: str) -> str:
    """Text that can't end its cell."""
    return " ".join(text.replace("|", "/").split())


def main() -> int:
    return pages.main(__doc__, lambda: {PAGE: page(pages.read(RESULTS))}, "python -m bench.treat_table")


if __name__ == "__main__":
    sys.exit(main())
