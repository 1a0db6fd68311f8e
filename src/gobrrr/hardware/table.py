"""The datasheet table: one row a card, dense peaks only, each figure with the document that it is quoted from.

The file keeps the vendors' units (TFLOP/s, GB/s, GiB) so that it can be held against the documents; `Machine` is in SI
base units. An empty cell is a figure that the card has not got or that no source gives: the ceiling is then absent.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

import msgspec

from gobrrr.model.machine import Ceiling, Machine

TERA = 1e12
GIGA = 1e9
GIB = 2**30
MIB = 2**20
"""The units of the file's columns."""

PCIE_GT_PER_S = {3: 8, 4: 16, 5: 32}
"""Transfers a second and lane, in 1e9, by PCI Express generation."""
PCIE_LANES = 16
PCIE_ENCODING = 128 / 130
"""Generations 3 to 5 send 128 bits of payload in 130."""


class DatasheetRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table as it stands in the file; `None` for an empty cell.

    Peaks are dense TFLOP/s (FMA = 2). `fp64`, `fp32` are the vector units, the others the matrix units.
    `link_gb_per_s` sums both directions of all links, `host_gb_per_s` is one direction where the host is not on PCIe.
    `clock_independent` is "no" where the clock was itself inferred from the peak. `by_properties` is "no" where
    another card has the same memory and processor count.
    """

    name: str
    short_names: str
    device_regex: str
    vendor: str
    architecture: str
    compute: str
    form: str
    fp64: float | None = None
    fp64_matrix: float | None = None
    fp32: float | None = None
    fp32_matrix: float | None = None
    tf32: float | None = None
    bf16: float | None = None
    fp16: float | None = None
    fp8: float | None = None
    int8: float | None = None
    fp4: float | None = None
    memory_gib: float | None = None
    memory_gb_per_s: float | None = None
    l2_mib: float | None = None
    llc_mib: float | None = None
    processors: int
    clock_mhz: float
    clock_independent: str
    bf16_flop_per_clk: float
    link_gb_per_s: float | None = None
    pcie_gen: int | None = None
    host_gb_per_s: float | None = None
    tdp_w: str = ""
    by_properties: str
    measured_bf16: float | None = None
    measured_fp8: float | None = None
    measured_memory_gb_per_s: str = ""
    measured_cache_gb_per_s: float | None = None
    source: str
    checked_via: str = ""
    uncertain: str = ""

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability, or the first two digits of AMD's gfx number, as the driver reports them."""
        major, minor = self.compute.split(".")
        return int(major), int(minor)


MATRIX_COLUMNS = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "tf32": "tf32",
    "float8": "fp8",
    "int8": "int8",
    "float64": "fp64_matrix",
    "float32": "fp32_matrix",
    "float4": "fp4",
}
"""Column by dtype of the matrix units; NVIDIA's have no float32, so its cells are empty."""

VECTOR_COLUMNS = {"float32": "fp32", "float64": "fp64"}
"""Column by dtype of the vector units."""


@cache
def rows() -> tuple[DatasheetRow, ...]:
    """The table as it stands in the file, in its order."""
    text = files("gobrrr.hardware").joinpath("data/datasheet.csv").read_text(encoding="utf-8")
    lines = csv.DictReader(text.splitlines())
    return tuple(
        msgspec.convert({key: cell for key, cell in line.items() if cell}, DatasheetRow, strict=False) for line in lines
    )


@cache
def load() -> tuple[Machine, ...]:
    """Every machine of the table, in its order."""
    return tuple(machine_of(row) for row in rows())


def machine_of(row: DatasheetRow) -> Machine:
    """The row in SI base units, each ceiling with provenance and source."""
    return Machine(
        name=row.name,
        vendor=row.vendor,
        architecture=row.architecture,
        matrix_flop_per_s=_peaks(row, MATRIX_COLUMNS),
        vector_flop_per_s=_peaks(row, VECTOR_COLUMNS),
        memory_bytes_per_s=_quoted(row, row.memory_gb_per_s, GIGA),
        cache_bytes_per_s=_cache_bandwidth(row),
        cache_bytes=_last_cache(row),
        memory_bytes=_quoted(row, row.memory_gib, GIB),
        link_bytes_per_s=_quoted(row, row.link_gb_per_s, GIGA),
        host_bytes_per_s=_host_link(row),
        processors=row.processors,
        notes=_notes(row),
    )


def _quoted(row: DatasheetRow, figure: float | None, unit: float, what: str = "") -> Ceiling | None:
    if figure is None:
        return None
    return Ceiling(value=figure * unit, provenance="datasheet", source=f"{row.source}{what}")


def _peaks(row: DatasheetRow, columns: dict[str, str]) -> dict[str, Ceiling]:
    quoted = {dtype: _quoted(row, getattr(row, column), TERA) for dtype, column in columns.items()}
    return {dtype: ceiling for dtype, ceiling in quoted.items() if ceiling is not None}


def _last_cache(row: DatasheetRow) -> Ceiling | None:
    """The last cache before DRAM: what a working set must exceed before it is priced at DRAM bandwidth."""
    if row.llc_mib is not None:
        return _quoted(row, row.llc_mib, MIB, f" (memory-side cache; L2 is {row.l2_mib:g} MiB over all dies)")
    return _quoted(row, row.l2_mib, MIB)


def _cache_bandwidth(row: DatasheetRow) -> Ceiling | None:
    """Bandwidth of the last cache. Vendors print none; this is the best of a copy sweep over working sets."""
    if row.measured_cache_gb_per_s is None:
        return None
    source = "bench/gpu/holdout.py: x * 2 over 24 MB in a CUDA graph (bench/results/h100_holdout.json)"
    return Ceiling(value=row.measured_cache_gb_per_s * GIGA, provenance="measured", source=source)


def _host_link(row: DatasheetRow) -> Ceiling | None:
    """One direction. PCIe: lanes x transfers a second x payload share / 8 bits."""
    if row.host_gb_per_s is not None:
        return _quoted(row, row.host_gb_per_s, GIGA, " (NVLink-C2C, half of 900 GB/s)")
    if row.pcie_gen is None:
        return None
    # 16 lanes * 32e9 bit/s * 128/130 / 8 = 63.0e9 bytes/s for generation 5
    value = PCIE_LANES * PCIE_GT_PER_S[row.pcie_gen] * GIGA * PCIE_ENCODING / 8
    return Ceiling(
        value=value, provenance="derived", source=f"PCIe {row.pcie_gen} x{PCIE_LANES}, before packet headers"
    )


def _notes(row: DatasheetRow) -> tuple[str, ...]:
    measured = (
        (row.measured_bf16, "TFLOP/s bf16 in large matmuls"),
        (row.measured_fp8, "TFLOP/s fp8 in large matmuls"),
        (row.measured_memory_gb_per_s or None, "GB/s of memory bandwidth"),
    )
    notes = [f"measured by others: {figure} {what}" for figure, what in measured if figure is not None]
    return tuple(([f"doubt: {row.uncertain}"] if row.uncertain else []) + notes)
