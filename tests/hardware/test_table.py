"""The table against arithmetic and literals: dense, sourced, and consistent with its own clocks."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from gobrrr.hardware import find, load
from gobrrr.hardware.table import DatasheetRow, rows
from gobrrr.model.machine import Ceiling, Machine

SPARSE_BF16 = {
    "h100": 1978.9e12,
    "h200": 1978.9e12,
    "b200": 4500e12,
    "a100-80gb": 624e12,
    "l40s": 733e12,
    "4090": 330.3e12,
}


def ceilings(machine: Machine) -> Iterator[Ceiling]:
    yield from machine.matrix_flop_per_s.values()
    yield from machine.vector_flop_per_s.values()
    fields = (
        "memory_bytes_per_s",
        "cache_bytes_per_s",
        "cache_bytes",
        "memory_bytes",
        "link_bytes_per_s",
        "host_bytes_per_s",
    )
    yield from (ceiling for field in fields if (ceiling := getattr(machine, field)) is not None)


def half_precision(machine: Machine) -> float:
    """The dense bf16 peak, or fp16 where the card has no bf16 (V100, T4)."""
    peaks = machine.matrix_flop_per_s
    return peaks.get("bfloat16", peaks["float16"]).value


@pytest.mark.parametrize("row", [row for row in rows() if row.clock_independent == "yes"], ids=lambda row: row.name)
def test_peak_is_processors_times_flop_per_clock_times_clock(row: DatasheetRow) -> None:
    listed = row.bf16 or row.fp16
    assert listed is not None
    assert row.processors * row.bf16_flop_per_clk * row.clock_mhz * 1e6 == pytest.approx(listed * 1e12, rel=0.03)


@pytest.mark.parametrize(
    ("name", "flop_per_byte"),
    [
        ("t4", 203),
        ("a100-80gb", 153),
        ("a100-40gb", 201),
        ("l4", 403),
        ("l40s", 419),
        ("3090", 76),
        ("4090", 164),
        ("5090", 117),
        ("h100", 295),
        ("h100-pcie", 378),
        ("h200", 206),
        ("b200", 293),
        ("mi300x", 247),
        ("mi325x", 218),
        ("mi355x", 315),
    ],
)
def test_ridge_point(name: str, flop_per_byte: int) -> None:
    machine = find(name)
    assert machine.memory_bytes_per_s is not None
    assert half_precision(machine) / machine.memory_bytes_per_s.value == pytest.approx(flop_per_byte, abs=0.5)


@pytest.mark.parametrize("machine", load(), ids=lambda machine: machine.name)
def test_every_ceiling_is_positive_and_has_a_source(machine: Machine) -> None:
    found = list(ceilings(machine))
    assert len(found) >= 5
    for ceiling in found:
        assert ceiling.source
        assert ceiling.provenance in {"datasheet", "derived", "measured"}
        assert ceiling.value > 0
        assert math.isfinite(ceiling.value)


@pytest.mark.parametrize("machine", load(), ids=lambda machine: machine.name)
def test_every_machine_has_what_a_roofline_needs(machine: Machine) -> None:
    assert machine.memory_bytes_per_s is not None
    assert machine.memory_bytes is not None
    assert machine.cache_bytes is not None
    assert {"float32", "float64"} <= set(machine.vector_flop_per_s)
    assert "float16" in machine.matrix_flop_per_s
    assert machine.processors


@pytest.mark.parametrize(("name", "sparse"), SPARSE_BF16.items())
def test_no_peak_is_the_sparse_one(name: str, sparse: float) -> None:
    assert half_precision(find(name)) == pytest.approx(sparse / 2, rel=0.02)


def test_h100_by_literals() -> None:
    machine = find("NVIDIA H100 80GB HBM3")
    assert {dtype: ceiling.value for dtype, ceiling in machine.matrix_flop_per_s.items()} == pytest.approx(
        {
            "bfloat16": 989.4e12,
            "float16": 989.4e12,
            "tf32": 494.7e12,
            "float8": 1978.9e12,
            "int8": 1978.9e12,
            "float64": 66.9e12,
        }
    )
    assert machine.vector_flop_per_s["float32"].value == pytest.approx(66.9e12)
    assert machine.memory_bytes_per_s is not None
    assert machine.memory_bytes_per_s.value == pytest.approx(3.35e12)
    assert machine.cache_bytes is not None
    assert machine.cache_bytes.value == 50 * 2**20
    assert machine.host_bytes_per_s is not None
    assert machine.host_bytes_per_s.value == pytest.approx(63.0e9, rel=1e-3)
    assert machine.processors == 132


def test_float32_matrix_peak_only_where_the_matrix_unit_has_it() -> None:
    assert all("float32" not in machine.matrix_flop_per_s for machine in load() if machine.vendor == "NVIDIA")
    assert find("mi300x").matrix_flop_per_s["float32"].value == pytest.approx(163.4e12)
    assert any("packed" in note for note in find("mi300x").notes)


def test_volta_and_turing_have_no_bfloat16() -> None:
    for name in ("v100", "v100-pcie", "t4"):
        assert "bfloat16" not in find(name).matrix_flop_per_s


def test_mi250x_is_one_of_its_two_dies() -> None:
    machine = find("AMD Instinct MI250X")
    assert machine.matrix_flop_per_s["bfloat16"].value == pytest.approx(191.5e12)
    assert machine.processors == 110
    assert any("ONE GCD" in note for note in machine.notes)


def test_the_memory_side_cache_counts_as_the_last_cache() -> None:
    cache = find("mi300x").cache_bytes
    assert cache is not None
    assert cache.value == 256 * 2**20
    assert "L2 is 32 MiB" in cache.source


def test_wider_types_are_never_faster() -> None:
    for machine in load():
        peaks = {dtype: ceiling.value for dtype, ceiling in machine.matrix_flop_per_s.items()}
        order = [peaks[dtype] for dtype in ("float4", "float8", "float16", "tf32") if dtype in peaks]
        assert order == sorted(order, reverse=True), machine.name


def test_what_others_measured_is_below_the_quoted_peak() -> None:
    for row in rows():
        for measured, quoted in ((row.measured_bf16, row.bf16), (row.measured_fp8, row.fp8)):
            assert measured is None or (quoted is not None and measured < quoted), row.name
