"""A problem on a machine: the floor of each kernel, which roof it rests on, and what fusion saves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files

import msgspec
from msgspec.structs import replace

from gobrrr import units
from gobrrr.analysis.pricing import roofline
from gobrrr.envelope import problems
from gobrrr.envelope.graph import Piece
from gobrrr.envelope.problems import Options, Problem, Shape
from gobrrr.envelope.tables import ARTICLE, article_machine
from gobrrr.errors import UsageError
from gobrrr.hardware import find
from gobrrr.model.envelope import Balance, Bound, ComputeCeiling, Envelope, EnvelopeKernel, KernelPlan
from gobrrr.model.machine import Machine
from gobrrr.model.work import Work

NO_MACHINE = "say which machine: --on a100-40gb (several, comma-separated, are compared; gobrrr machine --list)"
Shapes = str | int | Sequence[int] | Mapping[str, "str | int | Sequence[int]"] | None


def calculate(
    what: str,
    *sizes: int,
    on: str | Machine | None,
    shape: Shapes = None,
    dtype: str = "float32",
    ops: int | None = None,
    causal: bool | None = None,
    kv_heads: int | None = None,
    keys: int | None = None,
    stride: int | None = None,
    padding: int | None = None,
    ranks: int | None = None,
    host: bool | None = None,
) -> Envelope:
    """FLOPs, bytes, intensity and floor of an expression ("x.cos().cos()") or of an op by word and sizes ("mm").

    `shape` is one for all tensors or a dictionary by name. `on` is a machine or its name; "article" is the A100 as the
    article rounds it. Floors are max(FLOP / peak, bytes / bandwidth) a kernel, summed, for operands in DRAM. Raises
    UsageError or UnknownDeviceError.
    """
    machine = machine_of(on)
    by_name = _shapes(shape)
    kind = problems.dtype_of(dtype)
    options = Options(by_name.get(""), ops, ranks, causal, kv_heads, keys, stride, padding, host)
    if what in problems.WORDS:
        if set(by_name) - {""}:
            raise UsageError(f"{what} has no tensors to name: --shape N")
        return envelope(problems.by_word(what, sizes, kind, options), machine)
    if sizes:
        raise UsageError(f"{what[:60]!r} is no op that takes sizes; those are {', '.join(problems.WORDS)}")
    if options != Options(shape=options.shape):
        raise UsageError("an expression takes --shape, --dtype and --on; the other options belong to ops")
    return envelope(problems.expression(what, by_name, kind), machine)


def machine_of(on: str | Machine | None) -> Machine:
    """The machine that is meant. Raises UsageError when none is, UnknownDeviceError for a name without a row."""
    if on is None or on == "":
        raise UsageError(NO_MACHINE)
    if isinstance(on, Machine):
        return on
    return article_machine() if on.strip().lower() == ARTICLE else find(on)


def _shapes(shape: Shapes) -> dict[str, Shape]:
    if shape is None:
        return {}
    given = shape if isinstance(shape, Mapping) else {"": shape}
    return {name: _shape(one) for name, one in given.items()}


def _shape(one: str | int | Sequence[int]) -> Shape:
    if isinstance(one, str):
        return problems.sizes_of(one)
    return problems.checked((one,) if isinstance(one, int) else tuple(one))


def envelope(problem: Problem, machine: Machine) -> Envelope:
    """The problem on the machine."""
    unfused, fused = _plan(problem.unfused, machine), _plan(problem.fused, machine)
    saved = None if unfused.floor_ns is None or fused.floor_ns is None else unfused.floor_ns - fused.floor_ns
    memory = machine.memory_bytes_per_s
    return Envelope(
        what=problem.what,
        dtype=problem.dtype,
        shapes=problem.shapes,
        machine=machine.name,
        memory_bytes_per_s=None if memory is None else memory.value,
        roofs=_roofs((*unfused.kernels, *fused.kernels), machine),
        unfused=unfused,
        fused=fused,
        saved_bytes=unfused.bytes - fused.bytes,
        saved_ns=saved,
        speedup=unfused.floor_ns / fused.floor_ns if unfused.floor_ns and fused.floor_ns else None,
        balance=_balance(problem, fused, machine),
        notes=tuple(_notes(problem, unfused, fused, machine)),
    )


def _plan(pieces: Sequence[Piece], machine: Machine) -> KernelPlan:
    kernels = tuple(_kernel(piece, machine) for piece in pieces)
    flop = sum(kernel.calls * kernel.flop for kernel in kernels)
    moved = sum(kernel.calls * (kernel.bytes or 0.0) for kernel in kernels)
    bound, share, total = _bound(kernels)
    return KernelPlan(
        kernels=kernels,
        launches=sum(kernel.calls for kernel in kernels),
        matrix_flop=sum(kernel.calls * (kernel.matrix_flop or 0.0) for kernel in kernels),
        vector_flop=sum(kernel.calls * (kernel.vector_flop or 0.0) for kernel in kernels),
        bytes=moved,
        flop_per_byte=flop / moved if moved else None,
        floor_ns=total,
        bound=bound,
        bound_share=share,
    )


def _bound(kernels: Iterable[EnvelopeKernel]) -> tuple[Bound | None, float | None, float | None]:
    """The bound that holds most of the floor, its share of it, and the whole floor; None if a kernel has none."""
    shares: dict[Bound, float] = {}
    for kernel in kernels:
        if kernel.floor_ns is None or kernel.bound is None:
            return None, None, None
        shares[kernel.bound] = shares.get(kernel.bound, 0.0) + kernel.calls * kernel.floor_ns
    total = sum(shares.values())
    bound = max(shares, key=lambda key: shares[key])
    return bound, shares[bound] / total if total else 1.0, total


def _from_dram(machine: Machine) -> Machine:
    """The machine whose cache holds nothing yet: the article's arithmetic."""
    return replace(machine, cache_bytes=None, cache_bytes_per_s=None)


