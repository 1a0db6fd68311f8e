"""Workloads with a known fault, live on this GPU: regime, findings and step time, beside the same steps timed alone.

    python -m bench.gpu.live_workloads OUT.json [NAME ...]

Each step is timed by itself before and after it is diagnosed: blocks of steps with one wait at the end (`pipelined`)
and single steps with a wait after each (`sync`).
"""

import json
import sys
import time
from pathlib import Path

import msgspec

import gobrrr
from bench.gpu.timed import about, attempted, keep, pipelined_ms, synced_ms, wait
from bench.gpu.workloads import CASES
from gobrrr.report.json import to_json

BLOCKS, STEPS = 5, 10


def timed(step):
    """Milliseconds of a step: block means without waits within, and single steps with a wait after each."""
    for _ in range(3):
        step()
    wait()
    return {
        "pipelined_ms": [pipelined_ms(step, STEPS) for _ in range(BLOCKS)],
        "sync_ms": synced_ms(step, STEPS),
    }


def looked_at(make):
    """One workload's row."""
    made, alone = [], []

    def workload():
        """Made while gobrrr watches, as it is for `gobrrr diagnose FILE.py:NAME`: so a graph's capture is seen."""
        made.append(make("cuda"))
        alone.append(timed(made[0]))
        return gobrrr.Workload(step=made[0])

    began = time.perf_counter()
    found = gobrrr.diagnose(workload)
    seconds = time.perf_counter() - began
    alone.append(timed(made[0]))
    return {
        "alone": alone,
        "seconds": seconds,
        "diagnosis": json.loads(to_json(msgspec.structs.replace(found, timeline=None, kernels=[]))),
        "text": str(found),
        "findings": [
            [finding.code, finding.title, [where.source for where in finding.where]] for finding in found.findings
        ],
    }


def main(out, names):
    report = about("python -m bench.gpu.live_workloads", workloads={})
    for name, (faulty, fixed, regime, what) in CASES.items():
        if names and name not in names:
            continue
        row = report["workloads"][name] = {"regime": regime, "what": what}
        for form, make in (("faulty", faulty), ("fixed", fixed)):
            found = row[form] = attempted(looked_at, make)
            said = found.get("error") or (found["seconds"], found["diagnosis"]["regime"], found["findings"])
            print(name, form, said, flush=True)
        keep(Path(out), report)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
