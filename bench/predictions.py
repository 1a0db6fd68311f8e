"""The static door against the H100: each step of the zoo predicted by shares that its model had no part in.

    python -m bench.predictions        # torch and transformers needed, no GPU; about three minutes

Leave one model out: the shares (bench/fit_efficiency.py) and the dispatch costs (bench/fit_dispatch.py) are fitted to
single operations and to all models but the one that is predicted. Device time is judged by the busy time of a profiled
step, step time by the loop without a profiler. `calibrated`: the ceilings are those that `gobrrr machine` measured on
the card that the labels come from. Writes bench/results/predictions.json, and the spread of whole steps into the stored
table (src/gobrrr/hardware/data/efficiency.json).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from bench import fit_dispatch, fit_efficiency, pages
from bench.zoo_recordings import LABELS, Labelled, labelled
from gobrrr.analysis.pricing.roofline import floor
from gobrrr.cost import price
from gobrrr.doors import prediction
from gobrrr.hardware import efficiency, find
from gobrrr.hardware.cache import decode
from gobrrr.hardware.ceilings import datasheet_of, machine_of
from gobrrr.model.machine import Machine
from gobrrr.model.work import OpCall, Work

TARGET = pages.RESULTS / "predictions.json"
AGAIN, AGAIN_MACHINE = pages.RESULTS / "h100_models_again.json", pages.RESULTS / "machine_h100_again.json"
HANDED = pages.ROOT / "src" / "gobrrr" / "data" / "h100" / "labels.json"


def predicted(steps: Sequence[Labelled], measured: Machine | None) -> list[dict[str, Any]]:
    """A row a step; `measured`: the card's own ceilings, where they are known."""
    stored = efficiency.load()
    rows = []
    for model in dict.fromkeys(step.model for step in steps):
        others = [step for step in labelled() if step.model != model]
        table = msgspec.structs.replace(stored, shares=fit_efficiency.fit(without=model))
        hosts = fit_dispatch.hosts(fit_dispatch.dispatch(fit_dispatch.fit(others)))
        for step in steps:
            if step.model == model:
                rows.append(_row(step, table, hosts, measured))
                _say(rows[-1])
    return rows


def _row(step: Labelled, table: efficiency.Efficiency, hosts: Any, measured: Machine | None) -> dict[str, Any]:
    works = {call.call: price(call.call) for call in step.recording.calls}
    found = prediction.forecast(step.recording, works, find("h100"), table, hosts)
    row = {
        "model": step.model, "mode": step.mode,
        "busy_ns": step.busy_ns, "wall_ns": step.wall_ns, "sync_ns": step.sync_ns, "peak_bytes": step.peak_bytes,
        "device_ns": found.device_ns, "host_ns": found.host_ns, "step_ns": found.step_ns,
        "low_ns": found.low_ns, "high_ns": found.high_ns, "floor_ns": _floor_ns(step, works),
        "predicted_peak_bytes": step.recording.peak_bytes,
    }  # fmt: skip
    if measured is not None:
        row["calibrated_ns"] = prediction.forecast(step.recording, works, measured, table, hosts).device_ns
    return row


def _floor_ns(step: Labelled, works: dict[OpCall, Work]) -> float:
    """The least device time of the step, call by call, on the datasheet's ceilings."""
    floors = {call: floor(work, find("h100")) for call, work in works.items()}
    return sum(found.least_ns for call in step.recording.calls if (found := floors[call.call]) is not None)


def _say(row: dict[str, Any]) -> None:
    device, step = row["device_ns"] / row["busy_ns"], row["step_ns"] / row["wall_ns"]
    print(f"{row['model']:28}{row['mode']:8} device {device:.3f}  step {step:.3f}")


def handed(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same predictions beside the handed labels: [synchronized, pipelined] ms and busy ms of another session."""
    labels = pages.read(HANDED)
    found = []
    for row in rows:
        label = labels.get(row["model"], {})
        if row["mode"] in label:
            wall, busy = label[row["mode"]][1] * 1e6, label[f"{row['mode']}_busy_ms"] * 1e6
            found.append({**row, "wall_ns": wall, "busy_ns": busy})
    return found


def misses(rows: Sequence[dict[str, Any]], predicted_key: str, measured_key: str) -> list[float]:
    """|predicted / measured - 1| of each row."""
    return [abs(row[predicted_key] / row[measured_key] - 1.0) for row in rows]


def card(path: Path) -> Machine:
    """The ceilings that `gobrrr machine --json` measured on a card."""
    measured = decode(msgspec.json.encode(pages.read(path)[0]["measured"]))
    return machine_of(measured, datasheet_of(measured.environment.device_name, measured.environment.memory_bytes))


def main() -> int:
    """Predict every step, write the results and the spread."""
    import torch
    import transformers

    again = AGAIN.exists() and AGAIN_MACHINE.exists()
    rows = predicted(labelled(), card(fit_efficiency.MACHINE))
    second = predicted(labelled(AGAIN), card(AGAIN_MACHINE)) if again else []
    errors = [math.log(row["busy_ns"] / row["device_ns"]) for row in rows]
    spread = math.sqrt(fmean(error**2 for error in errors))
    about = pages.read(LABELS)
    found = {
        "command": "python -m bench.predictions", "date": about["date"], "device": about["device"],
        "torch_there": about["torch"], "transformers_there": about["transformers"],
        "torch_here": torch.__version__, "transformers_here": transformers.__version__,
        "rows": rows, "handed": handed(rows), "again": second,
    }  # fmt: skip
    pages.write(TARGET, found)
    stored = msgspec.structs.replace(efficiency.load(), step_spread=round(spread, 3))
    fit_efficiency.TARGET.write_bytes(msgspec.json.format(msgspec.json.encode(stored), indent=1) + b"\n")
    print(f"device time: mean {fmean(misses(rows, 'device_ns', 'busy_ns')):.3f}, spread {spread:.3f}")
    print(f"step time:   mean {fmean(misses(rows, 'step_ns', 'wall_ns')):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
