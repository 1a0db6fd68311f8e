"""Tensors made from nothing: fills, ranges and random numbers. Written once, not read; a random number is 1 FLOP."""

from __future__ import annotations

import math

from gobrrr.cost.arguments import argument, dtype, integer, integers, is_list, number, tensor, tensors
from gobrrr.cost.build import copy, made_bytes, vector
from gobrrr.cost.dtypes import floating, promote
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import numel, read_bytes, write_bytes
from gobrrr.model.work import OpCall, Scalar, Work

DEFAULT_TYPE = "float32"
"""torch's default type."""


@rule("aten::fill_", "aten::zero_", "aten::fill", "aten::zero", "aten::fill_diagonal_", family="movement")
def _fill(call: OpCall) -> Work:
    target = tensor(call, 0)
    return copy(read=0.0, written=write_bytes(target.shape, target.dtype))


@rule("aten::zeros_like", "aten::ones_like", "aten::full_like", family="movement")
def _like(call: OpCall) -> Work:
    target = tensor(call, 0)
    kind = dtype(call, 2 if call.name == "aten::full_like" else 1) or target.dtype
    return copy(read=0.0, written=write_bytes(target.shape, kind))


@rule("aten::zeros", "aten::ones", "aten::full", family="movement")
@rule("aten::new_zeros", "aten::new_ones", "aten::new_full", family="movement")
def _filled(call: OpCall) -> Work:
    new = "::new_" in call.name
    place = 1 if new else 0
    shape = integers(call, place)
    if shape is None:
        raise Uncounted("the size to fill is not recorded")
    fills = call.name.endswith("full")
    kind = dtype(call, place + 1 + fills)
    if kind is None and new:
        kind = tensor(call, 0).dtype
    if kind is None and fills:
        kind = promote([argument(call, 1) or Scalar("")])  # the value's own type
    return copy(read=0.0, written=write_bytes(shape, kind or DEFAULT_TYPE))


@rule("aten::_new_zeros_with_same_feature_meta", family="movement")
def _like_second(call: OpCall) -> Work:
    other = tensor(call, 1)
    return copy(read=0.0, written=write_bytes(other.shape, other.dtype))


@rule("aten::scalar_tensor", family="movement")
def _scalar(call: OpCall) -> Work:
    if not call.inputs:
        raise Uncounted("the value is not recorded")
    kind = dtype(call, 1) or promote([argument(call, 0) or Scalar("")])
    return copy(read=0.0, written=write_bytes((), kind or DEFAULT_TYPE))


@rule("aten::eye", "aten::randperm", family="movement")
def _square(call: OpCall) -> Work:
    """eye(n), eye(n, m), randperm(n); the `out` tensor where one is handed in."""
    made = _handed(call)
    if made is not None:
        return copy(read=0.0, written=made)
    rows, columns = integer(call, 0), integer(call, 1)
    if rows is None:
        raise Uncounted("the size is not recorded")
    if call.name == "aten::randperm":
        return copy(read=0.0, written=write_bytes((rows,), dtype(call, 1) or "int64"))
    two_sizes = columns is not None and len(call.inputs) in (2, 6)  # eye(n) has 5 arguments, eye(n, m) has 6
    shape = (rows, columns if two_sizes and columns is not None else rows)
    return copy(read=0.0, written=write_bytes(shape, dtype(call, 2 if two_sizes else 1) or DEFAULT_TYPE))


def _handed(call: OpCall) -> float | None:
    """Bytes of the recorded outputs, or of an `out` argument that has its size already."""
    made = made_bytes(call)
    if made is not None:
        return made
    last = next((given for given in reversed(list(tensors(call))) if given.shape and given.shape != (0,)), None)
    return None if last is None else write_bytes(last.shape, last.dtype)


# Arguments of the whole schema, from which the overload is told: end; start, end; start, end, step.
_RANGE_FORMS = {5: 1, 6: 2, 7: 3}


@rule("aten::arange", "aten::range", family="movement")
def _arange(call: OpCall) -> Work:
    made = _handed(call)
    if made is not None:
        return copy(read=0.0, written=made)
    leading = _RANGE_FORMS.get(len(call.inputs))
    values = [value for value in (number(call, place) for place in range(leading or 3)) if value is not None]
    if not values:
        raise Uncounted("the range is not recorded")
    start, end = (0.0, values[0]) if len(values) == 1 else (values[0], values[1])
    step = values[2] if len(values) > 2 else 1.0
    if step == 0 or not math.isfinite((end - start) / step):
        raise Uncounted("the range is not finite")
    count = max(0, math.ceil((end - start) / step)) if call.name == "aten::arange" else int((end - start) / step) + 1
    kind = dtype(call, leading) if leading is not None else None
    kind = kind or promote(call.inputs[: leading or 3])
    return copy(read=0.0, written=write_bytes((max(0, count),), kind if kind != "bool" else "int64"))


@rule("aten::linspace", "aten::logspace", family="movement")
def _linspace(call: OpCall) -> Work:
    made = _handed(call) if call.outputs is not None else None
    steps = integer(call, 2)
    if steps is None and made is None:
        raise Uncounted("the number of steps is not recorded")
    kind = dtype(call, 3 if call.name == "aten::linspace" else 4) or DEFAULT_TYPE
    return copy(read=0.0, written=made if made is not None else write_bytes((steps or 0,), kind))


