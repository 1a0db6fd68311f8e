"""Work that a trace says took no time, and sums that are 0: no condition, treatment or table divides by them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gobrrr.analysis.events.ratios import rate, share
from gobrrr.doors import changes, pipeline
from gobrrr.model.soundness import fault
from gobrrr.observe.trace import read_trace
from tests.conftest import H100, H100_EXTRA
from tests.fuzz import bases
from tests.spread import spread
from tests.traces import H100 as DEVICE

SICK = [
    *(H100 / f"{name}.faulty.json.gz" for name in ("gpt_fp32_notf32", "gpt_eager_attn", "mlp_tiny", "dit_adaln")),
    *(H100_EXTRA / "holdout" / f"{name}.json.gz" for name in ("odd_matmuls", "resnet_nchw", "pinned_loader")),
]


def test_a_share_of_nothing_is_not_known() -> None:
    assert (share(3.0, 0.0), share(1.0, 4.0), share(0.0, 2.0)) == (None, 0.25, 0.0)
    assert (rate(3.0, 0.0), rate(3.0, 2.0)) == (None, 1.5e9)


def events(path: Path) -> dict[str, Any]:
    return bases.trace(path)


def no_kernel_takes_time(trace: dict[str, Any]) -> None:
    for one in trace["traceEvents"]:
        if one.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            one["dur"] = 0


def nothing_takes_time(trace: dict[str, Any]) -> None:
    for one in trace["traceEvents"]:
        if "dur" in one:
            one["dur"] = 0


def contractions_take_none(trace: dict[str, Any]) -> None:
    """The calls that C01, C02, C03, C06 and M02 take rates of."""
    owners = {
        one["args"]["External id"] for one in trace["traceEvents"]
        if one.get("cat") == "cpu_op" and any(word in one["name"] for word in ("mm", "conv", "linear"))
        and "External id" in one.get("args", {})
    }  # fmt: skip
    for one in trace["traceEvents"]:
        if one.get("cat") == "kernel" and one.get("args", {}).get("External id") in owners:
            one["dur"] = 0


def no_element(trace: dict[str, Any]) -> None:
    for one in trace["traceEvents"]:
        dims = one.get("args", {}).get("Input Dims")
        if dims:
            one["args"]["Input Dims"] = [[0 for _ in shape] if isinstance(shape, list) else shape for shape in dims]


@pytest.mark.parametrize("damage", [no_kernel_takes_time, nothing_takes_time, contractions_take_none, no_element])
@pytest.mark.parametrize("path", spread(SICK, 2), ids=lambda path: path.name.split(".")[0])
def test_a_diagnosis_all_the_same(tmp_path: Path, path: Path, damage: Callable[[dict[str, Any]], None]) -> None:
    trace = events(path)
    damage(trace)
    (tmp_path / "trace.json").write_text(json.dumps(trace))
    found = changes.diagnose(read_trace(tmp_path / "trace.json"), panel=damage is contractions_take_none)
    assert fault(found) is None
    assert found.not_checked == [one for one in found.not_checked if "could not be checked" not in one.needs]


def test_a_grouped_product_whose_kernel_takes_none(tmp_path: Path) -> None:
    """C03: a contraction on the vector units beside products in 16 bit, of no length."""
    made = []
    for number, (dtype, kernel, us) in enumerate((("c10::BFloat16", "nvjet_tst", 900.0), ("float", "sgemm_x", 0.0))):
        shape = [[4096, 1024], [4096, 1024]]
        made += [
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 100.0 * number, "dur": 50,
             "args": {"External id": number + 1, "Input Dims": [shape[0], shape[1][::-1]], "Input type": [dtype] * 2}},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 100.0 * number + 9,
             "dur": 5, "args": {"correlation": number + 1, "External id": number + 1}},
            {"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 7, "ts": 200.0 + 1000 * number, "dur": us,
             "args": {"device": 0, "stream": 7, "correlation": number + 1, "External id": number + 1}},
        ]  # fmt: skip
    (tmp_path / "t.json").write_text(json.dumps({"deviceProperties": [DEVICE], "traceEvents": made}))
    found = pipeline.diagnose(read_trace(tmp_path / "t.json"))
    assert (found.regime, fault(found)) == ("compute", None)
