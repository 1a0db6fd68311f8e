"""Write docs/prediction.md from bench/results/predictions.json (`python -m bench.predictions`); `--check` compares.

The words of the page are here; every figure comes from the results.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import Any

from bench import pages

RESULTS_FILE, SPEED_FILE = pages.RESULTS / "predictions.json", pages.RESULTS / "static_speed.json"
PAGE = pages.DOCS / "prediction.md"
Row = dict[str, Any]
HOST_BOUND = 0.7


def page(found: dict[str, Any]) -> str:
    """The page."""
    rows = found["rows"]
    parts = [_intro(found), "## How far off\n", _summary(found), "## Every step\n", _table(rows)]
    parts += ["## Against measurements of another session\n", _handed(found["handed"])]
    if found["again"]:
        parts += ["## On another card, with its own ceilings\n", _again(found["again"])]
    parts += ["## Memory\n", _memory(rows), "## How long it takes\n", _speed(), "## What falls short\n", _short(rows)]
    return "\n".join(parts)


def _intro(found: dict[str, Any]) -> str:
    return f"""# Predicting a step without its device

`gobrrr predict file.py:workload --on h100,a100-80gb` runs the step on fake tensors, computes the floor of every
operation, gives each the share of its floor that such operations reach, and simulates host and device. No model is
judged by a fit that saw it: its shares and dispatch costs were fitted to single operations and to the *other* models
(leave one model out).

Measured on an {found["device"]} (torch {found["torch_there"]}, transformers {found["transformers_there"]},
{found["date"]}): `bench/gpu/op_sweep.py` (single operations over sizes), `bench/gpu/labels.py` (whole models).
Predicted on a CPU with torch {found["torch_here"]} and transformers {found["transformers_here"]}.
This page: `{found["command"]}`, then `python -m tools.make_prediction`.

A call's time is `fixed` + max(compute floor / share, memory floor / share), never below the floor. The shares are
stored by operation, variant (layout, alignment, direction) and element type
(`src/gobrrr/hardware/data/efficiency.json`), the host's costs beside them (`dispatch.json`). `--calibrate` takes the
ceilings and the dispatch that `gobrrr machine` measured here.
"""


def line(found: dict[str, Any]) -> str:
    """The summary in one sentence."""
    rows = found["rows"]
    plain, own = (fmean(_misses(rows, key, "busy_ns")) for key in ("device_ns", "calibrated_ns"))
    models = len({row["model"] for row in rows})
    return (
        f"device time is off by {_percent(plain)} on the mean over {len(rows)} steps of {models} models "
        f"({_percent(own)} with the card's own ceilings)."
    )


def _misses(rows: Sequence[Row], predicted: str, measured: str) -> list[float]:
    return [abs(row[predicted] / row[measured] - 1.0) for row in rows]


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _line(name: str, misses: Sequence[float]) -> str:
    within = sum(miss <= 0.15 for miss in misses)
    figures = " | ".join(map(_percent, (fmean(misses), median(misses), max(misses))))
    return f"| {name} | {len(misses)} | {figures} | {within} of {len(misses)} |"


def _summary(found: dict[str, Any]) -> str:
    rows = found["rows"]
    kinds: list[tuple[str, Callable[[Row], bool]]] = [
        ("device time, all", lambda row: True),
        ("device time, forward", lambda row: row["mode"] == "fwd"),
        ("device time, forward + backward", lambda row: row["mode"] != "fwd"),
    ]
    lines = pages.heads("what | steps | mean error | median | largest | within 15 %")
    lines += [
        _line(name, _misses([row for row in rows if wanted(row)], "device_ns", "busy_ns")) for name, wanted in kinds
    ]
    lines.append(_line("the same, calibrated", _misses(rows, "calibrated_ns", "busy_ns")))
    bound = [row for row in rows if row["busy_ns"] >= HOST_BOUND * row["wall_ns"]]
    host = [row for row in rows if row["busy_ns"] < HOST_BOUND * row["wall_ns"]]
    lines.append(_line("step time, device busy for 70 % or more", _misses(bound, "step_ns", "wall_ns")))
    lines.append(_line("step time, host-bound", _misses(host, "step_ns", "wall_ns")))
    inside = sum(row["low_ns"] <= row["wall_ns"] <= row["high_ns"] for row in rows)
    right = sum((row["device_ns"] < HOST_BOUND * row["step_ns"]) == (row in host) for row in rows)
    below = sum(row["device_ns"] < row["floor_ns"] for row in rows)
    return (
        "\n".join(lines)
        + f"""

