"""Single ops over sizes on one GPU: device time of each call by the profiler, forward and backward.

    python bench/gpu/op_sweep.py OUT [FAMILY...]   # writes OUT/h100_ops.json
    SMOKE=1 python bench/gpu/op_sweep.py OUT       # on meta tensors: every case is built and run, nothing is timed

Each case: two warm-up calls, then five recorded ones (`torch.profiler`, record_shapes) under a mark; `bench.op_table`
makes the rows; the traces stay in the folder that TRACES names (OUT/traces). A case is "hot" (the same buffers again
and again) or "cold" (a read of 256 MB of something else before each call, so that nothing of it is in the L2 cache).
A case that fails is recorded with its error. "host" is what `host_costs.py` measures.
"""

import os
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench import op_table
from bench.gpu import host_costs, op_cases
from bench.gpu.timed import about, profiler

SMOKE = bool(os.environ.get("SMOKE"))
WARMUP, REPEATS = 2, 5
FLUSH_BYTES = 1 << 28
DEADLINE_S = float(os.environ.get("DEADLINE_S", "270"))


def flush_of(device):
    buffer = torch.ones(FLUSH_BYTES // 4, device=device)
    return lambda: buffer.sum()


def run_case(case, flush):
    """Warm up and record one case; what `list_calls` finds."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = case.tf32
    call = case.make()
    for _ in range(1 if SMOKE else WARMUP):
        call()
    lists = op_table.list_calls(call)
    for _ in range(1 if SMOKE else REPEATS):
        if case.cold:
            flush()
        with torch.profiler.record_function(op_table.MARK + case.name):
            call()
    if not SMOKE:
        torch.cuda.synchronize()
    return lists


def run_family(family, cases, flush, until, folder):
    """(rows, errors, cases that there was no time for) of one family, all within one recording."""
    lists, errors, late = {}, {}, 0
    with profiler(record_shapes=True) as recording:
        for case in cases:
            if time.monotonic() > until:
                late += 1
                continue
            try:
                lists[case.name] = run_case(case, flush)
            except Exception as error:  # recorded: one op that this build lacks must not end the sweep
                errors[case.name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]
    if SMOKE:
        return [], errors, late
    path = folder / f"{family}.json.gz"
    recording.export_chrome_trace(str(path))
    return [row for row in op_table.table_of(path, lists).rows if "case" in row], errors, late


def main():
    out = Path(sys.argv[1])
    traces = Path(os.environ.get("TRACES", out / "traces"))
    traces.mkdir(parents=True, exist_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    device = "meta" if SMOKE else "cuda"
    torch.manual_seed(0)
    begin = time.monotonic()
    flush = flush_of(device)
    host = {} if SMOKE else host_costs.measure()
    found = about("python bench/gpu/op_sweep.py OUT", repeats=REPEATS, host=host, errors={}, late={}, ops={})
    print("host costs", round(time.monotonic() - begin, 1), flush=True)
    for family, cases in op_cases.families(device).items():
        if sys.argv[2:] and family not in sys.argv[2:]:
            continue
        start = time.monotonic()
        try:
            rows, errors, late = run_family(family, cases, flush, begin + DEADLINE_S, traces)
        except Exception as error:  # an unreadable trace costs one family
            rows, errors, late = [], {family: repr(error)[:300]}, 0
        found["ops"][family] = rows
        found["errors"].update(errors)
        if late:
            found["late"][family] = late
        total = sum(row["ns"] * row["calls"] for row in rows) / 1e6
        print(f"{family:12} {len(cases):4} cases {len(rows):5} rows {len(errors):3} errors {late} late "
              f"{total:8.1f} ms on the device {time.monotonic() - start:6.1f} s", flush=True)  # fmt: skip
        (out / "h100_ops.json").write_text(op_table.dumps(found), encoding="utf-8")
    for name, error in found["errors"].items():
        print("  error", name, error)
    print("total s", round(time.monotonic() - begin, 1))


if __name__ == "__main__":
    main()
