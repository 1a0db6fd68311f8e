"""The H100's ceilings beside an earlier run's on another card, as the table at the end of docs/lab.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "bench" / "results"
ROWS = (  # of `gobrrr machine`, of the earlier run with its unit, of bench/gpu/clocks.py
    ("memory", "copy", "copy_GBps", 1e9, None),
    ("memory", "scale", "mul_GBps", 1e9, None),
    ("memory", "read", "read_GBps", 1e9, None),
    ("matrix", "float64", "mm_fp64_4096", 1e12, "float64"),
    ("matrix", "float32", "mm_fp32_8192", 1e12, "float32"),
    ("matrix", "tf32", "mm_tf32_4096", 1e12, "tf32"),
    ("matrix", "bfloat16", "mm_bf16_4096", 1e12, "bfloat16"),
    ("matrix", "float16", "mm_fp16_4096", 1e12, "float16"),
    ("matrix", "float8", "mm_fp8", 1e12, "float8"),
    ("launch", "graph replay, device", "graph_kernel_us", 1e-6, None),
)
UNITS = {1e9: "GB/s", 1e12: "TFLOP/s", 1e-6: "us"}
TEXT = """
## The H100's ceilings beside an earlier run

`bench/results/machine_h100.json` (`gobrrr machine --json`) beside `bench/results/h100_article.json`, which was measured
earlier on another H100. *Bursts* and *sustained* are `bench/results/h100_clocks.json` (`{command}`,
{date}): 4096 x 4096 matmuls after a rest, and the last second of six.

| | gobrrr machine | earlier | ratio | bursts | sustained | SM clock, sustained |
| --- | --- | --- | --- | --- | --- | --- |
{rows}

Bytes and launches agree within 4 %. Matrix rates differ by up to {most}, for two reasons that were looked into. A
matmul that keeps an H100 busy meets its power limit of 700 W, and the clock falls from 1980 MHz to what the last
column says: the earlier run's rates lie between bursts and sustained, or at one of them, and `gobrrr machine`
measures in short bursts, as a peak should be. In float8, `gobrrr machine` lets the tensor cores accumulate fast
(`use_fast_accum=True`); the script for the clocks does not, and there bursts give what the earlier run gave.
Python's additions a second are left out: they are another loop on another host.
"""


def _read(name: str) -> Any:
    return json.loads((RESULTS / name).read_bytes())


def text() -> str:
    """The section of docs/lab.md."""
    [machine] = _read("machine_h100.json")
    entries = {(entry["group"], entry["name"]): entry["amount"]["value"] for entry in machine["measured"]["entries"]}
    earlier, clocks = _read("h100_article.json"), _read("h100_clocks.json")
    rows, ratios = [], []
    for group, name, key, unit, rate in ROWS:
        ratio = entries[group, name] / unit / earlier[key]
        ratios.append(abs(ratio - 1))
        clock = clocks["rates"].get(rate)
        cells = [f"{entries[group, name] / unit:.4g} {UNITS[unit]}", f"{earlier[key]:.4g}", f"{ratio:.2f}"]
        cells += [f"{clock[part]['value'] / unit:.4g}" for part in ("burst", "sustained")] if clock else ["", ""]
        cells.append(
            f"{clock['under_load']['sm_mhz']:.0f} MHz at {clock['under_load']['power_w']:.0f} W" if clock else ""
        )
        rows.append(f"| {group}: {name} | " + " | ".join(cells) + " |")
    most = f"{max(ratios):.0%}".replace("%", " %")
    return TEXT.format(command=clocks["command"], date=clocks["date"], rows="\n".join(rows), most=most)
