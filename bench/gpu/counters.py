"""Hardware counters of single operations: DRAM and L2 bytes, tensor-core operations, from Nsight Compute.

    python bench/gpu/counters.py OUT.json              profile every case under ncu (a CUDA card, ncu on the PATH)
    python bench/gpu/counters.py OUT.json mm. conv     only the cases whose names start so
    python bench/gpu/counters.py OUT.json --held-out   only the cases held out, added to what OUT.json has
    python bench/gpu/counters.py --dry                 run every case once, small, on the CPU

Two runs over the same cases: under the PyTorch profiler, for what each op is called with and the kernels that it
launches; then under ncu, each kernel once from an emptied cache (ncu's default), at the clocks as they are. Inputs are
random; a case's set-up and warm-up lie outside of the profiled range. bench/counters.py reads the result.
"""

import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback

import torch
from counter_cases import CASES, Maker
from counter_held_out import HELD_OUT

METRICS = [
    "dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_bytes.sum", "gpu__time_duration.sum",
    "lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_ltcfabric.sum",
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum",
]  # fmt: skip
MATRIX_METRIC = re.compile(r"sm__ops_path_tensor_src_(bf16|fp16|tf32|fp8|int8|fp64)\w*")
NAME_LENGTH = 400
MARK = "spin_kernel"  # torch.cuda._sleep: launched before each case in the profiled run


def prepared(name, maker):
    """The case's call, warmed up."""
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = True
    call = CASES[name][0](maker)
    for _ in range(2):
        call()
    return call


def each(names, maker, do):
    """`do(name, call)` for every case; what a failed one said."""
    failed = {}
    for name in names:
        started = time.perf_counter()
        try:
            do(name, prepared(name, maker))
        except Exception as error:  # one case must not stop the others
            traceback.print_exc(limit=3)
            failed[name] = f"{type(error).__name__}: {error}"[:300]
        if maker.device == "cuda":
            torch.cuda.empty_cache()
        print(f"{name}: {time.perf_counter() - started:.2f} s{' FAILED' if name in failed else ''}", flush=True)
    return failed


def outermost(event, ops):
    """The outermost aten or Triton op around an op event, on its thread."""
    around = [
        one
        for one in ops
        if one["tid"] == event["tid"]
        and one["ts"] <= event["ts"]
        and one["ts"] + one["dur"] >= event["ts"] + event["dur"]
    ]
    return min(around, key=lambda event: (event["ts"], -event["dur"]))


def recorded(trace):
    """A trace's ops with what they were called with and the kernels that each launched, in the kernels' order."""
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    ops = [
        event
        for event in events
        if event.get("cat") == "cpu_op" and event["name"].startswith(("aten::", "triton_", "extern_"))
    ]
    by_id = {event["args"]["External id"]: event for event in ops if "External id" in event.get("args", {})}
    work = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    found = []
    for kernel in sorted(work, key=lambda event: event["ts"]):
        cause = by_id.get(kernel["args"].get("External id"))
        top = outermost(cause, ops) if cause else {"name": "", "ts": None, "args": {}}
        if not found or found[-1]["ts"] != top["ts"]:
            given = {
                key: top["args"].get(key) for key in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
            }
            found.append({"name": top["name"], "ts": top["ts"], "inputs": given, "kernels": []})
        name = kernel["name"][:NAME_LENGTH]
        found[-1]["kernels"].append({"name": name, "kind": kernel["cat"], "warm_ns": round(kernel["dur"] * 1000)})
    for entry in found:
        del entry["ts"]
    return found


def profile(call, device, path):
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds, record_shapes=True) as profiler:
        call()
        if device == "cuda":
            torch.cuda.synchronize()
    profiler.export_chrome_trace(path)
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def record(out, names):
    """First run: the ops of every case, under the PyTorch profiler."""
    found, trace = {}, os.path.join(tempfile.mkdtemp(), "trace.json")
    profile(lambda: torch.ones(1, device="cuda"), "cuda", trace)  # the profiler's own start

    def one(name, call):
        found[name] = recorded(profile(call, "cuda", trace))

    failed = each(names, Maker("cuda", False), one)
    props = torch.cuda.get_device_properties(0)
    device = {"name": props.name, "processors": props.multi_processor_count, "cache_bytes": props.L2_cache_size}
    with open(out, "w", encoding="utf-8") as file:
        json.dump({"cases": found, "failed": failed, "device": device}, file)


def replay(order, names):
    """Second run, inside ncu: a mark and the case's call, in the profiled range. Writes the order of the marks."""
    runtime, marked = torch.cuda.cudart(), []

    def one(name, call):
        torch.cuda.synchronize()
        marked.append(name)
        with open(order, "w", encoding="utf-8") as file:
            json.dump(marked, file)
        runtime.cudaProfilerStart()
        torch.cuda._sleep(100)
        call()
        torch.cuda.synchronize()
        runtime.cudaProfilerStop()

    each(names, Maker("cuda", False), one)


