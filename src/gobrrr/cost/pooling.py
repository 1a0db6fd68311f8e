"""Pooling and resampling: input read once, output written once; one FLOP for each element of a window."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.cost.arguments import flag, flags, integer, integers, maybe_tensor, number, numbers, tensor
from gobrrr.cost.build import vector
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import numel, product, read_bytes, write_bytes
from gobrrr.model.work import OpCall, Tensor, Work


def _window(call: OpCall, given: Tensor, *, dilated: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The window and the output's shape of (input, kernel, stride, padding, [dilation,] ceil_mode, ...)."""
    kernel = integers(call, 1)
    if not kernel:
        raise Uncounted("the window is not recorded")
    rank = _rank(call)
    sizes = _spread(kernel, rank)
    stride = _spread(integers(call, 2) or sizes, rank)
    padding = _spread(integers(call, 3) or (0,), rank)
    dilation = _spread((integers(call, 4) if dilated else None) or (1,), rank)
    up = bool(flag(call, 5 if dilated else 4))
    space = given.shape[-rank:]
    if len(space) != rank or any(step <= 0 for step in stride):
        raise Uncounted("a window that doesn't fit its input")
    shape = [
        _out(size, k, s, p, d, up) for size, k, s, p, d in zip(space, sizes, stride, padding, dilation, strict=True)
    ]
    return sizes, (*given.shape[:-rank], *shape)


def _rank(call: OpCall) -> int:
    return next((rank for rank in (1, 2, 3) if f"{rank}d" in call.name), 2)


def _spread(values: Sequence[int], rank: int) -> tuple[int, ...]:
    if len(values) == 1:
        return tuple(values) * rank
    if len(values) != rank:
        raise Uncounted("a window that doesn't fit its input")
    return tuple(values)


