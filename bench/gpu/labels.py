"""Step times of the zoo's workloads (`bench.models`) on one GPU, eager, with the table of each step's calls.

    python bench/gpu/labels.py OUT [NAME...]             # writes OUT/h100_models.json
    SMOKE=1 python bench/gpu/labels.py OUT [NAME...]     # tiny, on the CPU: tries the script

For every workload and mode: `sync_ms` (a synchronize after each step) and `pipelined_ms` (none between), without the
profiler; `busy_ms` and `kernels` of one profiled step, busy by set arithmetic; `ops`, its table (`bench.op_table`);
`peak_bytes` that the allocator held at most in a step. The traces stay in the folder that TRACES names (OUT/traces). A
workload that fails is recorded with its error.
"""

import os
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench import op_table
from bench.gpu.timed import about, attempted, pipelined_ms, profiler, quartiles, synced_ms, wait
from bench.models import ZOO

SMOKE = bool(os.environ.get("SMOKE"))
DEVICE = "cpu" if SMOKE else "cuda"
WARMUP, STEPS, ROUNDS = (1, 2, 2) if SMOKE else (4, 15, 5)
DEADLINE_S = float(os.environ.get("DEADLINE_S", "330"))


def timed(step):
    """(a step with a synchronize after it, a step among many without one), in ms."""
    alone = synced_ms(step, STEPS)
    return quartiles(alone), quartiles([pipelined_ms(step, STEPS // 2) for _ in range(ROUNDS)])


def profiled(step, path):
    """The table of one step, whose trace is left at `path`."""
    with profiler(record_shapes=True) as recording:
        step()
        wait()
    recording.export_chrome_trace(str(path))
    return op_table.table_of(path, {None: op_table.list_calls(step)})


def measure(recipe, mode, path):
    work = recipe(DEVICE, tiny=SMOKE)
    step = work.step(mode)
    for _ in range(WARMUP):
        step()
    wait()
    if not SMOKE:
        torch.cuda.reset_peak_memory_stats()
    alone, among = timed(step)
    peak = None if SMOKE else torch.cuda.max_memory_allocated()
    table = profiled(step, path)
    return {
        "sync_ms": alone, "pipelined_ms": among, "busy_ms": round(table.busy_ns / 1e6, 4), "kernels": table.kernels,
        "peak_bytes": peak, "ops": table.rows,
    }  # fmt: skip


def main():
    out = Path(sys.argv[1])
    traces = Path(os.environ.get("TRACES", out / "traces"))
    traces.mkdir(parents=True, exist_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    chosen = sys.argv[2:] or list(ZOO)
    begin = time.monotonic()
    import transformers

    versions = {"transformers": transformers.__version__}
    found = about("python bench/gpu/labels.py OUT", **versions, errors={}, workloads={})
    for name in chosen:
        recipe = ZOO[name]
        entry = {"policy": recipe.policy}
        for mode in recipe.modes:
            if time.monotonic() - begin > DEADLINE_S:
                found["errors"][f"{name}.{mode}"] = "no time left"
                continue
            start = time.monotonic()
            got = attempted(measure, recipe, mode, traces / f"{name}.{mode}.json.gz")
            if "error" in got:
                found["errors"][f"{name}.{mode}"] = got["error"]
                print(name, mode, "FAILED", got["trace"][-900:], flush=True)
                continue
            entry[mode] = got
            print(f"{name:26} {mode:6} sync {got['sync_ms']['median']:9.3f} pipelined "
                  f"{got['pipelined_ms']['median']:9.3f} busy {got['busy_ms']:9.3f} kernels {got['kernels']:5} "
                  f"rows {len(got['ops']):4} took {time.monotonic() - start:5.1f} s", flush=True)  # fmt: skip
        found["workloads"][name] = entry
        (out / "h100_models.json").write_text(op_table.dumps(found), encoding="utf-8")
    print("total s", round(time.monotonic() - begin, 1))


if __name__ == "__main__":
    main()
