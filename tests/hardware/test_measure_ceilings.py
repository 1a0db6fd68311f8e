"""Measured ceilings beside the datasheet's and over them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gobrrr.hardware.ceilings import compare, datasheet_of, machine_of
from gobrrr.model.machine import RECORDING_MODES
from gobrrr.model.measured import MeasuredFigure, Measurement, Quantity
from gobrrr.report.layout import Page, plain
from gobrrr.report.machine import lines
from tests.hardware.measured_samples import H100, entry, environment, h100

SHEET = datasheet_of(H100)


def test_measured_ceilings_beat_the_datasheets() -> None:
    machine = machine_of(h100(), SHEET)
    assert machine.matrix_flop_per_s["bfloat16"].value == 729e12
    assert machine.matrix_flop_per_s["bfloat16"].provenance == "measured"
    assert machine.matrix_flop_per_s["float16"].provenance == "datasheet"
    assert machine.memory_bytes_per_s is not None
    assert machine.memory_bytes_per_s.value == 3.06e12  # a write alone is no ceiling of a read
    assert machine.cache_bytes_per_s is not None
    assert machine.cache_bytes_per_s.value == 5.5e12  # the last size within the 50 MiB
    assert machine.link_bytes_per_s == SHEET.link_bytes_per_s  # type: ignore[union-attr]
    assert machine.device_name == H100
    assert "2026-01-02" in machine.notes[0]


def test_a_gpus_float32_matmul_is_a_figure_of_its_vector_units() -> None:
    machine = machine_of(h100(), SHEET)
    assert "float32" not in machine.matrix_flop_per_s
    assert machine.vector_flop_per_s["float32"].value == 60e12
    assert machine.matrix_flop_per_s["float64"].value == 54.2e12
    unlisted = machine_of(h100(environment=environment("Some GPU")))
    assert unlisted.vector_flop_per_s["float64"].value == 54.2e12
    assert "float64" not in unlisted.matrix_flop_per_s


def test_a_cpus_matmul_stands_by_itself() -> None:
    measured = Measurement(environment=environment("Some CPU", "cpu"), entries=(entry("matrix", "float32", 2e11),))
    machine = machine_of(measured)
    assert machine.matrix_flop_per_s["float32"].value == 2e11
    assert machine.memory_bytes_per_s is None
    assert machine.vector_flop_per_s == {}


def test_what_was_measured_unsteadily_is_no_ceiling() -> None:
    noisy = h100(entries=(entry("matrix", "bfloat16", 1e12, spread=0.6), entry("memory", "copy", 1e12, "B/s", 0.6)))
    machine = machine_of(noisy, SHEET)
    assert machine.matrix_flop_per_s["bfloat16"].provenance == "datasheet"
    assert machine.memory_bytes_per_s == SHEET.memory_bytes_per_s  # type: ignore[union-attr]
    assert machine.notes[1].endswith("the repeats differ: matrix bfloat16, memory copy")


def test_each_figure_beside_the_datasheets() -> None:
    rows = {(one.group, one.name): one for one in compare(h100(), SHEET)}
    assert 0.73 < (rows["matrix", "bfloat16"].ratio or 0) < 0.75
    assert rows["matrix", "float32"].datasheet == SHEET.vector_flop_per_s["float32"]  # type: ignore[union-attr]
    multiply = rows["vector", "float32 multiply"].datasheet
    assert multiply is not None
    assert multiply.provenance == "derived"
    assert multiply.value == SHEET.vector_flop_per_s["float32"].value / 2  # type: ignore[union-attr]
    assert rows["dispatch", "add"].ratio is None


def test_above_the_datasheet_is_flagged() -> None:
    rows = {one.name: one for one in compare(h100(), SHEET)}
    assert rows["write"].above  # 3.4 over 3.35 TB/s
    assert not rows["read"].above
    assert not any(one.above for one in compare(h100(), None))


def test_what_recording_cost_on_a_gpu_s_host_is_measured_in_every_mode(root: Path):
    """One call of `gobrrr machine` on a GPU: nothing of the profiler was skipped."""
    [stored] = msgspec.json.decode((root / "bench" / "results" / "machine_h200.json").read_bytes())
    measured = msgspec.convert(stored["measured"], Measurement)
    assert measured.environment.kind == "cuda"
    assert [one.what for one in measured.skipped] == ["all-reduce"]
    found = machine_of(measured).observer
    assert found is not None
    assert set(found.modes) == set(RECORDING_MODES)
    assert all(300 < one.op_ns < 5_000 for one in found.modes.values())
    assert measured.duration_s < 60


def test_the_table_and_the_roofline_give_one_figure_for_a_ceiling() -> None:
    """Of a peak whose repeats differ, its best repeat: the bound that diagnoses use."""
    doubtful = MeasuredFigure(group="matrix", name="bfloat16", unit="FLOP/s", at="n = 8192",
                     amount=Quantity(value=500e12, low=400e12, high=700e12, best=729e12, runs=20))  # fmt: skip
    one = h100(entries=(doubtful, *h100().entries[1:]))
    text = plain(lines(one, compare(one, None), machine_of(one), Page()))
    assert "bfloat16, n = 8192" in text
    assert ">= 729 TFLOP/s" in text
    assert "bfloat16 matmul: 729 TFLOP/s" in text
    assert "500 TFLOP/s" not in text
    assert max(map(len, text.splitlines())) <= 80