def _kernel(piece: Piece, machine: Machine) -> EnvelopeKernel:
    work = piece.work
    floor = roofline.floor(work, _from_dram(machine)) if _has_peaks(work, machine) else None
    return EnvelopeKernel(
        name=piece.name,
        calls=piece.calls,
        count=work.count,
        matrix_flop=work.matrix_flop,
        matrix_dtype=work.matrix_dtype,
        vector_flop=work.vector_flop,
        vector_dtype=work.vector_dtype,
        bytes=work.bytes,
        link=work.link,
        floor_ns=None if floor is None else floor.ns,
        bound=None if floor is None else floor.bound,
        roof="" if floor is None else floor.roof,
        note=work.note,
    )


def _has_peaks(work: Work, machine: Machine) -> bool:
    """Whether the machine's table has the vector peak that the work needs: a missing one is not taken as infinite."""
    return not work.vector_flop or _vector_dtype(work.vector_dtype) in machine.vector_flop_per_s


def _vector_dtype(dtype: str | None) -> str:
    return "float64" if dtype == "float64" else "float32"


def _roofs(kernels: Iterable[EnvelopeKernel], machine: Machine) -> tuple[ComputeCeiling, ...]:
    """Each compute ceiling that the kernels meet, once."""
    peaks: dict[str, float] = {}
    for kernel in kernels:
        if kernel.matrix_flop:
            ceiling, name = roofline.matrix_peak(machine, kernel.matrix_dtype)
            if ceiling is not None:
                peaks[name] = ceiling.value
        if kernel.vector_flop:
            dtype = _vector_dtype(kernel.vector_dtype)
            if dtype in machine.vector_flop_per_s:
                peaks[f"{dtype} vector"] = machine.vector_flop_per_s[dtype].value
    memory = machine.memory_bytes_per_s
    return tuple(
        ComputeCeiling(name=name, flop_per_s=value, ridge=None if memory is None else value / memory.value)
        for name, value in peaks.items()
    )


def _balance(problem: Problem, fused: KernelPlan, machine: Machine) -> Balance | None:
    """Operations an element of the one pointwise kernel that everything fuses to; None where it is more than that."""
    first = fused.kernels[0]
    if len(fused.kernels) > 1 or first.calls > 1 or first.matrix_flop or not first.vector_flop or not first.bytes:
        return None
    peak = machine.vector_flop_per_s.get(_vector_dtype(first.vector_dtype))
    memory = machine.memory_bytes_per_s
    if peak is None or memory is None or not problem.elements:
        return None
    elements = float(problem.elements)
    each = first.bytes / elements
    needed = peak.value / memory.value * each
    return Balance(
        elements=elements,
        bytes_per_element=each,
        operations=first.vector_flop / elements,
        needed=needed,
        needed_without_fma=needed / 2,
    )


