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
from pathlib import Path

import torch

from bench.gpu.timed import pipelined_ms, synced_ms, trace_steps, wait
from bench.gpu.treatment_workloads import KNOWN
from bench.gpu.treatments_one import fitting
from gobrrr.trials.arms import Arm

WARM, TIMED = 8, 15


def measured(name: str, names: list[str], out: Path) -> dict[str, float]:
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
        found = {
            "sync_ms": statistics.median(synced_ms(entered.call, TIMED)),
            "pipelined_ms": pipelined_ms(entered.call, TIMED),
        }
        trace_steps(entered.call, out / f"{name}.{form}.json.gz")
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
        times[what] = measured(name, [way for way in ways.split("+") if way], given.out)
        print(what, times[what], flush=True)
        (given.out / "times.json").write_text(json.dumps(times, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
