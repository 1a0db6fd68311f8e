"""Pairs of a faulty and a fixed step: their times without the profiler, and a trace of three steps of each.

    python -m bench.gpu.pairs OUT                       # about six minutes on an H100
    python -m bench.gpu.pairs OUT --only NAME,NAME
    python -m bench.gpu.pairs OUT --device cpu --tiny   # tries the script
    python -m bench.gpu.pairs --list                    # what there is
    python -m bench.gpu.pairs OUT --second              # the second set alone (pairs_second); the first without it

They hold the predicted time of the fixed step, from the faulty step's trace alone, against the measured one. Writes
OUT/pairs.json after each pair, and OUT/traces/NAME.FORM.json.gz (of several ranks NAME.FORM.rankN.json.gz). Both forms
live in one process and are timed in turns, before and after their traces: `sync_ms` with a synchronize after each step
(median and quartiles), `pipelined_ms` with one after all. `fixed_work` says what a fixed step does, in faulty steps.
All weights are random; nothing is downloaded. A pair that fails is recorded with its error, one that can't run here
with the reason. The pair of two ranks runs where there are two GPUs, and on a CPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch

from bench.gpu import (
    pairs_compute,
    pairs_memory,
    pairs_nothing,
    pairs_overhead,
    pairs_ranks,
    pairs_second,
    pairs_supply,
)
from bench.gpu.pairs_form import Recipe, Setting
from bench.gpu.pairs_measure import COMPILED_WARMUP, FORMS, WARMUP, made, measured
from bench.gpu.timed import about, attempted, keep

SOURCES = (pairs_compute, pairs_memory, pairs_overhead, pairs_supply, pairs_nothing, pairs_ranks)
SECOND = tuple(sorted(pairs_second.RECIPES, key=lambda recipe: recipe.compiles))
RECIPES: tuple[Recipe, ...] = tuple(
    # those that compile last: a run that is cut short loses the fewest
    sorted((recipe for source in SOURCES for recipe in source.RECIPES), key=lambda recipe: recipe.compiles)
)
DEADLINE_S = 450.0
"""No pair is begun later than this after the start."""

LARGEST_TRACE_BYTES = 250_000
"""A trace over it is pointed out: the repository keeps all of them."""


def unable(recipe: Recipe, setting: Setting) -> str | None:
    """Why a pair can't be measured here; None where it can."""
    if recipe.needs_gpu and setting.device != "cuda":
        return "needs a GPU: CUDA graphs, streams or pinned memory"
    if recipe.ranks > 1 and setting.device == "cuda" and torch.cuda.device_count() < recipe.ranks:
        return f"needs {recipe.ranks} GPUs, there is {torch.cuda.device_count()}"
    return None


def measure(recipe: Recipe, setting: Setting, traces: Path) -> dict[str, Any]:
    """Both forms of a pair."""
    if recipe.ranks > 1:
        return pairs_ranks.measured_ranks(recipe, setting, traces)
    torch.set_float32_matmul_precision("highest")
    torch._dynamo.reset()
    makers = dict(zip(FORMS, (recipe.faulty, recipe.fixed), strict=True))
    lead = min(recipe.lead, 6) if setting.tiny else recipe.lead
    bench = made(setting, makers, warmup=COMPILED_WARMUP if recipe.compiles else WARMUP, lead=lead)
    return {"steps": bench.many, **measured(bench, lambda form: traces / f"{recipe.name}.{form}.json.gz")}


def entry_of(recipe: Recipe, setting: Setting, traces: Path, late: bool) -> dict[str, Any]:
    """The pair's entry: what it stands for, and what was measured, or why not."""
    entry: dict[str, Any] = {
        "what": recipe.what, "regime": recipe.regime, "codes": recipe.codes, "treatments": recipe.treatments,
        "negative": recipe.negative, "fixed_work": recipe.fixed_work,
    }  # fmt: skip
    reason = unable(recipe, setting) or ("no time left" if late else None)
    if reason is not None:
        return entry | {"skipped": reason}
    begin = time.monotonic()
    entry |= attempted(measure, recipe, setting, traces)
    return entry | {"seconds": round(time.monotonic() - begin, 1)}


def told(name: str, entry: dict[str, Any]) -> str:
    """The progress line of a pair."""
    problem = entry.get("skipped") or entry.get("error")
    if problem:
        return f"{name:26} {'skipped' if 'skipped' in entry else 'FAILED'}: {problem}"
    parts = []
    for form in FORMS:
        timed = entry[form].get("ranks", [entry[form]])[0]
        large = " LARGE" if timed["trace_bytes"] > LARGEST_TRACE_BYTES else ""
        again = timed["again"]
        parts.append(
            f"{form} sync {timed['sync_ms']:8.3f} {again['sync_ms']:8.3f} pipelined {timed['pipelined_ms']:8.3f} "
            f"{again['pipelined_ms']:8.3f} ms, trace {timed['trace_bytes'] / 1e3:.0f} KB{large}"
        )
    return f"{name:26} {' | '.join(parts)} | {entry['seconds']} s"


def _names(recipes: tuple[Recipe, ...]) -> list[str]:
    return [recipe.name for recipe in recipes]


def run(out: Path, setting: Setting, chosen: list[str], deadline_s: float) -> dict[str, Any]:
    """Measure the chosen pairs; the record grows on disk with each of them."""
    traces = out / "traces"
    traces.mkdir(parents=True, exist_ok=True)
    command = "python -m bench.gpu.pairs OUT" + (" --second" if set(chosen) & set(_names(SECOND)) else "")
    devices = torch.cuda.device_count() if setting.device == "cuda" else 0
    report = about(command, devices=devices, tiny=setting.tiny, pairs={})
    begin = time.monotonic()
    for recipe in (*RECIPES, *SECOND):
        if recipe.name not in chosen:
            continue
        entry = entry_of(recipe, setting, traces, time.monotonic() - begin > deadline_s)
        report["pairs"][recipe.name] = entry
        print(told(recipe.name, entry), flush=True)
        keep(out / "pairs.json", report)
    print(f"total {time.monotonic() - begin:.0f} s")
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--only", default="", help="names, with commas between them")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--tiny", action="store_true", help="sizes that a CPU does in a moment")
    parser.add_argument("--deadline-s", type=float, default=DEADLINE_S, help="no pair is begun later than this")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--second", action="store_true", help="the second set")
    given = parser.parse_args()
    if given.list:
        for recipe in (*RECIPES, *SECOND):
            sign = " (negative)" if recipe.negative else ""
            codes, treatments = ",".join(recipe.codes), ", ".join(recipe.treatments)
            print(f"{recipe.name:26} {recipe.regime:14} {codes:8} {treatments}{sign}: {recipe.what}")
        return 0
    if given.out is None:
        parser.error("OUT is missing")
    names, second = _names(RECIPES), _names(SECOND)
    chosen = [name for name in given.only.split(",") if name] or (second if given.second else names)
    unknown = sorted(set(chosen) - set(names) - set(second))
    if unknown:
        parser.error(f"no such pair: {', '.join(unknown)}")
    report = run(given.out, Setting(given.device, given.tiny), chosen, given.deadline_s)
    return 1 if any("error" in entry for entry in report["pairs"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
