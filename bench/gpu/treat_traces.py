"""Traces of workloads with some ways applied to them: what a treated step looks like, for the constants of predictions.

    python -m bench.gpu.treat_traces OUT t5_train= t5_train=compile gpt_train=tf32+compile

Each argument is WORKLOAD=WAY+WAY; nothing after the sign is the step as it is. Writes OUT/WORKLOAD.WAY_WAY.json.gz,
three steps each, and OUT/times.json: ms of a step without the profiler, with a wait after each and with one after all.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench.gpu.pairs_measure import trace_steps
from bench.gpu.treatments import KNOWN
from bench.gpu.treatments_one import fitting
from gobrrr.trials.arms import Arm

WARM, TIMED = 8, 15


def wait() -> None:
    """Until the device has done everything."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed(call: Callable[[], Any]) -> dict[str, float]:
    """ms of a step."""
    each = []
    for _ in range(TIMED):
        begin = time.perf_counter()
        call()
        wait()
        each.append((time.perf_counter() - begin) * 1e3)
    begin = time.perf_counter()
    for _ in range(TIMED):
        call()
    wait()
    return {"sync_ms": statistics.median(each), "pipelined_ms": (time.perf_counter() - begin) * 1e3 / TIMED}


def one(name: str, names: list[str], out: Path) -> dict[str, float]:
    """A workload with these ways: timed, then traced."""
    torch._dynamo.reset()
    workload = KNOWN[name].made()
    ways, _ = fitting(workload)
    arm = Arm(workload, [ways[way] for way in names])
    form = "_".join(way.replace(":", "-") for way in names) or "plain"
    with arm.entered() as entered:
        for _ in range(WARM):
            entered.call()
        wait()
        found = timed(entered.call)
        trace_steps(entered.call, out / f"{name}.{form}.json.gz", on_gpu=torch.cuda.is_available())
    arm.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("what", nargs="+", metavar="WORKLOAD=WAY+WAY")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    times: dict[str, dict[str, float]] = {}
    for what in given.what:
        name, _, ways = what.partition("=")
        times[what] = one(name, [way for way in ways.split("+") if way], given.out)
        print(what, times[what], flush=True)
        (given.out / "times.json").write_text(json.dumps(times, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
