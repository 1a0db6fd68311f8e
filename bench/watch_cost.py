"""What watching a loop costs outside the watcher's windows: steps of 10 ms, plain and watched, interleaved.

    python -m bench.watch_cost

A watched loop that has seen enough runs the same steps as a plain one; before, in its warm-up, it calls the clock and a
few callbacks. Both are timed in blocks that alternate with plain ones, so that a slow second of the machine hits both.
Writes bench/results/watch_cost.json.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from gobrrr.hardware.measure.device import cpu_name, need_torch
from gobrrr.observe.live.watcher import Options, Watcher

OUT = Path(__file__).parent / "results" / "watch_cost.json"
STEP_S = 0.010
BLOCK, BLOCKS = 20, 30
PROMISED = 0.01


def step() -> None:
    """About 10 ms of Python on this thread, by the clock: no step is longer because it was slower."""
    end = time.perf_counter() + STEP_S
    while time.perf_counter() < end:
        pass


def block(boundary: Callable[[], None] | None) -> float:
    """Seconds of one step, the mean of a block."""
    begin = time.perf_counter()
    for _ in range(BLOCK):
        step()
        if boundary is not None:
            boundary()
    return (time.perf_counter() - begin) / BLOCK


def compared(watcher: Watcher) -> dict[str, float]:
    """Medians of plain and watched blocks in turns, and what the watched ones add as a share of the plain ones."""
    plain, watched = [], []
    for _ in range(BLOCKS):
        plain.append(block(None))
        watched.append(block(watcher.boundary))
    pairs = [(b - a) / a for a, b in zip(plain, watched, strict=True)]
    low, middle, high = statistics.quantiles(pairs, n=4)
    return {"plain_ms": 1e3 * statistics.median(plain), "added": middle, "added_low": low, "added_high": high}


def boundary_ns(watcher: Watcher, calls: int = 10_000) -> float:
    """Nanoseconds of one boundary call."""
    begin = time.perf_counter_ns()
    for _ in range(calls):
        watcher.boundary()
    return (time.perf_counter_ns() - begin) / calls


def main() -> None:
    torch = need_torch()
    waiting = Watcher(options=Options(warmup=10**9, most_warmup=10**9, most_warmup_s=1e9))
    waiting.open()
    rows = {"warm-up": compared(waiting)}
    waiting.close()
    done = Watcher(options=Options(warmup=1, window=2, profiled=1))
    done.open()
    while not done.done:
        done.boundary()
    rows["when enough was seen"] = compared(done)
    report = {
        "command": "python -m bench.watch_cost",
        "device": cpu_name(),
        "torch": torch.__version__,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "step_ms": STEP_S * 1e3,
        "promised": PROMISED,
        "rows": rows,
        "boundary_done_ns": boundary_ns(done),
    }
    OUT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
