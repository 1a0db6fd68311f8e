"""The few forms that most Works have: a pointwise op, a reduction, a contraction, a copy."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gobrrr.cost.dtypes import arithmetic
from gobrrr.cost.kernels import matrix_unit
from gobrrr.cost.registry import Uncounted
from gobrrr.cost.shapes import broadcast, numel, read_bytes, write_bytes
from gobrrr.model.work import Count, OpCall, Tensor, Work

VIEW = Work(count="view", bytes_read=0.0, bytes_written=0.0, vector_flop=0.0)
"""An op that only makes a new view, or allocates: no FLOP, no bytes."""


def made_bytes(call: OpCall) -> float | None:
    """Bytes of the outputs, each written once, where they are recorded; None in a trace."""
    if call.outputs is None:
        return None
    return float(sum(write_bytes(output.shape, output.dtype) for output in call.outputs))


def vector(
    *,
    flop: float,
    dtype: str,
    read: float,
    written: float,
    count: Count = "exact",
    note: str = "",
    fusible: bool = True,
) -> Work:
    """Work of the vector units on `dtype` inputs; FLOP and bytes given."""
    return Work(
        count=count,
        vector_flop=float(flop),
        vector_dtype=arithmetic(dtype),
        bytes_read=float(read),
        bytes_written=float(written),
        fusible=fusible,
        note=note,
    )


def elementwise(
    inputs: Sequence[Tensor], dtype: str, *, flop_per_element: float = 1.0, outputs: int = 1, extra_written: float = 0.0
) -> Work:
    """Every input read once, `outputs` tensors of the broadcast shape and of `dtype` written."""
    if not inputs:
        raise Uncounted("no tensor argument is recorded")
    shape = broadcast(*(tensor.shape for tensor in inputs))
    written = outputs * write_bytes(shape, dtype) + extra_written
    compute = max((tensor.dtype for tensor in inputs), key=lambda name: name in ("float64", "complex128"))
    return vector(flop=flop_per_element * numel(shape), dtype=compute, read=read_bytes(*inputs), written=written)


def contraction(
    call: OpCall,
    *,
    flop: float,
    dtype: str,
    read: float,
    written: float,
    count: Count = "exact",
    note: str = "",
    vector_flop: float | None = None,
    recomputed_flop: float = 0.0,
    model_flop: float | None = None,
    on_vector_units: bool = False,
) -> Work:
    """Work of the matrix units: a matmul, a convolution or attention on `dtype` inputs.

    `vector_flop`: pointwise work or sums beside it. `on_vector_units`: the products run there too (a depthwise
    convolution); the model's FLOPs are then those of the products alone, as `contraction_flop` takes them.
    """
    if on_vector_units:
        work = vector(flop=flop + (vector_flop or 0.0), dtype=dtype, read=read, written=written, count=count, note=note)
        needed = flop if vector_flop and model_flop is None else model_flop
        return msgspec.structs.replace(work, fusible=False, model_flop=needed, recomputed_flop=float(recomputed_flop))
    unit = matrix_unit(dtype, call.kernels)
    return Work(
        count=count,
        matrix_flop=float(flop),
        matrix_dtype=unit.dtype,
        vector_flop=vector_flop,
        vector_dtype=None if vector_flop is None else arithmetic(dtype),
        recomputed_flop=float(recomputed_flop),
        model_flop=None if model_flop is None else float(model_flop),
        bytes_read=float(read),
        bytes_written=float(written),
        by_name=unit.by_name,
        note="; ".join(text for text in (note, unit.note) if text),
    )


def contraction_flop(work: Work) -> float | None:
    """Model FLOPs of a contraction, on whichever unit it runs, without what is beside it; 0 for any other work.

    What FLOP counters count: a depthwise convolution runs on the vector units and is one all the same.
    """
    if work.needed_flop is None:
        return None
    if work.matrix_flop:
        return work.needed_flop - (work.vector_flop or 0.0)
    return work.needed_flop if work.family == "convolution" else 0.0


def copy(*, read: float, written: float, count: Count = "exact", note: str = "", fusible: bool = True) -> Work:
    """Data movement: no FLOP."""
    return Work(
        count=count, vector_flop=0.0, bytes_read=float(read), bytes_written=float(written), fusible=fusible, note=note
    )