The interval of the step time covers the measured one in {inside} of {len(rows)} steps; whether host or device is the
bound is right in {right} of {len(rows)}. Device times below the sum of the calls' floors: {below}.
"""
    )


def _table(rows: Sequence[Row]) -> str:
    lines = pages.heads(
        "model | step | device, measured | predicted | ratio | step, measured | predicted (interval) | ratio"
    )
    for row in rows:
        interval = f"{_ms(row['step_ns'])} ({_ms(row['low_ns'])} to {_ms(row['high_ns'])})"
        lines.append(
            f"| {row['model']} | {row['mode']} | {_ms(row['busy_ns'])} | {_ms(row['device_ns'])} | "
            f"{row['device_ns'] / row['busy_ns']:.2f} | {_ms(row['wall_ns'])} | {interval} | "
            f"{row['step_ns'] / row['wall_ns']:.2f} |"
        )
    return (
        "\n".join(lines) + "\n\nTimes in ms. Measured step time: a loop without a profiler and without a synchronize.\n"
    )


def _ms(ns: float) -> str:
    value = ns / 1e6
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _handed(rows: Sequence[Row]) -> str:
    lines = pages.heads("model | step | device, measured | predicted | ratio")
    for row in rows:
        ratio = row["device_ns"] / row["busy_ns"]
        lines.append(
            f"| {row['model']} | {row['mode']} | {_ms(row['busy_ns'])} | {_ms(row['device_ns'])} | {ratio:.2f} |"
        )
    mean = fmean(_misses(rows, "device_ns", "busy_ns"))
    text = f"Mean error {_percent(mean)}. Measured in another session (`src/gobrrr/data/h100/labels.json`)."
    return "\n".join(lines) + f"\n\n{text}\n"


def _again(rows: Sequence[Row]) -> str:
    plain, own = (_misses(rows, key, "busy_ns") for key in ("device_ns", "calibrated_ns"))
    steps = fmean(_misses(rows, "step_ns", "wall_ns"))
    return (
        f"The same {len(rows)} steps of {len({row['model'] for row in rows})} models on a second H100, whose ceilings "
        "`gobrrr machine` measured in the same session (bench/results/machine_h100_again.json): device time "
        f"{_percent(fmean(plain))} off on the mean with the datasheet's ceilings, {_percent(fmean(own))} with its own; "
        f"step time {_percent(steps)}.\n"
    )


def _memory(rows: Sequence[Row]) -> str:
    known = [row for row in rows if row["peak_bytes"]]
    ratios = [row["predicted_peak_bytes"] / row["peak_bytes"] for row in known]
    near = sum(abs(ratio - 1) <= 0.1 for ratio in ratios)
    return (
        f"Peak of the tensors' bytes over `torch.cuda.max_memory_allocated`: median {median(ratios):.2f}, from "
        f"{min(ratios):.2f} to {max(ratios):.2f}; within 10 % in {near} of {len(known)} steps. What libraries take for "
        "workspaces is in the measured figure and not in the predicted one.\n"
    )


def _speed() -> str:
    found = pages.read(SPEED_FILE)
    lines = pages.heads("model | operations | recorded in | predicted in | together")
    for name, row in found["rows"].items():
        times = " | ".join(f"{row[key]:.2f} s" for key in ("record_s", "predict_s", "total_s"))
        lines.append(f"| {name} | {row['calls']:,} | {times} |")
    about = f"torch {found['torch']}, transformers {found['transformers']}, {found['cores']} cores"
    what = f"A training step of {found['tokens']:,} tokens with AdamW on fake tensors"
    return "\n".join(lines) + f"\n\n{what} ({about}, {found['date']}; `{found['command']}`).\n"


def _short(rows: Sequence[Row]) -> str:
    worst = sorted(rows, key=lambda row: -abs(row["device_ns"] / row["busy_ns"] - 1))[:8]
    lines = [
        f"- {row['model']} {row['mode']}: {row['device_ns'] / row['busy_ns']:.2f} times the measured device time"
        for row in worst
    ]
    return (
        "\n".join(lines)
        + """

The stored shares are one card's. On other machines the same shares of their own ceilings are assumed, and the interval
is widened by the error of one efficiency per GPU on other GPUs (17 %, leave-one-GPU-out over twelve GPUs; computed from
the published measurements of arXiv 2407.13853). The host that was measured is slow and shared: the same host-bound step
took up to 1.93 times as long when it was run again, which no model can predict. Compiled steps are not predicted: a
compiled function is run as it is written. Collectives are not simulated.
"""
    )


def main() -> int:
    return pages.main(__doc__, lambda: {PAGE: page(pages.read(RESULTS_FILE))}, "python -m tools.make_prediction")


if __name__ == "__main__":
    sys.exit(main())
