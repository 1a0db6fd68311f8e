"""Distances between rows, and products of three tensors."""

from __future__ import annotations

from gobrrr.cost.arguments import integers, maybe_tensor, tensor
from gobrrr.cost.build import contraction, made_bytes, vector
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import FMA_FLOP, broadcast, numel, read_bytes, write_bytes
from gobrrr.model.work import OpCall, Tensor, Work

PAIR_FLOP = 3  # a difference, its power, the sum: for each coordinate of each pair
PAIR_BACKWARD_FLOP = 5  # the difference again, its power, a product with the gradient over the distance, the sum


@rule("aten::_cdist_forward", "aten::cdist", "aten::_euclidean_dist", family="reduction")
def _between(call: OpCall) -> Work:
    """Rows (P, M) against rows (R, M). `_euclidean_dist`, for many rows, is a product: 2 P R (M + 2)."""
    left, right = tensor(call, 0), tensor(call, 1)
    if len(left.shape) < 2 or len(right.shape) < 2 or left.shape[-1] != right.shape[-1]:
        raise Uncounted("distances of rows that don't agree on their length")
    shape = (*broadcast(left.shape[:-2], right.shape[:-2]), left.shape[-2], right.shape[-2])
    written = write_bytes(shape, left.dtype)
    if call.name == "aten::_euclidean_dist":
        # The squared norms are appended to the rows as two more columns.
        flop = FMA_FLOP * numel(shape) * (left.shape[-1] + 2)
        return contraction(call, flop=flop, dtype=left.dtype, read=read_bytes(left, right), written=written)
    return vector(
        flop=PAIR_FLOP * numel(shape) * left.shape[-1],
        dtype=left.dtype,
        read=read_bytes(left, right),
        written=written,
        count="bounded",
        note="each row is taken as read once",
        fusible=False,
    )


@rule("aten::_cdist_backward", family="reduction")
def _between_backward(call: OpCall) -> Work:
    grad, left, right, distances = (tensor(call, place) for place in (0, 1, 2, 4))
    return vector(
        flop=PAIR_BACKWARD_FLOP * numel(distances.shape) * (left.shape[-1] if left.shape else 1),
        dtype=left.dtype,
        read=read_bytes(grad, left, right, distances),
        written=write_bytes(left.shape, left.dtype),
        count="bounded",
        note="each row is taken as read once",
        fusible=False,
    )


@rule("aten::_pdist_forward", "aten::_pdist_backward", family="reduction")
def _within(call: OpCall) -> Work:
    """All pairs of the rows of one matrix: N (N - 1) / 2."""
    backward = call.name.endswith("backward")
    given = tensor(call, 1 if backward else 0, 2)
    rows, columns = given.shape
    pairs = rows * (rows - 1) // 2
    others = (tensor(call, 0), maybe_tensor(call, 3)) if backward else ()
    return vector(
        flop=(PAIR_BACKWARD_FLOP if backward else PAIR_FLOP) * max(0, pairs) * columns,
        dtype=given.dtype,
        read=read_bytes(given, *others),
        written=write_bytes(given.shape if backward else (max(0, pairs),), given.dtype),
        count="bounded",
        note="each row is taken as read once",
        fusible=False,
    )


@rule("aten::dist", "aten::allclose", family="reduction")
def _two(call: OpCall) -> Work:
    left, right = tensor(call, 0), tensor(call, 1)
    shape = broadcast(left.shape, right.shape)
    made = made_bytes(call)
    return vector(
        flop=PAIR_FLOP * numel(shape),
        dtype=left.dtype,
        read=read_bytes(left, right),
        written=write_bytes((), left.dtype) if made is None else made,
        count="bounded",
        note="its pointwise steps are counted as fused",
    )


@rule("aten::bilinear", family="matmul")
def _bilinear(call: OpCall) -> Work:
    """(N, I), (N, J), weight (O, I, J): for each O a product N x I x J, then a sum over J."""
    left, right, weight = tensor(call, 0), tensor(call, 1), tensor(call, 2, 3)
    rows = numel(left.shape[:-1])
    outputs, first, second = weight.shape
    if not left.shape or not right.shape or (left.shape[-1], right.shape[-1]) != (first, second):
        raise Uncounted("a bilinear form whose sizes don't agree")
    return contraction(
        call,
        flop=FMA_FLOP * rows * outputs * second * (first + 1),
        dtype=left.dtype,
        read=read_bytes(left, right, weight, maybe_tensor(call, 3)),
        written=write_bytes((rows, outputs), left.dtype),
        count="bounded",
        note="intermediate tensors are not counted as traffic",
    )


@rule("aten::_trilinear", family="matmul")
def _trilinear(call: OpCall) -> Work:
    """Two products one after the other: the first sums over what the third tensor lacks, the second over the rest."""
    parts = [tensor(call, place) for place in range(3)]
    missing, summed = [integers(call, place) for place in (3, 4, 5)], integers(call, 6)
    if summed is None or any(dims is None for dims in missing):
        raise Uncounted("the summed dimensions are not recorded")
    rank = len(parts[0].shape) + len(missing[0] or ())
    sizes = [_expanded(part, gone or (), rank) for part, gone in zip(parts, missing, strict=True)]
    summed = tuple(dim % rank for dim in summed) if rank else ()
    early = {dim for dim in summed if dim in {gone % rank for gone in missing[2] or ()}}
    first = broadcast(sizes[0], sizes[1])
    between = tuple(1 if index in early else size for index, size in enumerate(first))
    second = broadcast(between, sizes[2])
    out = numel(size for index, size in enumerate(second) if index not in summed)
    # A product that sums nothing is one multiplication an element.
    flop = numel(first) * (FMA_FLOP if early else 1) + numel(second) * (FMA_FLOP if len(early) < len(summed) else 1)
    made = made_bytes(call)
    return contraction(
        call,
        flop=flop,
        dtype=parts[0].dtype,
        read=read_bytes(*parts),
        written=write_bytes((out,), parts[0].dtype) if made is None else made,
        count="bounded",
        note="intermediate tensors are not counted as traffic",
    )


def _expanded(given: Tensor, missing: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """The shape with 1 put in for each missing dimension."""
    if len(given.shape) + len(missing) != rank or not rank:
        raise Uncounted("a product of three tensors whose dimensions don't agree")
    gone, sizes = {dim % rank for dim in missing}, iter(given.shape)
    return tuple(1 if index in gone else next(sizes, 1) for index in range(rank))
