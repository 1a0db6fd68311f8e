"""What is damaged: short cuts of the shipped traces, and diagnoses of them."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from gobrrr.doors import changes
from gobrrr.observe.trace import read_trace
from gobrrr.report.json import to_json
from tests.conftest import H100, H100_EXTRA, ROOT
from tests.once import once

Trace = dict[str, Any]

MOST_EVENTS, FEW_EVENTS = 400, 100
"""A cut has no more events of host and device: so short that thousands of them are diagnosed in minutes."""

H200 = ROOT / "tests" / "data" / "h200"
HELD_OUT, PAIRS = H100_EXTRA / "holdout", H100_EXTRA / "pairs"
TRACES = (
    *(H100 / f"{name}.json.gz" for name in (
        "pointwise_chain.faulty", "mlp_tiny.faulty", "gpt_eager_attn.faulty", "gpt_fp32_notf32.faulty",
        "moe_host_loop.faulty", "resnet_slow_loader.faulty", "dit_adaln.faulty", "bert_base_b32_s512.fwd_compiled",
        "resnet50_b64_cl.fwdbwd",
    )),
    *(HELD_OUT / f"{name}.json.gz" for name in (
        "compiled_graphs", "cudnn_lstm", "masked_select_loss", "pinned_loader", "odd_matmuls", "foreach_off",
        "narrow_training_item", "t5_training",
    )),
    *(PAIRS / f"{name}.faulty.json.gz" for name in (
        "checkpointed_layers", "float64_statistics", "expert_loop", "decoder_reduce_overhead",
    )),
    H200 / "small_parameters.cuda_graph.json.gz",
)  # fmt: skip
RANKS = (H100_EXTRA / "ddp_good.rank0.json.gz", H100_EXTRA / "ddp_good.rank1.json.gz")
"""Traces of two ranks that ran together."""


@cache
def packed(path: Path, most: int = MOST_EVENTS) -> bytes:
    """A cut of a trace as JSON: what begins in its first two steps, and the device work that was launched there."""
    if most < MOST_EVENTS:
        return _packed(packed(path), most)
    return once(f"a cut of {path}", lambda: _packed(gzip.decompress(path.read_bytes()), most))


def _packed(data: bytes, most: int) -> bytes:
    whole: Trace = msgspec.json.decode(data)
    return msgspec.json.encode(whole | {"traceEvents": _cut(whole["traceEvents"], most)})


def trace(path: Path, most: int = MOST_EVENTS) -> Trace:
    """The cut, to be changed as one likes."""
    made: Trace = msgspec.json.decode(packed(path, most))
    return made


def _cut(events: list[Trace], most: int) -> list[Trace]:
    timed = [one for one in events if one.get("ph") == "X" and one.get("cat") != "Trace"]
    marks = sorted(
        (one for one in timed if one.get("cat") == "user_annotation" and one["name"].startswith("ProfilerStep")),
        key=lambda one: one["ts"],
    )
    begin = marks[0]["ts"] if marks else min(one["ts"] for one in timed)
    end = marks[2]["ts"] if len(marks) > 2 else float("inf")
    on_device = {"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation"}
    host = [one for one in timed if one.get("cat") not in on_device and begin <= one["ts"] < end]
    host = sorted(host, key=lambda one: one["ts"])[: most * 2 // 3]
    called = {one["args"]["correlation"] for one in host if "correlation" in one.get("args", {})}
    work = [one for one in timed if one.get("cat") in on_device and one.get("args", {}).get("correlation") in called]
    kept = [*host, *work[: most // 3]]
    meta = [one for one in events if one.get("ph") == "M"][:6]
    arrows = [one for one in events if one.get("ph") in ("s", "f") and one.get("id") in called][:40]
    return [*kept, *meta, *arrows]


DIAGNOSED = (0, 1, 5, 9, 18)
"""Of `TRACES`, those whose diagnoses are damaged."""


@cache
def record(index: int) -> bytes:
    """The diagnosis of a cut, as it is saved; every other one with the page's panel."""
    path = TRACES[DIAGNOSED[index % len(DIAGNOSED)]]
    folder = Path(_scratch())
    (folder / "trace.json").write_bytes(packed(path))
    return to_json(changes.diagnose(read_trace(folder / "trace.json"), panel=index % 2 == 0))


@cache
def _scratch() -> str:
    import atexit
    import shutil
    import tempfile

    made = tempfile.mkdtemp(prefix="gobrrr-fuzz-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made
