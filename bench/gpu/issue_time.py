"""What the host takes to issue one step to an idle device, for each of the bench's workloads for a GPU.

    python -m bench.gpu.issue_time OUT --seconds 540                     # as far as the time reaches
    python -m bench.gpu.issue_time OUT --seconds 540 --only a,b --again  # these anew
    python -m bench.gpu.issue_time OUT --device cpu --tiny --only a      # tries the script

Goes on where OUT, or else bench/results, stops. Writes OUT/issue_h200.json, named by the device, after each workload,
and OUT/issue_h200.profiles.zip with their profiles. What is measured of a workload, and how, is in
bench/gpu/issue_time_one.py. No treatment is applied here.
"""

from __future__ import annotations

import sys
from typing import Any

from bench.gpu import runs
from bench.gpu.treatment_workloads import ENTRIES


def line(name: str, found: dict[str, Any]) -> str:
    """A workload in one line."""
    if "error" in found:
        return f"{name:28} FAILED: {found['error']}"
    if "issue_ns" not in found:
        return f"{name:28} not measured"
    return (
        f"{name:28} step {found['step_ns'] / 1e6:8.3f} ms, issued in {found['issue_ns'] / 1e6:8.3f} ms, done after "
        f"{found['alone_ns'] / 1e6:8.3f} ms, {found['waits']:.0f} waits; watched {found['watched_ns'] / 1e6:8.3f} ms"
    )


BENCH = runs.Bench(kind="issue", module="bench.gpu.issue_time_one", told=line, each_s=2.5, least_s=20.0, process_s=90.0,
                   starts=1, side_by_side=3, profiles=False)  # fmt: skip
"""One process has the device, the others load torch on cores of their own."""


def main() -> int:
    parser = runs.parser(__doc__, BENCH)
    asked = runs.asked_of(parser, BENCH, ENTRIES, "only")
    entries = [entry for entry in ENTRIES.values() if entry.device == "cuda"]
    if asked.list:
        print("\n".join(f"{entry.name:28} {entry.what}" for entry in entries))
        return 0
    if asked.take:
        return runs.take(asked.out, BENCH.kind)
    run = runs.Run(BENCH, asked)
    runs.begin(run)
    runs.measure(run, asked.only or runs.ordered(entries))
    return 0


if __name__ == "__main__":
    sys.exit(main())