@rule("aten::tril_indices", "aten::triu_indices", family="movement")
def _triangle(call: OpCall) -> Work:
    rows, columns, offset = integer(call, 0), integer(call, 1), integer(call, 2) or 0
    if rows is None or columns is None or rows < 0 or columns < 0 or abs(offset) > 2**40 or rows * columns > 2**40:
        raise Uncounted("the size is not recorded")
    lower = _below(rows, columns, offset if call.name == "aten::tril_indices" else offset - 1)
    count = lower if call.name == "aten::tril_indices" else rows * columns - lower
    return copy(read=0.0, written=write_bytes((2, count), dtype(call, 3) or "int64"))


def _below(rows: int, columns: int, offset: int) -> int:
    """Elements of a matrix on or below a diagonal: row i has min(columns, i + 1 + offset) of them."""
    first = max(0, -offset)  # the first row that has any
    full_from = max(first, min(rows, columns - offset - 1))  # from here on a row has them all
    ramp = max(0, min(rows, full_from) - first)
    start = first + 1 + offset
    return ramp * start + ramp * (ramp - 1) // 2 + max(0, rows - max(first, full_from)) * columns


@rule(*(f"aten::{name}_window" for name in ("hann", "hamming", "blackman", "bartlett", "kaiser")), family="movement")
@rule("aten::fft_fftfreq", "aten::fft_rfftfreq", family="movement")
def _window(call: OpCall) -> Work:
    length, made = integer(call, 0), made_bytes(call)
    if length is None:
        raise Uncounted("the length is not recorded")
    written = write_bytes((length,), DEFAULT_TYPE) if made is None else made
    return vector(
        flop=length,
        dtype=DEFAULT_TYPE,
        read=0.0,
        written=written,
        count="bounded",
        note="its pointwise steps count once",
    )


@rule("aten::rand", "aten::randn", "aten::randint", family="pointwise")
def _drawn(call: OpCall) -> Work:
    """([low,] [high,] size, [generator,] dtype, ...): the size is the argument that is a list."""
    place = next((index for index in range(3) if is_list(call, index)), None)
    shape = None if place is None else integers(call, place)
    if shape is None or place is None:
        raise Uncounted("the size is not recorded")
    kind = (
        dtype(call, place + 1) or dtype(call, place + 2) or ("int64" if call.name == "aten::randint" else DEFAULT_TYPE)
    )
    return _random_numbers(shape, kind)


@rule("aten::rand_like", "aten::randn_like", "aten::randint_like", family="pointwise")
def _drawn_like(call: OpCall) -> Work:
    target, made = tensor(call, 0), made_bytes(call)
    # The dtype is followed by layout, device, pinning and memory format; randint_like has bounds before it.
    place = max(2, len(call.inputs) - 5) if call.name == "aten::randint_like" else 1
    kind = dtype(call, place) or target.dtype
    work = _random_numbers(target.shape, kind)
    return work if made is None else vector(flop=work.flop or 0.0, dtype=kind, read=0.0, written=made)


def _random_numbers(shape: tuple[int, ...], kind: str) -> Work:
    return vector(flop=numel(shape), dtype=kind, read=0.0, written=write_bytes(shape, kind))


_IN_PLACE = "bernoulli normal uniform random exponential log_normal cauchy geometric _philox_normal _philox_uniform"
"""Operations that fill a tensor with random numbers."""


@rule(*(f"aten::{name}_" for name in _IN_PLACE.split()), family="pointwise")
@rule(*(f"aten::{name}" for name in _IN_PLACE.split() if name not in ("bernoulli", "normal")), family="pointwise")
@rule("aten::normal_functional", family="pointwise")
def _random(call: OpCall) -> Work:
    target = tensor(call, 0)
    return _random_numbers(target.shape, target.dtype)


@rule("aten::bernoulli", "aten::poisson", "aten::binomial", "aten::_standard_gamma", family="pointwise")
@rule("aten::_standard_gamma_grad", "aten::_sample_dirichlet", "aten::_dirichlet_grad", family="pointwise")
def _random_of(call: OpCall) -> Work:
    """Drawn with what the tensors say (a probability, a rate); bernoulli(x, p) takes only the shape."""
    given = list(tensors(call))
    target = tensor(call, 0)
    read = 0.0 if call.name == "aten::bernoulli" and number(call, 1) is not None else read_bytes(*given)
    return vector(
        flop=numel(target.shape), dtype=target.dtype, read=read, written=write_bytes(target.shape, target.dtype)
    )


@rule("aten::normal", family="pointwise")
def _normal(call: OpCall) -> Work:
    """Means and deviations: numbers or tensors; two numbers come with a size."""
    given = list(tensors(call))[:2]
    if not given:
        shape = integers(call, 2)
        if shape is None:
            raise Uncounted("the size is not recorded")
        return _random_numbers(shape, dtype(call, 4) or DEFAULT_TYPE)
    target = max(given, key=lambda candidate: numel(candidate.shape))
    flop = 3 * numel(target.shape)  # draw, scale, shift
    kind = floating(target.dtype)
    return vector(flop=flop, dtype=kind, read=read_bytes(*given), written=write_bytes(target.shape, kind))


@rule("aten::multinomial", family="reduction")
def _multinomial(call: OpCall) -> Work:
    given, wanted = tensor(call, 0), integer(call, 1)
    if wanted is None or not given.shape:
        raise Uncounted("how many are drawn is not recorded")
    rows = numel(given.shape[:-1])
    return vector(
        flop=3 * numel(given.shape),
        dtype=given.dtype,
        read=read_bytes(given),
        written=write_bytes((rows, wanted), "int64"),
        count="bounded",
        note="one pass over the probabilities: their sums are scanned again for each draw",
        fusible=False,
    )
