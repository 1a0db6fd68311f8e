"""Make the pages of what treating gave from what bench/gpu/treat.py measured on GPUs.

    python -m bench.treat_table            writes each page of PAGES from its results
    python -m bench.treat_table --check    exit 1 when a page differs from its results

A saving is a share of the step before the trial, per unit of work. A trial counts as met where the expected saving is
within WITHIN of the measured one.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.treat_misses import EXPLAINED
from gobrrr.units import bytes_, duration, percent

ROOT = Path(__file__).resolve().parent.parent
RESULTS, DOCS = ROOT / "bench" / "results", ROOT / "docs"
PAGES = {"h100_treat": "treat.md", "h200_treat": "treat_h200.md"}
"""The page in docs/ of each file in bench/results/, by their stems."""

WITHIN = 0.10
REACHED = 0.97
"""The share of the best one's speed that treat is to reach, and in less than FEW of the trials."""

FEW = 0.2
AGAINST = "exhaustive"
"""In the place of a way: why treat's result is not the best."""

OTHER = 1.1
"""Times of one step that differ by this factor are pointed out: what a host took is not the same again."""

Row = dict[str, Any]


def trials(results: Row) -> Iterator[tuple[str, Row]]:
    """Every trial with its workload's name."""
    for name, entry in results["workloads"].items():
        for trial in entry.get("treat", {}).get("trials", ()):
            yield name, trial


def measured(trial: Row) -> float | None:
    """The measured saving as a share of the step before; None where nothing was timed, or too little to tell."""
    timing = trial.get("timing")
    if timing is None or trial["verdict"] == "inconclusive":
        return None
    return 1 - float(timing["after_ns"]) / float(trial.get("work", 1.0)) / float(timing["before_ns"])


def predicted(trial: Row) -> tuple[float, float | None, float | None] | None:
    """(expected, low, high) saving as shares of the step before; None where there is no prediction or no time.

    It is the replay's own prediction, before errors of earlier trials widened or narrowed it.
    """
    timing, expected = trial.get("timing"), trial.get("replayed_expected_ns", trial.get("expected_ns"))
    if timing is None or expected is None:
        return None
    # of the step as it was diagnosed, where that is known: the measured saving is of the step as it was timed
    step = float(trial.get("step_ns") or timing["before_ns"])
    low, high = trial.get("replayed_saving_ns") or trial.get("predicted_saving_ns") or (None, None)
    return expected / step, None if low is None else low / step, None if high is None else high / step


def error(trial: Row) -> float | None:
    """Expected less measured saving, as a share of the step; None where one of them is missing."""
    told, got = predicted(trial), measured(trial)
    return None if told is None or got is None else told[0] - got


def covered(trial: Row) -> bool:
    """Whether the measured saving lies in the predicted interval."""
    told, got = predicted(trial), measured(trial)
    if told is None or got is None:
        return False
    _, low, high = told
    return (low is None or low <= got) and (high is None or got <= high)


def page(results: Row, explained: dict[tuple[str, str], str] | None = None) -> str:
    """The page in Markdown. `explained`: why a prediction missed, by workload and way, where it is known."""
    entries = results["workloads"]
    lines = [
        "# What treating a step gave, as predicted and as measured",
        "",
        *_intro(results),
        "",
        *_summary(results),
        "",
        "## Workloads",
        "",
        *_workloads(entries),
        "",
        "## Trials",
        "",
        "Predicted and measured savings are shares of the step before the trial, per unit of work; the interval of the",
        "prediction is in brackets. The error is expected less measured saving, in points. Numerics: the largest error",
        "of the treated step's outputs, losses and gradients against its reference. Memory is the step's peak.",
        "",
        *_trials(results),
        "",
        "## Misses",
        "",
        *_misses(results, explained or {}),
        "",
        "## Treat against every combination",
        "",
        *_exhaustive(entries, explained or {}),
        "",
    ]
    return "\n".join(lines)


