"""The floor of a work on a machine: laws, and figures by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gobrrr.analysis.pricing.roofline import floor
from gobrrr.hardware import find
from gobrrr.model.machine import Ceiling, Machine
from gobrrr.model.work import UNKNOWN_WORK, Work

BIG = 1e9  # bytes: far beyond any cache


def machine(matrix: float = 1e15, vector: float = 6e13, memory: float = 3e12, **more: Ceiling) -> Machine:
    return Machine(
        name="made up",
        matrix_flop_per_s={"bfloat16": Ceiling(value=matrix, provenance="datasheet")},
        vector_flop_per_s={"float32": Ceiling(value=vector, provenance="datasheet")},
        memory_bytes_per_s=Ceiling(value=memory, provenance="datasheet"),
        **more,
    )


def work(matrix: float | None = None, vector: float | None = None, read: float = BIG, written: float = 0.0) -> Work:
    return Work(
        count="exact", matrix_flop=matrix, matrix_dtype="bfloat16", vector_flop=vector, vector_dtype="float32",
        bytes_read=read, bytes_written=written,
    )  # fmt: skip


def ns(given_work: Work, on: Machine) -> float:
    found = floor(given_work, on)
    assert found is not None
    return found.ns


flops = st.floats(0, 1e16)
sizes = st.floats(0, 1e12)
rates = st.floats(1e9, 1e16)
factors = st.floats(1.0, 100.0)


@given(flops, flops, sizes, rates, rates, rates, factors)
def test_a_higher_ceiling_never_raises_the_floor(matrix, vector, size, peak, lanes, bandwidth, factor):
    one = work(matrix, vector, size)
    base = ns(one, machine(peak, lanes, bandwidth))
    assert ns(one, machine(peak * factor, lanes, bandwidth)) <= base
    assert ns(one, machine(peak, lanes * factor, bandwidth)) <= base
    assert ns(one, machine(peak, lanes, bandwidth * factor)) <= base
    raised = machine(peak * factor, lanes * factor, bandwidth * factor)
    assert ns(one, raised) == pytest.approx(base / factor, rel=1e-9, abs=1e-12)


@given(flops, flops, sizes, factors)
def test_more_work_never_lowers_the_floor(matrix, vector, size, factor):
    on = machine()
    base = ns(work(matrix, vector, size), on)
    assert ns(work(matrix * factor, vector, size), on) >= base
    assert ns(work(matrix, vector * factor, size), on) >= base
    assert ns(work(matrix, vector, size * factor), on) >= base


@given(st.lists(st.tuples(flops, flops, sizes), min_size=2, max_size=5))
def test_work_adds(parts):
    """Counting two works as one needs at most the sum of their floors and at least the largest of them."""
    on = machine()
    apart = [ns(work(*part), on) for part in parts]
    joined = ns(work(*(sum(column) for column in zip(*parts, strict=True))), on)
    assert joined <= sum(apart) * (1 + 1e-9)
    assert joined >= max(apart) * (1 - 1e-9)


def test_reads_and_writes_share_the_bandwidth():
    assert ns(work(read=2e9, written=1e9), machine(memory=3e12)) == pytest.approx(1e6)


def test_the_larger_side_is_the_bound():
    memory, compute = floor(work(1e12, None, 6e9), machine()), floor(work(4e12, None, 6e9), machine())
    assert memory is not None
    assert compute is not None
    assert (memory.ns, memory.bound) == (pytest.approx(2e6), "memory")
    assert (compute.ns, compute.bound) == (pytest.approx(4e6), "compute")


def test_matrix_and_vector_units_run_at_once():
    assert ns(work(1e15, 6e13, 0.0), machine()) == pytest.approx(1e9)


@pytest.mark.parametrize(
    "one",
    [UNKNOWN_WORK, Work(count="exact", matrix_flop=1e9, matrix_dtype="bfloat16"), work(1e9)],
    ids=["work unknown", "bytes unknown", "peak unknown"],
)
def test_what_is_not_known_has_no_floor(one: Work):
    on = (
        machine()
        if one.bytes is None
        else Machine(name="x", memory_bytes_per_s=Ceiling(value=1, provenance="datasheet"))
    )
    assert floor(one, on) is None


def test_no_machine_no_floor():
    assert floor(work(1e9), None) is None


def test_links_have_their_own_ceilings():
    on = machine(
        host_bytes_per_s=Ceiling(value=5e10, provenance="derived"),
        link_bytes_per_s=Ceiling(value=9e11, provenance="derived"),
    )
    assert ns(replace(work(), link="host"), on) == pytest.approx(BIG / 5e10 * 1e9)
    assert ns(replace(work(), link="network"), on) == pytest.approx(BIG / 9e11 * 1e9)
    assert floor(replace(work(), link="host"), machine()) is None


def test_what_fits_the_cache_may_come_from_it():
    on = machine(
        cache_bytes=Ceiling(value=50e6, provenance="datasheet"),
        cache_bytes_per_s=Ceiling(value=6e12, provenance="measured"),
    )
    small, large = floor(work(read=30e6), on), floor(work(read=110e6), on)
    assert small is not None
    assert large is not None
    assert small.in_cache
    assert small.ns == small.least_ns == pytest.approx(30e6 / 6e12 * 1e9)
    assert not large.in_cache
    assert large.ns == pytest.approx(110e6 / 3e12 * 1e9)
    # at most the cache's size of it was already there
    assert large.least_ns == pytest.approx(60e6 / 3e12 * 1e9 + 50e6 / 6e12 * 1e9)


@pytest.mark.parametrize("size", [52_428_799, 52_428_800, 52_428_801, 60e6, 500e6])
def test_the_least_time_grows_smoothly_past_the_cache(size: float):
    on = find("h100")
    found, less = floor(work(read=size), on), floor(work(read=size - 1), on)
    assert found is not None
    assert less is not None
    assert found.least_ns <= found.ns
    assert math.isclose(found.least_ns, less.least_ns, abs_tol=0.01)


def test_the_article_s_own_arithmetic():
    """A unary op on 2^26 floats on an A100 of 1.5 TB/s: 2 * 4 * 2^26 bytes take 0.36 ms and hide 32 multiplications."""
    on = machine(vector=19.5e12, memory=1.5e12)
    size = 4.0 * 2**26
    assert ns(work(None, 2.0**26, size, size), on) == pytest.approx(357_914, rel=1e-3)
    assert ns(work(None, 32 * 2.0**26, size, size), on) == pytest.approx(357_914, rel=1e-3)
    assert ns(work(None, 200 * 2.0**26, size, size), on) > 600_000
