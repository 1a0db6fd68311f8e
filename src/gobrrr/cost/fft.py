"""Fourier transforms: 5 N log2 N FLOP for a complex transform of N points, half of it for a real one.

The convention of the FFTW benchmarks (https://www.fftw.org/speed/method.html): the operations of radix-2 Cooley-Tukey.
What a library's algorithm does for a given N is less or, for a large prime, more: hence bounded.
"""

from __future__ import annotations

import math

from gobrrr.cost.arguments import flag, integer, integers, tensor
from gobrrr.cost.build import made_bytes, vector
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import numel, read_bytes, write_bytes
from gobrrr.model.work import OpCall, Tensor, Work

COMPLEX_FLOP, REAL_FLOP = 5.0, 2.5
"""Times N log2 N: see above."""
_COMPLEX = {"float16": "complex32", "float32": "complex64", "float64": "complex128"}
_REAL = {value: key for key, value in _COMPLEX.items()}
"""The complex type of a real one, and back."""


def transform_flop(points: int, *, real: bool) -> float:
    """FLOP of one transform of `points` (over all its dimensions)."""
    return (REAL_FLOP if real else COMPLEX_FLOP) * points * math.log2(points) if points > 1 else 0.0


def _axes(call: OpCall, given: Tensor) -> tuple[int, ...]:
    axes = integers(call, 1)
    if axes is None or not given.shape:
        raise Uncounted("the transformed dimensions are not recorded")
    return tuple(axis % len(given.shape) for axis in axes)


def _transform(call: OpCall, given: Tensor, shape: tuple[int, ...], axes: tuple[int, ...], out: Tensor) -> Work:
    """`shape` is the real side's (or the only one); each group of its `axes` is one transform."""
    points = numel(shape[axis] for axis in axes)
    batch = numel(shape) // points if points else 0
    real = given.dtype in _COMPLEX or out.dtype in _COMPLEX
    made = made_bytes(call)
    return vector(
        flop=batch * transform_flop(points, real=real),
        dtype=given.dtype,
        read=read_bytes(given),
        written=write_bytes(out.shape, out.dtype) if made is None else made,
        count="bounded",
        note="5 N log2 N; a large transform passes over memory more than once",
        fusible=False,
    )


@rule("aten::_fft_c2c", family="fft")
def _complex(call: OpCall) -> Work:
    given = tensor(call, 0)
    return _transform(call, given, given.shape, _axes(call, given), given)


@rule("aten::_fft_r2c", family="fft")
def _real_to_complex(call: OpCall) -> Work:
    given = tensor(call, 0)
    axes, shape = _axes(call, given), list(given.shape)
    if axes and flag(call, 3) is not False:  # one-sided: the other half is its conjugate
        shape[axes[-1]] = shape[axes[-1]] // 2 + 1
    out = Tensor(tuple(shape), _COMPLEX.get(given.dtype, "complex64"))
    return _transform(call, given, given.shape, axes, out)


@rule("aten::_fft_c2r", family="fft")
def _complex_to_real(call: OpCall) -> Work:
    given, last = tensor(call, 0), integer(call, 3)
    axes, shape = _axes(call, given), list(given.shape)
    if last is None:
        raise Uncounted("the result's last size is not recorded")
    if axes:
        shape[axes[-1]] = last
    return _transform(call, given, tuple(shape), axes, Tensor(tuple(shape), _REAL.get(given.dtype, "float32")))