def _intro(results: Row) -> list[str]:
    devices = sorted({one["device"] for one in _runs(results)} or {results["device"]})
    dates = sorted({one["date"] for one in _runs(results)} or {results["date"]})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    driver = f", driver {results['driver']}" if results.get("driver") else ""
    return [
        f"Made by `python -m bench.treat_table` from what `{results['command']}` measured ({when}) on {_and(devices)}",
        f"with torch {results['torch']}{driver}. `gobrrr.treat` diagnosed each workload, predicted what each way to",
        "apply a treatment would save, tried them in the order of that on the real step and kept what helped. Both",
        "forms of a trial were timed in turns without the profiler. All weights and data are random. In the first",
        "table the step before is that of the first trial that helped, the one after that of the last one, per unit",
        "of work; how many times as fast it became is what the trials gave one upon the other, multiplied (a host that",
        "is slower for a while is so for both arms of a trial), or what a trial of all at once gave, if there was one.",
        "The last column names the commit whose code predicted and measured (until: it or one shortly before it).",
        *_cache(results),
    ]


def _cache(results: Row) -> list[str]:
    if not any("compiler_cache" in one for one in _runs(results)):
        return []
    return [
        "The compiler's cache on disk had been filled before (`--warm`): at a first time compiling takes longer,",
        "and so does treating.",
    ]


def _runs(results: Row) -> list[Row]:
    parts = (entry.get(key) for entry in results["workloads"].values() for key in ("treat", "exhaustive"))
    return [one for one in parts if one and "device" in one]


def _and(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _summary(results: Row) -> list[str]:
    every = [trial for _, trial in trials(results)]
    errors = [(trial, miss) for trial in every if (miss := error(trial)) is not None]
    verdicts = Counter(trial["verdict"] for trial in every)
    counted = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in verdicts.most_common())
    treated = sum("kept" in one.get("treat", {}) for one in results["workloads"].values())
    lines = [f"- {len(every)} trials over {treated} workloads: {counted or 'none'}"]
    if errors:
        near = sum(abs(miss) <= WITHIN for _, miss in errors)
        middle = statistics.median(abs(miss) for _, miss in errors)
        held = sum(covered(trial) for trial, _ in errors)
        lines.append(
            f"- {near} of {len(errors)} predicted savings ({percent(near / len(errors))}) within {100 * WITHIN:.0f} "
            f"points of the measured one, median error {100 * middle:.1f} points; {held} of {len(errors)} measured "
            "savings in the predicted interval"
        )
    found = [_against(entry) for entry in results["workloads"].values() if "ratio" in entry.get("exhaustive", {})]
    held_against = [one for one in found if "ratio" in one]
    if held_against:
        reached = sum(one["ratio"] >= REACHED for one in held_against)
        both = sum(one["ratio"] >= REACHED and one["share"] < FEW for one in held_against)
        lines.append(
            f"- treat reached {percent(REACHED)} of the best combination's speed on {reached} of {len(held_against)} "
            f"workloads that were tried exhaustively, on {both} of them in under a fifth of the trials"
        )
    lines += [f"- {text}" for text in _left_out(results)]
    idle = {name: one["treat"] for name, one in results["workloads"].items() if not one["gains"] and "treat" in one}
    for name, treated in idle.items():
        kept = ", ".join(treated.get("kept", ()))
        lines.append(f"- {name}, where nothing is to be gained: {f'kept {kept}' if kept else 'nothing was kept'}")
    return lines


def _left_out(results: Row) -> list[str]:
    """What was measured and is not shown, with the reason."""
    whys: Counter[str] = Counter()
    for entry in results["workloads"].values():
        left = entry.get("treat", {}).get("left_out", {})
        whys.update({left["why"]: left["trials"]} if left else {})
    return [f"{count} trials are left out: {why}" for why, count in whys.items()]