def _out(size: int, kernel: int, stride: int, padding: int, dilation: int, up: bool) -> int:
    free = size + 2 * padding - dilation * (kernel - 1) - 1
    steps = -(-free // stride) if up else free // stride
    if up and steps * stride >= size + padding:  # a window may not start in the right padding
        steps -= 1
    return max(0, steps + 1)


@rule("aten::max_pool1d", "aten::max_pool2d", "aten::max_pool3d", family="pooling")
@rule("aten::mkldnn_max_pool2d", "aten::mkldnn_max_pool3d", family="pooling")
@rule("aten::quantized_max_pool1d", "aten::quantized_max_pool2d", "aten::quantized_max_pool3d", family="pooling")
@rule(
    "aten::max_pool2d_with_indices", "aten::max_pool3d_with_indices", "aten::max_pool1d_with_indices", family="pooling"
)
def _max_pool(call: OpCall) -> Work:
    given = tensor(call, 0)
    window, shape = _window(call, given, dilated=True)
    written = write_bytes(shape, given.dtype)
    written += write_bytes(shape, "int64") if "indices" in call.name else 0.0
    flop = numel(shape) * product(window)
    return vector(flop=flop, dtype=given.dtype, read=read_bytes(given), written=written)


@rule("aten::avg_pool1d", "aten::avg_pool2d", "aten::avg_pool3d", family="pooling")
def _avg_pool(call: OpCall) -> Work:
    given = tensor(call, 0)
    window, shape = _window(call, given, dilated=False)
    flop = numel(shape) * product(window)
    return vector(flop=flop, dtype=given.dtype, read=read_bytes(given), written=write_bytes(shape, given.dtype))


@rule("aten::max_pool2d_with_indices_backward", "aten::max_pool3d_with_indices_backward", family="pooling")
def _max_pool_backward(call: OpCall) -> Work:
    grad, given = tensor(call, 0), tensor(call, 1)
    indices = maybe_tensor(call, 7)
    return vector(
        flop=numel(grad.shape),
        dtype=grad.dtype,
        read=read_bytes(grad, indices),
        written=write_bytes(given.shape, given.dtype),
    )


@rule("aten::avg_pool2d_backward", "aten::avg_pool3d_backward", family="pooling")
@rule("aten::_adaptive_avg_pool2d_backward", "aten::_adaptive_avg_pool3d_backward", family="pooling")
@rule("aten::adaptive_max_pool2d_backward", "aten::adaptive_max_pool3d_backward", family="pooling")
@rule("aten::adaptive_avg_pool3d_backward", "aten::mkldnn_adaptive_avg_pool2d_backward", family="pooling")
def _pool_backward(call: OpCall) -> Work:
    grad, given = tensor(call, 0), tensor(call, 1)
    return vector(
        flop=numel(given.shape),
        dtype=grad.dtype,
        read=read_bytes(grad, maybe_tensor(call, 2)),
        written=write_bytes(given.shape, given.dtype),
    )


@rule("aten::adaptive_avg_pool1d", "aten::adaptive_avg_pool2d", "aten::adaptive_avg_pool3d", family="pooling")
@rule("aten::_adaptive_avg_pool2d", "aten::_adaptive_avg_pool3d", "aten::adaptive_max_pool2d", family="pooling")
@rule("aten::adaptive_max_pool1d", "aten::adaptive_max_pool3d", "aten::mkldnn_adaptive_avg_pool2d", family="pooling")
def _adaptive_pool(call: OpCall) -> Work:
    given, size = tensor(call, 0), integers(call, 1)
    if not size or len(size) > len(given.shape):
        raise Uncounted("the output's size is not recorded")
    rank = _rank(call)
    shape = (*given.shape[:-rank], *_spread(size, rank))
    written = write_bytes(shape, given.dtype) + (write_bytes(shape, "int64") if "max" in call.name else 0.0)
    return vector(flop=numel(given.shape), dtype=given.dtype, read=read_bytes(given), written=written)


@rule("aten::fractional_max_pool2d", "aten::fractional_max_pool3d", family="pooling")
def _fractional(call: OpCall) -> Work:
    """(input, window, output size, random samples): windows at random places, and the index of each maximum."""
    given, window, size = tensor(call, 0), integers(call, 1), integers(call, 2)
    if not window or not size or len(size) > len(given.shape):
        raise Uncounted("the window is not recorded")
    rank = _rank(call)
    shape = (*given.shape[:-rank], *_spread(size, rank))
    return vector(
        flop=numel(shape) * product(_spread(window, rank)),
        dtype=given.dtype,
        read=read_bytes(given, maybe_tensor(call, 3)),
        written=write_bytes(shape, given.dtype) + write_bytes(shape, "int64"),
    )


@rule("aten::fractional_max_pool2d_backward", "aten::fractional_max_pool3d_backward", family="pooling")
@rule("aten::max_pool2d_backward", "aten::mkldnn_max_pool2d_backward", family="pooling")
@rule("aten::mkldnn_max_pool3d_backward", family="pooling")
def _scattered_backward(call: OpCall) -> Work:
    """The gradient to where the maximum was: by the saved index (last), or found again in the input."""
    place = 2 if "mkldnn" in call.name else 1
    grad, given = tensor(call, 0), tensor(call, place)
    indices = maybe_tensor(call, 4) if "fractional" in call.name else given
    written = write_bytes(given.shape, grad.dtype)
    return vector(flop=numel(grad.shape), dtype=grad.dtype, read=read_bytes(grad, indices), written=written)


@rule("aten::max_unpool2d", "aten::max_unpool3d", family="pooling")
def _unpool(call: OpCall) -> Work:
    """Zeros of the output's size, and each element put at its index."""
    given, indices, size = tensor(call, 0), tensor(call, 1), integers(call, 2)
    rank = _rank(call)
    if not size or len(given.shape) < rank:
        raise Uncounted("the output's size is not recorded")
    written = write_bytes((*given.shape[:-rank], *_spread(size, rank)), given.dtype)
    written += write_bytes(given.shape, given.dtype)
    return vector(flop=0.0, dtype=given.dtype, read=read_bytes(given, indices), written=written, fusible=False)


_TAPS = {"nearest": 0, "linear": 3, "bilinear": 8, "trilinear": 24, "bicubic": 32, "lanczos": 72}
"""FLOP an output element: weights times the neighbours, and their sum."""
# Operations that resize an image.
_MODES = [f"upsample_{mode}" for mode in ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d")]
_MODES += ["upsample_trilinear3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_bilinear2d_aa"]
_MODES += ["_upsample_nearest_exact3d", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa"]


def _taps(name: str) -> int:
    return max((flop for mode, flop in _TAPS.items() if mode in name), default=0)


@rule(*(f"aten::{mode}" for mode in _MODES), family="pooling")
def _upsample(call: OpCall) -> Work:
    given, size, rank = tensor(call, 0), integers(call, 1), _rank(call)
    if not size:
        size = _scaled(call, given, rank)
    shape = (*given.shape[:-rank], *_spread(size, rank))
    flop = _taps(call.name) * numel(shape)
    return vector(flop=flop, dtype=given.dtype, read=read_bytes(given), written=write_bytes(shape, given.dtype))


def _scaled(call: OpCall, given: Tensor, rank: int) -> tuple[int, ...]:
    """The `.vec` overload gives factors instead of a size."""
    factors = next((values for place in (2, 3) if (values := numbers(call, place)) and len(values) == rank), None)
    if factors is None or len(given.shape) < rank:
        raise Uncounted("the output's size is not recorded")
    return tuple(int(size * factor) for size, factor in zip(given.shape[-rank:], factors, strict=True))


@rule(*(f"aten::{mode}_backward" for mode in _MODES), family="pooling")
def _upsample_backward(call: OpCall) -> Work:
    grad, size = tensor(call, 0), integers(call, 2)
    if not size:
        raise Uncounted("the input's size is not recorded")
    flop = max(1, _taps(call.name)) * numel(grad.shape)
    return vector(flop=flop, dtype=grad.dtype, read=read_bytes(grad), written=write_bytes(size, grad.dtype))


def _sample_taps(mode: float | None, rank: int) -> int:
    """FLOP an element of the result: linear in each dimension (0), nearest (1), cubic (2)."""
    if mode == 2.0:
        return _TAPS["bicubic"]
    return 0 if mode == 1.0 else _TAPS["trilinear" if rank == 3 else "bilinear"]


@rule("aten::grid_sampler_2d_backward", "aten::grid_sampler_3d_backward", family="pooling")
@rule("aten::_grid_sampler_2d_cpu_fallback_backward", "aten::cudnn_grid_sampler_backward", family="pooling")
def _grid_backward(call: OpCall) -> Work:
    """(gradient, input, grid, mode, ..., mask): added into the input's gradient (from zeros), and the grid's."""
    grad, given, grid, mask = tensor(call, 0), tensor(call, 1), tensor(call, 2), flags(call, 6)
    if "cudnn" in call.name:
        grad, given, grid = grid, grad, given
    rank = len(given.shape) - 2
    wanted = (True, True) if mask is None or len(mask) != 2 else mask
    taps = _sample_taps(number(call, 3), rank)
    into_input = 2 * write_bytes(given.shape, given.dtype)
    return vector(
        flop=(taps * wanted[0] + 2 * taps * wanted[1]) * numel(grad.shape),
        dtype=grad.dtype,
        read=read_bytes(grad, given, grid) + wanted[0] * write_bytes(given.shape, given.dtype),
        written=wanted[0] * into_input + wanted[1] * write_bytes(grid.shape, grid.dtype),
        count="bounded",
        note="the sampled input is taken as read once and its gradient as added into once",
        fusible=False,
    )


@rule("aten::affine_grid_generator", "aten::cudnn_affine_grid_generator", family="pooling")
def _affine_grid(call: OpCall) -> Work:
    """Each place of the grid times a small matrix: 2 (d + 1) d FLOP in d dimensions."""
    theta, size = tensor(call, 0, 3), integers(call, 1)
    if not size and len(call.inputs) > 4:  # cuDNN's takes the sizes one by one
        size = tuple(integer(call, place) or 0 for place in range(1, 5))
    if not size or len(size) < 3:
        raise Uncounted("the output's size is not recorded")
    rank = len(size) - 2
    places = numel((size[0], *size[2:]))
    written = write_bytes((places, rank), theta.dtype)
    return vector(flop=2 * rank * (rank + 1) * places, dtype=theta.dtype, read=read_bytes(theta), written=written)


@rule("aten::grid_sampler_2d", "aten::grid_sampler", "aten::cudnn_grid_sampler", family="pooling")
@rule("aten::grid_sampler_3d", "aten::_grid_sampler_2d_cpu_fallback", family="pooling")
def _grid_sample(call: OpCall) -> Work:
    given, grid = tensor(call, 0), tensor(call, 1)
    rank = len(given.shape) - 2
    if rank not in (2, 3) or len(grid.shape) != len(given.shape):
        raise Uncounted("a grid that doesn't fit its input")
    shape = (given.shape[0], given.shape[1], *grid.shape[1:-1])
    return vector(
        flop=_sample_taps(number(call, 2), rank) * numel(shape),
        dtype=given.dtype,
        read=read_bytes(given, grid),
        written=write_bytes(shape, given.dtype),
        count="bounded",
        note="the sampled input is taken as read once",
    )


@rule("aten::im2col", family="pooling")
def _im2col(call: OpCall) -> Work:
    given, window = tensor(call, 0, 4), integers(call, 1)
    dilation, padding, stride = (integers(call, place) for place in (2, 3, 4))
    if not window or not dilation or not padding or not stride:
        raise Uncounted("the window is not recorded")
    terms = zip(given.shape[2:], *(_spread(v, 2) for v in (window, stride, padding, dilation)), strict=True)
    places = product(_out(size, k, s, p, d, False) for size, k, s, p, d in terms if s > 0)
    shape = (given.shape[0], given.shape[1], *_spread(window, 2), int(places))
    return vector(flop=0.0, dtype=given.dtype, read=read_bytes(given), written=write_bytes(shape, given.dtype))
