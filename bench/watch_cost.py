"""What watching a loop costs outside its windows: a call between two steps, in warm-up and when enough was seen.

    python -m bench.watch_cost

The median of many blocks of calls, and what share of a step of 10 ms that is. Writes bench/results/watch_cost.json.
"""

from __future__ import annotations

import json
import statistics
import time

from bench import pages
from gobrrr.hardware.measure.device import cpu_name, need_torch
from gobrrr.observe.live.options import WatchOptions
from gobrrr.observe.live.watcher import Watcher

OUT = pages.RESULTS / "watch_cost.json"
STEP_MS = 10.0
PROMISED = 0.01
CALLS, BLOCKS = 200, 50


def boundary_ns(watcher: Watcher) -> float:
    """Nanoseconds of one boundary call: the median of blocks."""

    def block() -> float:
        begin = time.perf_counter_ns()
        for _ in range(CALLS):
            watcher.boundary()
        return (time.perf_counter_ns() - begin) / CALLS

    return statistics.median(block() for _ in range(BLOCKS))


def main() -> None:
    torch = need_torch()
    waiting = Watcher(options=WatchOptions(warmup=10**9, most_warmup=10**9, most_warmup_s=1e9))
    waiting.open()
    found = {"in warm-up": boundary_ns(waiting)}
    waiting.close()
    done = Watcher(options=WatchOptions(warmup=1, window=2, profiled=1))
    done.open()
    while not done.done:
        done.boundary()
    found["when enough was seen"] = boundary_ns(done)
    report = {
        "command": "python -m bench.watch_cost", "device": cpu_name(), "torch": torch.__version__,
        "date": pages.now(), "step_ms": STEP_MS, "promised": PROMISED, "boundary_ns": found,
    }  # fmt: skip
    pages.write(OUT, report)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
