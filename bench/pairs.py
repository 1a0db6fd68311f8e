"""Hold the predicted time of the FIXED step, from the FAULTY trace alone, against the measured one.

    python -m bench.pairs            predict every pair, write bench/results/pairs.json and docs/what_if.md
    python -m bench.pairs --check    exit 1 when docs/what_if.md differs from the results

A pair is a step with a fault and the same step without it, both timed without the profiler on an H100, with a trace of
the first. The treatments that the fix consists of are applied to the replayed graph of the faulty trace. The pairs that
the predictor was made with (truth.json) are given apart from the others.
"""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import replace
from typing import Any

from bench import pages
from bench.pages import ROOT
from bench.pair_data import Pair, pairs
from gobrrr.doors import changes
from gobrrr.model.profile import Profile
from gobrrr.observe.trace import read_trace
from gobrrr.units import percent

RESULTS = ROOT / "bench" / "results" / "pairs.json"
PAGE = ROOT / "docs" / "what_if.md"
WITHIN = 0.10
"""A saving, as a share of the step, counts as met within so much of the measured one."""

MOST_ON_NEGATIVE = 0.05
"""No more than this share of the step may be promised where the obvious treatment gives nothing."""

TUNED = ("handed", "labels")
"""The groups that the predictor was made with: its constants for compiled code rest on the labels."""

SEEN = ("further", "second")
"""Predicted once as they came (`FIRST_SIGHT`), after which the kinds that were missed were mended."""

FIRST_SIGHT = ROOT / "bench" / "results" / "pairs_first_sight.json"

MISSES = {
    "bert_base_b32_s512.compile": "the compiler breaks up its attention (a mask as a tensor), which a trace of the "
    "eager step does not show",
    "dit_xl_b8_s256.compile": "the compiled step takes longer than the eager one, for a reason that its trace does not "
    "show",
    "dit_adaln": "the faulty step was measured at 11.8 and at 16 ms, because its host varied",
    "float64_statistics": "the program allows TF32, which its float64 trace does not show: the interval goes from "
    "float32 to TF32",
    "device_bound_graph": "meant as a case without a gain; within the graph the same matrix products take 9 % less "
    "time, which a replay of durations can't predict",
    "remade_blocks": "the host of a checkpointed step is Python between few recorded events: the estimate takes too "
    "much of it for the cost of recording (10.5 ms estimated, 14.0 to 14.5 measured)",
    "written_layers_compile": "the compiler also fuses calls that a matrix product separates; chains end there",
}
"""Why a saving is missed by more than ten points, as far as it was found out."""

TITLES = {
    "handed": "Pairs that were used in development",
    "labels": "Eager and compiled forward passes of public architectures",
    "ddp": "Two ranks (gradients_one_by_one on two NVIDIA H200)",
    "holdout": "Among the held-out steps",
    "further": "Further pairs, predicted once before they were studied",
    "second": "A second set, recorded after the misses of the first were mended",
}


def measure(pair: Pair) -> dict[str, Any]:
    """One pair: what was predicted and what was measured, times in ms, savings as shares of the faulty step."""
    profile = profile_of(pair)
    found = changes.predict(profile, pair.treatments)
    what_if, before = found.what_if, found.diagnosis.unprofiled_wall_ns
    assert what_if is not None
    assert before.value is not None
    faulty, fixed = (sum(times) / 2 for times in (pair.faulty_ms, pair.fixed_ms))
    predicted, measured = what_if.expected_ns / before.value, 1 - fixed / faulty
    return {
        "name": pair.name,
        "group": pair.group,
        "regime": found.diagnosis.regime,
        "treatments": list(pair.treatments),
        "negative": pair.negative,
        "estimate_ms": [before.low / 1e6 if before.low else None, before.value / 1e6,
                        before.high / 1e6 if before.high else None],
        "faulty_ms": list(pair.faulty_ms),
        "predicted_ms": [what_if.low_ns / 1e6, what_if.step_ns / 1e6, what_if.high_ns / 1e6],
        "fixed_ms": list(pair.fixed_ms),
        "predicted_saving": predicted,
        "promised": what_if.saving_ns[0] / before.value,
        "at_most": what_if.saving_ns[1] / before.value,
        "measured_saving": measured,
        "measured_range": [1 - pair.fixed_ms[1] / pair.faulty_ms[0], 1 - pair.fixed_ms[0] / pair.faulty_ms[1]],
        "covered": what_if.low_ns / 1e6 <= pair.fixed_ms[1] and what_if.high_ns / 1e6 >= pair.fixed_ms[0],
        "regime_after": what_if.regime,
    }  # fmt: skip


def profile_of(pair: Pair) -> Profile:
    """The faulty step's trace; with those of its other ranks, where there are some."""
    first = read_trace(str(pair.faulty))
    others = [read_trace(str(path)).ranks[0] for path in pair.other_ranks]
    return replace(first, ranks=(*first.ranks, *others))


def points(row: dict[str, Any]) -> float:
    """By how much the predicted saving misses the middle of the measured range, as a share of the step."""
    return float(row["predicted_saving"] - row["measured_saving"])


def beyond(row: dict[str, Any]) -> float:
    """The same outside the measured range; 0 within it."""
    low, high = row["measured_range"]
    return float(max(row["predicted_saving"] - high, low - row["predicted_saving"], 0.0))