def _notes(problem: Problem, unfused: KernelPlan, fused: KernelPlan, machine: Machine) -> Iterable[str]:
    yield from problem.notes
    yield from dict.fromkeys(kernel.note for kernel in (*unfused.kernels, *fused.kernels) if kernel.note)
    yield from _rows_note(problem, machine)
    missing = [kernel.name for kernel in (*unfused.kernels, *fused.kernels) if kernel.floor_ns is None]
    if missing:
        yield f"no floor for {missing[0]}: the table has no such ceiling for {machine.name}"
    yield from _cache_note(fused, machine)
    yield from _launch_note(unfused, fused)
    yield from _float32_note(fused, machine)


def rows_until_compute_bound(problem: Problem, machine: Machine) -> float | None:
    """M from which (M, K) times (K, N) is compute-bound; None if it never is or a ceiling is not known.

    2 M N K / peak = (M K + K N + M N) size / bandwidth, solved for M.
    """
    if problem.product is None or machine.memory_bytes_per_s is None:
        return None
    _, columns, inner = problem.product
    work = problem.fused[0].work
    peak, _ = roofline.matrix_peak(machine, work.matrix_dtype)
    if peak is None or work.bytes is None:
        return None
    rows = problem.product[0]
    size = work.bytes / (rows * inner + inner * columns + rows * columns)
    each_s = size / machine.memory_bytes_per_s.value
    gained = 2 * columns * inner / peak.value - (inner + columns) * each_s
    return inner * columns * each_s / gained if gained > 0 else None


def _rows_note(problem: Problem, machine: Machine) -> Iterable[str]:
    if problem.product is None:
        return
    _, columns, inner = problem.product
    needed = rows_until_compute_bound(problem, machine)
    if needed is not None:
        yield f"with N = {columns:,} and K = {inner:,}, compute is the bound from M = {math.ceil(needed):,} on"
    else:
        yield f"with N = {columns:,} and K = {inner:,}, memory is the bound whatever M is"


def _cache_note(fused: KernelPlan, machine: Machine) -> Iterable[str]:
    size = machine.cache_bytes
    local = all(kernel.link == "memory" for kernel in fused.kernels)
    if size is None or not local or fused.bytes > size.value:
        return
    speed = machine.cache_bytes_per_s
    rate = f", {units.rate(speed.value)} (measured)" if speed is not None else ""
    yield (
        f"the {units.bytes_(fused.bytes)} fit the last cache ({units.bytes_(size.value)}{rate}): what is in it "
        "already need not come from DRAM, and the floor is then lower"
    )


@cache
def smallest_kernel_ns() -> float | None:
    """What an empty kernel takes on an H100 inside a CUDA graph, as measured (data/h100/article.json)."""
    try:
        raw = files("gobrrr").joinpath("data/h100/article.json").read_bytes()
        return float(msgspec.json.decode(raw)["graph_kernel_us"]) * 1e3
    except (OSError, KeyError, msgspec.DecodeError):
        return None


def _launch_note(unfused: KernelPlan, fused: KernelPlan) -> Iterable[str]:
    least = smallest_kernel_ns()
    if least is None:
        return
    for plan, how in ((unfused, "op by op"), (fused, "fused")):
        short = sum(kernel.calls for kernel in plan.kernels if kernel.floor_ns is not None and kernel.floor_ns < least)
        if short:
            yield (
                f"{how}, {short} of {units.things(plan.launches, 'kernel')} below {units.duration(least)}, the least "
                "that a kernel took on an H100 (in a CUDA graph): launching them decides, not this floor"
            )
            return


def _float32_note(fused: KernelPlan, machine: Machine) -> Iterable[str]:
    vectors = any(kernel.matrix_flop and kernel.matrix_dtype == "float32" for kernel in fused.kernels)
    if vectors and "float32" not in machine.matrix_flop_per_s and "tf32" in machine.matrix_flop_per_s:
        peak = units.rate(machine.matrix_flop_per_s["tf32"].value, "FLOP")
        yield f"float32 products run on the vector units here; --dtype tf32 prices them on the TF32 units ({peak})"