def metrics():
    """The wanted metrics that this card and this ncu have."""
    listing = subprocess.run(["ncu", "--query-metrics"], capture_output=True, text=True, check=True).stdout
    known = {line.split()[0] for line in listing.splitlines() if line.strip()}
    wanted = [metric for metric in METRICS if metric.partition(".")[0] in known]
    tensor = sorted(metric for metric in known if MATRIX_METRIC.fullmatch(metric) and "sparsity" not in metric)
    return wanted + [f"{metric}.sum" for metric in tensor]


def counted(path):
    """ncu's CSV as kernels in order: name, grid, block, counters."""
    with open(path, encoding="utf-8") as file:
        rows = csv.DictReader(line for line in file if line.startswith('"'))
        kernels = {}
        for row in rows:
            new = {"name": row["Kernel Name"][:NAME_LENGTH], "grid": row["Grid Size"], "block": row["Block Size"]}
            entry = kernels.setdefault(int(row["ID"]), {**new, "counters": {}})
            value = row["Metric Value"].replace(",", "")
            if value.replace(".", "", 1).isdecimal():
                entry["counters"][row["Metric Name"]] = float(value)
    return [kernels[key] for key in sorted(kernels)]


def joined(records, kernels, order):
    """Each case's record with the counters of its kernels. `joined` false: the two runs launched different kernels."""
    parts = []
    for kernel in kernels:
        if MARK in kernel["name"]:
            parts.append([])
        else:
            parts[-1].append(kernel)
    cases = []
    for name, measured in zip(order, parts, strict=False):
        ops = records["cases"][name]
        mine = [kernel for entry in ops for kernel in entry["kernels"] if kernel["kind"] == "kernel"]
        fits = len(mine) == len(measured)
        for kernel, counts in zip(mine, measured, strict=False):
            shown = {key: int(value) for key, value in counts["counters"].items() if value or "dram" in key}
            kernel.update(grid=counts["grid"], block=counts["block"], counters=shown)
        cases.append({"name": name, "mode": CASES[name][1], "held_out": name in HELD_OUT, "joined": fits, "ops": ops})
    return cases


def drive(out, names):
    work = tempfile.mkdtemp()
    records, order, log = (os.path.join(work, name) for name in ("records.json", "order.json", "ncu.csv"))
    own = [sys.executable, os.path.abspath(__file__)]
    started = time.perf_counter()
    subprocess.run([*own, "--record", records, *names], check=True)
    print(f"recorded in {time.perf_counter() - started:.0f} s", flush=True)
    with open(records, encoding="utf-8") as file:
        first = json.load(file)
    chosen = metrics()
    command = ["ncu", "--csv", "--profile-from-start", "off", "--clock-control", "none", "--target-processes",
               "application-only", "--metrics", ",".join(chosen), "--log-file", log]  # fmt: skip
    inner = [*own, "--replay", order, *first["cases"]]
    subprocess.run([*command, *inner], env={**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}, check=False)
    print(f"profiled after {time.perf_counter() - started:.0f} s", flush=True)
    with open(order, encoding="utf-8") as file:
        marked = json.load(file)
    result = {
        "command": "python bench/gpu/counters.py OUT.json",
        "date": time.strftime("%Y-%m-%d"),
        "device": first["device"],
        "torch": torch.__version__,
        "ncu": subprocess.run(["ncu", "--version"], capture_output=True, text=True).stdout.strip().splitlines()[-1],
        "metrics": chosen,
        "failed": first["failed"],
        "cases": joined(first, counted(log), marked),
    }
    if os.path.exists(out):
        with open(out, encoding="utf-8") as file:
            had = json.load(file)
        new = {case["name"] for case in result["cases"]}
        result["cases"] = [case for case in had["cases"] if case["name"] not in new] + result["cases"]
        result["failed"] = {**had["failed"], **result["failed"]}
    with open(out, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=0)
        file.write("\n")


def main(arguments):
    if arguments[:1] == ["--dry"]:
        wanted = [
            name for name, (_, _, cuda) in CASES.items() if not cuda and name.startswith(tuple(arguments[1:]) or "")
        ]
        path = os.path.join(tempfile.mkdtemp(), "trace.json")
        failed = each(wanted, Maker("cpu", True), lambda _, call: recorded(profile(call, "cpu", path)))
        print(f"{len(CASES)} cases, {len(wanted)} run, {len(failed)} failed: {failed}")
        return bool(failed)
    first = arguments[0]
    if first in ("--record", "--replay"):
        (record if first == "--record" else replay)(arguments[1], arguments[2:])
    else:
        wanted = HELD_OUT if arguments[1:] == ["--held-out"] else CASES
        starts = () if wanted is HELD_OUT else tuple(arguments[1:])
        drive(first, [name for name in CASES if name in wanted and name.startswith(starts or "")])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