def page(results: dict[str, Any]) -> str:
    """The page in Markdown."""
    rows = results["pairs"]
    lines = [
        "# What a change would give, before making it",
        "",
        f"Made by `{results['command']}` ({results['date']}). For each pair of a step with a fault and without it, the",
        "time of the fixed step is predicted from the faulty step's profiler trace alone: the treatments that the fix",
        "consists of are applied to the trace's graph, the cost of recording is taken out, and the graph is replayed.",
        f"Both steps were timed without the profiler on an {results['device']}; the range of their timings is shown. A",
        "saving is a share of the faulty step: the expected one, with its interval in brackets. A miss is the distance",
        "from the middle of the measured range, in points of the step.",
        "",
    ]
    told = [row for row in rows if row["group"] in TUNED]
    seen = [row for row in rows if row["group"] in SEEN]
    rest = [row for row in rows if row["group"] not in (*TUNED, *SEEN)]
    lines += [f"- used in development: {_summary(told)}"]
    if seen:
        lines += [
            f"- studied since: {_summary(seen)}",
            "- of these the first set, as predicted before it was studied: " + _summary(first_sight("further")),
            f"- the second set, as predicted before it was studied: {_summary(first_sight('second'))}",
        ]
    lines += [f"- not used in development: {_summary(rest)}", ""]
    for group, title in TITLES.items():
        mine = [row for row in rows if row["group"] == group]
        if mine:
            lines += [f"## {title}", "", *_table(mine), "", *_missed(mine)]
    return "\n".join(lines)


def line(results: dict[str, Any]) -> str:
    """The results in two sentences."""
    told = [row for row in results["pairs"] if row["group"] in TUNED]
    rest = [row for row in results["pairs"] if row["group"] not in (*TUNED, *SEEN)]
    return (
        f"From the faulty step's trace alone, on an H100 ({results['date']}, `{results['command']}`): "
        f"{_summary(told)}. Of pairs that were predicted before they were studied: "
        f"{_summary([*first_sight('further'), *rest])}; a second set, recorded after the misses of these were mended: "
        f"{_summary(first_sight('second'))}."
    )


def first_sight(group: str) -> list[dict[str, Any]]:
    """The rows of a group in `SEEN` as they were predicted first."""
    rows: list[dict[str, Any]] = json.loads(FIRST_SIGHT.read_text())["pairs"]
    return [row for row in rows if row["group"] == group]


def _missed(rows: list[dict[str, Any]]) -> list[str]:
    """Why the worst are missed."""
    mine = [row for row in rows if abs(points(row)) > WITHIN and row["name"] in MISSES]
    lines = [f"- {row['name']}: {MISSES[row['name']]}" for row in sorted(mine, key=lambda row: row["name"])]
    return [*lines, ""] if lines else []


def _summary(rows: list[dict[str, Any]]) -> str:
    positive = [row for row in rows if not row["negative"]]
    negative = [row for row in rows if row["negative"]]
    near = sum(beyond(row) <= WITHIN for row in positive)
    middle = sum(abs(points(row)) <= WITHIN for row in positive)
    text = (
        f"{near} of {len(positive)} savings within 10 points of what was measured, {middle} within 10 points of its "
        f"middle (median miss {percent(statistics.median(abs(points(row)) for row in positive))}), "
        f"{sum(row['covered'] for row in positive)} of {len(positive)} intervals meet the measured range"
        if positive
        else "no pair with a saving"
    )
    if negative:
        calm = sum(row["promised"] <= MOST_ON_NEGATIVE for row in negative)
        text += f"; of {len(negative)} where the obvious treatment gives nothing, {calm} are promised at most 5 %"
    return text


def _table(rows: list[dict[str, Any]]) -> list[str]:
    lines = pages.heads(
        "pair | treatments | faulty: estimated, measured (ms) | fixed: predicted | fixed: measured "
        "| saving: predicted, measured | miss"
    )
    for row in sorted(rows, key=lambda row: (row["negative"], row["name"])):
        low, value, high = row["predicted_ms"]
        name = row["name"] + (" (nothing to gain)" if row["negative"] else "")
        lines.append(
            f"| {name} | {', '.join(row['treatments'])} | {row['estimate_ms'][1]:.3g}, {_range(row['faulty_ms'])} | "
            f"{value:.3g} ({low:.3g} to {high:.3g}) | {_range(row['fixed_ms'])} | "
            f"{row['predicted_saving']:.0%} {_interval(row)}, {_shares(row)} | {100 * points(row):+.0f} |"
        )
    return lines


def _interval(row: dict[str, Any]) -> str:
    return f"({row['promised']:.0%} to {row['at_most']:.0%})"


def _shares(row: dict[str, Any]) -> str:
    low, high = (f"{share:.0%}" for share in row["measured_range"])
    return low if low == high else f"{low} to {high}"


def _range(times: list[float]) -> str:
    return f"{times[0]:.3g}" if times[0] == times[1] else f"{times[0]:.3g} to {times[1]:.3g}"


def main() -> int:
    def measure_all() -> dict[str, Any]:
        return {"device": "NVIDIA H100 80GB HBM3", "pairs": [measure(pair) for pair in pairs()]}

    return pages.measured(pages.parser(__doc__).parse_args(), "bench.pairs", PAGE, page, measure_all)


if __name__ == "__main__":
    sys.exit(main())
