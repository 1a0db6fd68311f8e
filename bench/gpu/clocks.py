"""How a matmul's rate depends on how long it has run: short bursts after a rest, and the end of a long run.

    python bench/gpu/clocks.py OUT.json

For each dtype, n x n matmuls of random numbers (n = 4096): the median rate of bursts of 20 calls with rests of half a
second between them, the rate of the last second of SUSTAINED_S seconds, and the SM clock (MHz) and power (W) that
nvidia-smi reads at the end of each. What a peak at a power limit means rests on this.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench.gpu.timed import about, keep

N = 4096
BURSTS, CALLS, REST_S, SUSTAINED_S = 10, 20, 0.5, 6.0


def meter():
    query = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw,temperature.gpu", "--format=csv,noheader,nounits"]
    clock, power, heat = subprocess.check_output(query, text=True).splitlines()[0].split(",")
    return {"sm_mhz": float(clock), "power_w": float(power), "temperature_c": float(heat)}


def timed(call, calls):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return 2 * N**3 * calls / (start.elapsed_time(end) * 1e-3)


def measure(call):
    timed(call, 3)
    bursts = []
    for _ in range(BURSTS):
        time.sleep(REST_S)
        bursts.append(timed(call, CALLS))
    per_second = max(20, int(statistics.median(bursts) / (2 * N**3)))
    stop = time.perf_counter() + SUSTAINED_S
    rates = []
    while time.perf_counter() < stop:
        rates.append(timed(call, per_second // 4))
    for _ in range(per_second // 2):
        call()
    under_load = meter()
    torch.cuda.synchronize()
    return {
        "burst": {"value": statistics.median(bursts), "low": min(bursts), "high": max(bursts), "runs": BURSTS},
        "sustained": {
            "value": statistics.median(rates[-4:]),
            "low": min(rates[-4:]),
            "high": max(rates[-4:]),
            "runs": 4,
        },
        "under_load": under_load,
    }


def calls():
    for name in ("float64", "float32", "tf32", "bfloat16", "float16", "float8"):
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        if name == "float8":
            a = torch.randn(N, N, device="cuda").to(torch.float8_e4m3fn)
            b = torch.randn(N, N, device="cuda").to(torch.float8_e4m3fn).t()
            scale = torch.tensor(1.0, device="cuda")
            yield name, lambda a=a, b=b, scale=scale: torch._scaled_mm(a, b, scale, scale, out_dtype=torch.bfloat16)
            continue
        dtype = {"tf32": torch.float32}.get(name) or getattr(torch, name)
        a, b = (torch.randn(N, N, device="cuda", dtype=dtype) for _ in range(2))
        yield name, lambda a=a, b=b: a @ b


def main():
    found = about("python bench/gpu/clocks.py OUT.json", n=N, unit="FLOP/s", rates={})
    for name, call in calls():
        found["rates"][name] = measure(call)
        print(name, found["rates"][name], flush=True)
    keep(Path(sys.argv[1]), found)


if __name__ == "__main__":
    main()