def _workloads(entries: dict[str, Row]) -> list[str]:
    lines = [
        "| workload | what it is | bound before, after | step before | after | times as fast | kept | trials | took "
        "| code |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, entry in entries.items():
        treated = entry.get("treat", {})
        if "kept" not in treated:
            lines.append(f"| {name} | {_cell(entry['what'])} | failed: {_cell(treated.get('error', 'not run'))} "
                         "| | | | | | | |")  # fmt: skip
            continue
        before, after, times = step_times(treated)
        faster = f"{times:.2f}" if times else "?"
        bound = ", ".join(one for one in (treated.get("regime"), treated.get("regime_after")) if one)
        lines.append(
            f"| {name} | {_cell(entry['what'])} | {bound} | {duration(before)} | {duration(after)} | {faster} | "
            f"{', '.join(treated['kept']) or 'nothing'} | {len(treated['trials'])} | {treated['seconds']:.0f} s | "
            f"{treated.get('commit', '?')} |"
        )
    return lines


def step_times(treated: Row) -> tuple[float | None, float | None, float | None]:
    """The step as it was and with all that was kept, ns per unit of work, and how many times as fast it became.

    Of the trial of all at once. Where there was none the first is of the first trial that helped, the second of the
    last one, and the third is what they gave one upon the other, multiplied: both arms of a trial were timed in turns,
    and no two trials. As it was diagnosed, and None, where nothing is kept.
    """
    if not treated["kept"]:
        return treated.get("step_before_ns"), None, None
    whole = treated.get("together", {})
    if whole.get("timing") and whole["verdict"] != "inconclusive":
        before, after = whole["timing"]["before_ns"], whole["timing"]["after_ns"] / whole.get("work", 1.0)
        return before, after, before / after
    replaced = {one.get("instead_of") for one in treated["trials"] if one["verdict"] == "helped"}
    kept = [one for one in treated["trials"]
            if one["verdict"] == "helped" and one["way"] in {*treated["kept"], *replaced}]  # fmt: skip
    work = {one["way"]: float(one.get("work", 1.0)) for one in kept if one["way"] in treated["kept"]}
    before, after = kept[0]["timing"]["before_ns"], kept[-1]["timing"]["after_ns"] / math.prod(work.values())
    return before, after, 1 / math.prod(1 - (measured(one) or 0.0) for one in kept)


def _trials(results: Row) -> list[str]:
    lines = [
        "| workload | way | predicted | measured | error | numerics | memory | verdict |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, trial in trials(results):
        told, got, miss = predicted(trial), measured(trial), error(trial)
        lines.append(
            f"| {name} | {_way(trial)} | {_interval(told) if told else 'none'} | {_share(got)} | "
            f"{'' if miss is None else f'{100 * miss:+.0f}'} | {_numerics(trial.get('numerics'))} | {_memory(trial)} | "
            f"{trial['verdict'].replace('_', ' ')}{_why(trial)} |"
        )
    return lines


def _way(trial: Row) -> str:
    """With what was kept before it, and what it was tried in place of."""
    kept = [one for one in trial["kept"] if one != trial.get("instead_of")]
    about = [f"after {', '.join(kept)}"] if kept else []
    about += [f"in place of {trial['instead_of']}"] if trial.get("instead_of") else []
    return f"{trial['way']} ({'; '.join(about)})" if about else str(trial["way"])


def _why(trial: Row) -> str:
    """Said of verdicts that times alone don't explain."""
    return f": {_cell(trial['why'])}" if trial["verdict"] in ("unsafe", "inconclusive") and trial.get("why") else ""


def _interval(told: tuple[float, float | None, float | None]) -> str:
    expected, low, high = told
    if low is None and high is None:
        return _share(expected)
    return f"{_share(expected)} ({_share(low)} to {_share(high)})"


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def _numerics(found: Row | None) -> str:
    if found is None or found.get("ok") is None:
        return "not compared"
    errors = [found[key]["treated"] for key in ("output", "loss", "gradients") if "treated" in found.get(key, {})]
    largest = f" {max(errors):.1e}" if errors else ""
    return f"{'ok' if found['ok'] else 'failed'}{largest}"


def _memory(trial: Row) -> str:
    before, after = trial.get("memory_before_bytes"), trial.get("memory_after_bytes")
    return "" if before is None or after is None else f"{bytes_(before)} to {bytes_(after)}"


def _misses(results: Row, known: dict[tuple[str, str], str]) -> list[str]:
    missed = [(name, one, miss) for name, one in trials(results) if abs(miss := error(one) or 0.0) > WITHIN]
    if not missed:
        return ["None."]
    lines = []
    for name, one, miss in sorted(missed, key=lambda row: -row[2]):
        told, got = predicted(one), measured(one)
        assert told is not None
        inside = "in" if covered(one) else "outside"
        explained = "; ".join(text for text in (_other_step(one), known.get((name, one["way"]), "")) if text)
        lines.append(
            f"- {name}, {_way(one)}: {_share(told[0])} expected, {_share(got)} measured, {inside} the predicted "
            f"interval ({100 * miss:.0f} points){': ' + explained if explained else ''}"
        )
    return lines


def _other_step(trial: Row) -> str:
    """Said where the step as it was took another time in the trial than when it was diagnosed."""
    timing, step, told = trial["timing"], trial.get("step_ns"), predicted(trial)
    if not step or told is None or max(step, timing["before_ns"]) < OTHER * min(step, timing["before_ns"]):
        return ""
    then = duration(timing["before_ns"])
    return (
        f"the step before it took {duration(step)} when it was diagnosed and {then} in turns; "
        f"{duration((1 - told[0]) * step)} were predicted, "
        f"{duration(timing['after_ns'])} measured"
    )


def _against(entry: Row) -> Row:
    """What an exhaustive run says of treat: `ratio`, best's step over treat's, and the `share` of the trials."""
    found, treated = entry.get("exhaustive", {}), entry.get("treat", {})
    count = len(found.get("trials", ()))
    if not count or "kept" not in treated:
        return {}
    if "ratio" not in found:
        found = _by_trials(found, treated)
    if "ratio" not in found:
        return {}
    return {**found, "count": count, "mine": len(treated["trials"]), "share": len(treated["trials"]) / count}


def _by_trials(found: Row, treated: Row) -> Row:
    """The best and what treat kept, each by its own trial: the run ended before the two were timed in turns."""
    helped = [one for one in found["trials"] if one["verdict"] == "helped" and "after_ns" in one]
    kept = [one for one in treated["trials"] if one["verdict"] == "helped" and one["way"] in treated["kept"]]
    if not helped or not kept:
        return {}
    best = min(helped, key=lambda one: float(one["after_ns"]))
    mine = kept[-1]["timing"]["after_ns"] / math.prod(float(one.get("work", 1.0)) for one in kept)
    times = {"treat": mine, "best": best["after_ns"]}
    return {**found, "best": best["ways"], "treat_kept": treated["kept"], "turns_ns": times,
            "ratio": best["after_ns"] / mine}  # fmt: skip


def _exhaustive(entries: dict[str, Row], known: dict[tuple[str, str], str]) -> list[str]:
    rows = {name: one for name, entry in entries.items() if (one := _against(entry))}
    if not rows:
        return ["Not run."]
    lines = [
        "Every way that fits the workload was tried alone, then every combination without a conflict of the best that",
        "helped. The best few of them, what treat kept and the untreated step were timed in turns in one process,",
        "which told the best; where no time of the untreated step is given, the run ended before that, and each",
        "time is of its own trial.",
        "",
        "| workload | untreated | treat | best | best / treat | trials of treat | trials of all | share | treat kept "
        "| best |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, one in rows.items():
        times, untimed = one["turns_ns"], _untimed(one)
        lines.append(
            f"| {name} | {duration(times['untreated']) if 'untreated' in times else ''} | {duration(times['treat'])} | "
            f"{duration(times['best'])} | {one['ratio']:.3f} | {one['mine']} | "
            f"{one['count']}{f' ({untimed})' if untimed else ''} | "
            f"{percent(one['share'])} | {', '.join(one['treat_kept']) or 'nothing'} | "
            f"{', '.join(one['best']) or 'nothing'} |"
        )
    missed = [name for name, one in rows.items() if one["ratio"] < REACHED]
    return (
        lines
        + ["" for _ in missed[:1]]
        + [f"- {name}: {known.get((name, AGAINST), 'not known why')}" for name in missed]
    )


def _untimed(found: Row) -> str:
    """What the time did not suffice for."""
    left, begun = len(found.get("left", ())), found.get("begun")
    parts = [f"{left} left out"] if left else []
    parts += [f"{' + '.join(begun)} not ended"] if begun else []
    return ", ".join(parts)


def _cell(text: str) -> str:
    """Text that can't end its cell."""
    return " ".join(text.replace("|", "/").split())


def main() -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say whether the pages are current")
    check = parser.parse_args().check
    current = True
    for stem, name in PAGES.items():
        results = RESULTS / f"{stem}.json"
        if not results.is_file():
            print(f"{results} is missing: python -m bench.gpu.treat OUT makes it on a GPU machine", file=sys.stderr)
            return 1
        text, path = page(json.loads(results.read_text(encoding="utf-8")), EXPLAINED[stem]), DOCS / name
        if not check:
            path.write_text(text, encoding="utf-8")
            print(f"docs/{name}")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            print(f"docs/{name} differs from bench/results/{stem}.json")
            current = False
    return 0 if current else 1


if __name__ == "__main__":
    sys.exit(main())
