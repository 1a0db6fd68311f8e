"""Fit the stored shares (src/gobrrr/hardware/data/efficiency.json) to what an H100 measured.

    python -m bench.fit_efficiency

Reads bench/results/h100_ops.json (single operations over sizes) and h100_models.json (the operations of whole models).
An entry's time is `fixed` + max(compute floor / share, memory floor / share); the four numbers of each kind of
operation are those with the least absolute error of ln(time), found by coordinate descent. `fit(without=MODEL)` leaves
a model's own operations out: bench/predictions.py judges each model by shares that it had no part in.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from bench import op_table, pages
from gobrrr.analysis.pricing.expected import TimeParts, kind_of, parts_of
from gobrrr.cost import price
from gobrrr.hardware import find
from gobrrr.hardware.efficiency import Efficiency, Share, ShareKey, keys

OPS, MODELS, MACHINE = (pages.RESULTS / name for name in ("h100_ops.json", "h100_models.json", "machine_h100.json"))
TARGET = pages.ROOT / "src" / "gobrrr" / "hardware" / "data" / "efficiency.json"
DATASHEET = "h100"

FEWEST = 6
"""Cases that an entry rests on at least."""
LARGEST_COMPUTE, LARGEST_MEMORY, LARGEST_CACHED = 1.0, 1.0, 4.0
USUAL_COMPUTE, USUAL_MEMORY, PRIOR = 0.6, 0.75, 0.003
STEPS = (0.5, 0.7, 0.85, 0.93, 0.97, 1.03, 1.08, 1.18, 1.4, 2.0)
ROUNDS = 60


@dataclass(frozen=True)
class Point:
    """One measured kind of call: `weight` grows slowly with its time, since long calls decide a step."""

    model: str
    kind: ShareKey
    parts: TimeParts
    ns: float
    kernels: int
    weight: float


@cache
def points() -> tuple[Point, ...]:
    """Every measured kind of call whose work is known."""
    return tuple(point for model, entry in _entries() if (point := _point(model, entry)) is not None)


def _entries() -> Iterable[tuple[str, op_table.Entry]]:
    for rows in pages.read(OPS)["ops"].values():
        yield from (("", entry) for entry in op_table.load(rows))
    for name, workload in pages.read(MODELS)["workloads"].items():
        for mode in workload.values():
            if isinstance(mode, dict):
                yield from ((name, entry) for entry in op_table.load(mode["ops"]))


def _point(model: str, entry: op_table.Entry) -> Point | None:
    work = price(entry.call)
    if not work.known or work.bytes is None or work.link != "memory" or entry.ns <= 0:
        return None
    parts = parts_of(entry.call, work, find(DATASHEET))
    # a memset of a few bytes beside a matrix product is no kernel of its own to the host
    kernels = entry.kernels - (1 if entry.call.copied_bytes is not None and entry.kernels > 1 else 0)
    weight = (entry.ns / 1e3) ** 0.3
    return Point(model, kind_of(entry.call, work), parts, entry.ns, kernels, weight)


def fit(*, without: str | None = None) -> dict[str, Share]:
    """The shares of each kind of operation; `without`: a model whose operations are left out."""
    groups: dict[str, list[Point]] = defaultdict(list)
    for point in points():
        if without is not None and point.model == without:
            continue
        for key in keys(point.kind):
            groups[key].append(point)
    return {key: _share(members) for key, members in groups.items() if len(members) >= FEWEST}


def _share(members: Sequence[Point]) -> Share:
    """The four numbers with the least weighted absolute error of ln(time)."""
    columns = np.array([(*member.parts, member.ns, member.weight) for member in members])
    ns, weight = columns[:, 5], columns[:, 6]
    each = ns / columns[:, 4]
    value = np.array([max(float(np.quantile(each, 0.02)) * 0.8, 1000.0), 0.6, 0.7, 1.0])
    best = _loss(value, columns)
    for _ in range(ROUNDS):
        before = best
        for place in range(4):
            for step in STEPS:
                tried = value.copy()
                tried[place] *= step
                tried = _bounded(tried)
                loss = _loss(tried, columns)
                if loss < best:
                    best, value = loss, tried
        if best >= before - 1e-6:
            break
    error = np.log(ns / _times(value, columns))
    spread = math.sqrt(float(np.average(error**2, weights=weight)))
    kernels = float(np.median([member.kernels / member.parts.repeats for member in members]))
    return Share(
        fixed_ns=round(float(value[0]), 1), compute=round(float(value[1]), 4), memory=round(float(value[2]), 4),
        cached=round(float(value[3]), 4), kernels=round(kernels, 3), spread=round(spread, 3), points=len(members),
    )  # fmt: skip


def _bounded(value: NDArray[np.float64]) -> NDArray[np.float64]:
    low = np.array([500.0, 0.01, 0.02, 0.02])
    high = np.array([1e5, LARGEST_COMPUTE, LARGEST_MEMORY, LARGEST_CACHED])
    return np.clip(value, low, high)


def _times(value: NDArray[np.float64], columns: NDArray[np.float64]) -> NDArray[np.float64]:
    fixed, compute, memory, cached = value
    matrix, vector, moved, inside, repeats = columns[:, :5].T
    reached = memory + (cached - memory) * inside
    result: NDArray[np.float64] = fixed * repeats + np.maximum(np.maximum(matrix, vector) / compute, moved / reached)
    return result


def _loss(value: NDArray[np.float64], columns: NDArray[np.float64]) -> float:
    error = np.abs(np.log(columns[:, 5] / _times(value, columns)))
    # what no case decides stays near the usual
    prior = np.abs(np.log([value[1] / USUAL_COMPUTE, value[2] / USUAL_MEMORY, value[3] / (1.2 * value[2])])).sum()
    return float(np.average(error, weights=columns[:, 6]) + PRIOR * prior)


def measured_over_datasheet() -> dict[str, float]:
    """What the card's own benchmark (gobrrr machine) reaches of its datasheet, by ceiling."""
    from gobrrr.hardware.cache import decode
    from gobrrr.hardware.ceilings import datasheet_of, machine_of

    measured = decode(msgspec.json.encode(pages.read(MACHINE)[0]["measured"]))
    sheet = find(DATASHEET)
    machine = machine_of(measured, datasheet_of(measured.environment.device_name, measured.environment.memory_bytes))
    ratios = {
        key: ceiling.value / sheet.matrix_flop_per_s[key].value
        for key, ceiling in machine.matrix_flop_per_s.items()
        if ceiling.provenance == "measured" and key in sheet.matrix_flop_per_s
    }
    if machine.memory_bytes_per_s is not None and sheet.memory_bytes_per_s is not None:
        ratios["memory"] = machine.memory_bytes_per_s.value / sheet.memory_bytes_per_s.value
    return {key: round(value, 4) for key, value in sorted(ratios.items())}


def table(shares: dict[str, Share], *, step_spread: float) -> Efficiency:
    """The stored record."""
    about = pages.read(OPS)
    return Efficiency(
        device=about["device"], datasheet=find(DATASHEET).name, date=about["date"], torch=about["torch"],
        command="python -m bench.fit_efficiency", least_ns=float(min(point.ns for point in points())),
        measured_over_datasheet=measured_over_datasheet(), shares=dict(sorted(shares.items())),
        step_spread=step_spread,
    )  # fmt: skip


def main() -> int:
    """Write the stored table; the spread of whole steps is kept until bench/predictions.py measures it anew."""
    before = pages.read(TARGET) if TARGET.exists() else {}
    found = table(fit(), step_spread=before.get("step_spread", 0.15))
    TARGET.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    print(f"{len(found.shares)} entries from {len(points())} kinds of calls")
    return 0


if __name__ == "__main__":
    sys.exit(main())
