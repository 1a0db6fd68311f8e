"""Workloads with a known fault, live on this GPU: regime, findings and step time, beside the same steps timed alone.

    python -m bench.gpu.live_workloads OUT.json [NAME ...]

Each step is timed by itself before and after it is diagnosed: blocks of steps with one wait at the end (`pipelined`)
and single steps with a wait after each (`sync`).
"""

import gc
import json
import sys
import time
import traceback
from datetime import datetime, timezone

import msgspec
import torch

import gobrrr
from bench.gpu.timed import pipelined_ms, synced_ms, wait
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
    rows = {}
    for name, (faulty, fixed, regime, what) in CASES.items():
        if names and name not in names:
            continue
        row = {"regime": regime, "what": what}
        for form, make in (("faulty", faulty), ("fixed", fixed)):
            try:
                row[form] = looked_at(make)
            except Exception as error:  # the others are still worth their minutes
                row[form] = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-3000:]}
            gc.collect()
            torch.cuda.empty_cache()
            found = row[form]
            said = found.get("error") or (found["seconds"], found["diagnosis"]["regime"], found["findings"])
            print(name, form, said, flush=True)
        rows[name] = row
        report = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "command": "python -m bench.gpu.live_workloads",
            "workloads": rows,
        }
        with open(out, "w", encoding="utf-8") as stream:
            json.dump(report, stream, indent=1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
