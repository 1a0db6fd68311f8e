"""Achieved FLOP/s: a share of the peak of the types that a step computes in, by hand-made traces of an H100.

Its dense peaks: 989.4 TFLOP/s in bfloat16, 494.7 in TF32, 66.9 on the vector units in float32 (datasheet).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from gobrrr.doors import pipeline
from gobrrr.hardware import find
from gobrrr.model.machine import Machine
from gobrrr.observe.trace import read_trace
from tests.traces import Trace

N = 4096
FLOP = 2 * N**3
H100 = find("h100")


def said(folder: Path, body: Callable[[Trace], None], on: Machine = H100) -> str:
    """The line of evidence about four steps of `body`."""
    trace = Trace()
    for number in range(4):
        with trace.step(number):
            body(trace)
    found = pipeline.diagnose(read_trace(str(trace.write(folder))), on=on)
    [line] = [one for one in found.evidence if one.startswith("achieved")]
    return line


def product(trace: Trace, dtype: str, us: float) -> None:
    trace.op("aten::mm", [(N, N), (N, N)], us, dtype=dtype)


def percent(line: str) -> float:
    """The share in it."""
    return float(line.split(" %")[0].rpartition(" ")[2])


def test_a_float32_step_is_held_against_the_float32_peak(tmp_path: Path) -> None:
    """137 GFLOP in 4.1 ms: half of 66.9 TFLOP/s, and 3 % of a 16-bit peak that it never touches."""
    half = FLOP / (0.5 * H100.vector_flop_per_s["float32"].value) * 1e6
    line = said(tmp_path, lambda trace: product(trace, "float32", half))
    assert percent(line) == pytest.approx(50, abs=1)
    assert line.endswith("of the float32 peak")
    assert "16-bit" not in line


def test_a_bfloat16_step_is_held_against_the_bfloat16_peak(tmp_path: Path) -> None:
    half = FLOP / (0.5 * H100.matrix_flop_per_s["bfloat16"].value) * 1e6
    line = said(tmp_path, lambda trace: product(trace, "bfloat16", half))
    assert percent(line) == pytest.approx(50, abs=1)
    assert line.endswith("of the bfloat16 peak")


def test_two_types_are_held_against_both_peaks(tmp_path: Path) -> None:
    """The time that each would need at its own peak, over the step's: half, when both run at half of their peaks."""

    def body(trace: Trace) -> None:
        for dtype, peak in (
            ("float32", H100.vector_flop_per_s["float32"]),
            ("bfloat16", H100.matrix_flop_per_s["bfloat16"]),
        ):
            product(trace, dtype, FLOP / (0.5 * peak.value) * 1e6)

    line = said(tmp_path, body)
    assert percent(line) == pytest.approx(50, abs=1.5)
    assert line.endswith("of the peaks of its types (float32 vector, bfloat16 matrix)")


def test_a_type_without_a_known_peak_is_a_share_of_none(tmp_path: Path) -> None:
    slow = msgspec.structs.replace(H100, matrix_flop_per_s={"int8": H100.matrix_flop_per_s["int8"]})
    line = said(tmp_path, lambda trace: product(trace, "bfloat16", 1000.0), slow)
    assert line.startswith("achieved at least")  # such a product has no floor either
    assert "the peak of bfloat16 on this device is not known: `gobrrr machine`, run on it, measures it" in line


def test_more_than_the_peak_is_said(tmp_path: Path) -> None:
    slow = FLOP / (2 * H100.vector_flop_per_s["float32"].value) * 1e6
    line = said(tmp_path, lambda trace: product(trace, "float32", slow))
    assert line.endswith("more than the float32 peak that is known of this device")


def test_a_peak_that_is_known_from_below_gives_a_share_from_above(tmp_path: Path) -> None:
    peak = msgspec.structs.replace(H100.vector_flop_per_s["float32"], at_least="it was busy")
    below = msgspec.structs.replace(H100, vector_flop_per_s={"float32": peak})
    line = said(tmp_path, lambda trace: product(trace, "float32", FLOP / (0.5 * peak.value) * 1e6), below)
    assert "at most" in line
    assert line.endswith("of the float32 peak; the device may do more than was measured")
