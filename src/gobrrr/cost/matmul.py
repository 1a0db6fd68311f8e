"""Matrix products: 2 M N K FLOP; both operands read once, the result written once."""

from __future__ import annotations

from gobrrr.cost.arguments import dtype, maybe_tensor, number, tensor, tensor_list, text
from gobrrr.cost.build import contraction
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import FMA_FLOP, broadcast, numel, product, read_bytes, write_bytes
from gobrrr.model.work import OpCall, Tensor, Work

PACKED = {"float4_e2m1fn_x2": 2}  # elements in one stored item


def _inner(left: Tensor, right_size: int) -> int:
    """The contracted size; raises Uncounted when the operands don't agree on it."""
    inner = left.shape[-1]
    if inner != right_size:
        raise Uncounted(f"inner sizes {inner} and {right_size} don't agree")
    return inner * PACKED.get(left.dtype, 1)


def product_of(
    call: OpCall, left: Tensor, right: Tensor, *, added: Tensor | None = None, out: str = "", extra_read: float = 0.0
) -> Work:
    """left (..., M, K) times right (..., K, N), batches broadcast; `added` is read too, `out` is the result's type."""
    if len(left.shape) < 2 or len(right.shape) < 2:
        raise Uncounted("a matrix product of something that isn't a matrix")
    inner = _inner(left, right.shape[-2])
    batch = broadcast(left.shape[:-2], right.shape[:-2])
    result = (*batch, left.shape[-2], right.shape[-1])
    return contraction(
        call,
        flop=FMA_FLOP * numel(result) * inner,
        dtype=_compute(left, right),
        read=read_bytes(left, right, added) + extra_read,
        written=write_bytes(result, out or left.dtype),
    )


def _compute(left: Tensor, right: Tensor) -> str:
    """The type of the product when an operand is only stored narrower (weight-only quantization)."""
    return left.dtype if left.dtype != "float8_e8m0fnu" else right.dtype


@rule("aten::mm", "aten::bmm", family="matmul")
def _mm(call: OpCall) -> Work:
    rank = 3 if call.name.startswith("aten::bmm") else 2
    return product_of(call, tensor(call, 0, rank), tensor(call, 1, rank), out=dtype(call, 2) or "")


@rule("aten::addmm", "aten::addmm_", "aten::_addmm_activation", "aten::baddbmm", "aten::baddbmm_", family="matmul")
def _addmm(call: OpCall) -> Work:
    # beta = 0 means that the added tensor is not read.
    added = None if number(call, 3) == 0.0 else maybe_tensor(call, 0)
    return product_of(call, tensor(call, 1), tensor(call, 2), added=added)


@rule("aten::addbmm", "aten::addbmm_", family="matmul")
def _addbmm(call: OpCall) -> Work:
    added, left, right = tensor(call, 0, 2), tensor(call, 1, 3), tensor(call, 2, 3)
    work = product_of(call, left, right, added=None if number(call, 3) == 0.0 else added)
    result = (left.shape[1], right.shape[2])
    return contraction(
        call,
        flop=work.matrix_flop or 0.0,
        dtype=left.dtype,
        read=work.bytes_read or 0.0,
        written=write_bytes(result, left.dtype),
    )


@rule("aten::linear", "aten::mkldnn_linear", "mkldnn::_linear_pointwise", family="matmul")
def _linear(call: OpCall) -> Work:
    given, weight = tensor(call, 0), tensor(call, 1, 2)
    rows = given.shape[:-1]
    inner = _inner(given, weight.shape[1])
    return contraction(
        call,
        flop=FMA_FLOP * numel(rows) * weight.shape[0] * inner,
        dtype=given.dtype,
        read=read_bytes(given, weight, maybe_tensor(call, 2)),
        written=write_bytes((*rows, weight.shape[0]), given.dtype),
    )


@rule("aten::matmul", family="matmul")
def _matmul(call: OpCall) -> Work:
    left, right = tensor(call, 0), tensor(call, 1)
    if not left.shape or not right.shape:
        raise Uncounted("a matrix product with a 0-d tensor")
    # A vector on the left is a row, on the right a column.
    wide = Tensor((1, *left.shape), left.dtype) if len(left.shape) == 1 else left
    tall = Tensor((*right.shape, 1), right.dtype) if len(right.shape) == 1 else right
    return product_of(call, wide, tall)


@rule("aten::mv", "aten::dot", "aten::vdot", "aten::inner", family="matmul")
def _mv(call: OpCall) -> Work:
    return _times_vector(call, tensor(call, 0), tensor(call, 1, 1), None)


@rule("aten::addmv", "aten::addmv_", family="matmul")
def _addmv(call: OpCall) -> Work:
    added = None if number(call, 3) == 0.0 else tensor(call, 0)
    return _times_vector(call, tensor(call, 1, 2), tensor(call, 2, 1), added)


def _times_vector(call: OpCall, matrix: Tensor, vector: Tensor, added: Tensor | None) -> Work:
    if not matrix.shape:
        raise Uncounted("a matrix product with a 0-d tensor")
    inner = _inner(matrix, vector.shape[0])
    return contraction(
        call,
        flop=FMA_FLOP * numel(matrix.shape[:-1]) * inner,
        dtype=matrix.dtype,
        read=read_bytes(matrix, vector, added),
        written=write_bytes(matrix.shape[:-1], matrix.dtype),
    )


@rule("aten::addr", "aten::addr_", "aten::outer", "aten::ger", family="matmul")
def _outer(call: OpCall) -> Work:
    first = 1 if call.name.startswith("aten::addr") else 0
    left, right = tensor(call, first, 1), tensor(call, first + 1, 1)
    result = (left.shape[0], right.shape[0])
    added = maybe_tensor(call, 0) if first else None
    # No sum: one multiplication an element, and one addition where something is added.
    flop = numel(result) * (1 + first)
    read = read_bytes(left, right, added)
    return contraction(call, flop=flop, dtype=left.dtype, read=read, written=write_bytes(result, left.dtype))


@rule("aten::_scaled_mm", "aten::_scaled_mm_v2", family="matmul")
def _scaled_mm(call: OpCall) -> Work:
    left, right = tensor(call, 0, 2), tensor(call, 1, 2)
    second = call.name.startswith("aten::_scaled_mm_v2")
    # out_dtype and bias have other places in the two schemas; without out_dtype the result has the input's type.
    out = dtype(call, 9 if second else 6) or left.dtype
    bias = maybe_tensor(call, 8 if second else 4)
    scales = read_bytes(maybe_tensor(call, 2), maybe_tensor(call, 3)) if not second else 0.0
    return product_of(call, left, right, added=bias, out=out, extra_read=scales)


@rule("aten::_int_mm", family="matmul")
def _int_mm(call: OpCall) -> Work:
    return product_of(call, tensor(call, 0, 2), tensor(call, 1, 2), out="int32")


@rule("aten::_weight_int8pack_mm", family="matmul")
def _int8_weights(call: OpCall) -> Work:
    given, weight = tensor(call, 0, 2), tensor(call, 1, 2)
    return _weight_only(call, given, weight, weight.shape[0], (maybe_tensor(call, 2),))


@rule("aten::_weight_int4pack_mm", "aten::_weight_int4pack_mm_with_scales_and_zeros", family="matmul")
def _int4_weights(call: OpCall) -> Work:
    # The packed weight is (N / 8, K / (inner k tiles x 16), 32, inner k tiles / 2) of int32.
    given, weight = tensor(call, 0, 2), tensor(call, 1, 4)
    return _weight_only(call, given, weight, weight.shape[0] * 8, (maybe_tensor(call, 3),))


def _weight_only(call: OpCall, given: Tensor, weight: Tensor, columns: int, scales: tuple[Tensor | None, ...]) -> Work:
    rows, inner = given.shape
    return contraction(
        call,
        flop=FMA_FLOP * rows * columns * inner,
        dtype=given.dtype,
        read=read_bytes(given, weight, *scales),
        written=write_bytes((rows, columns), given.dtype),
    )


@rule("aten::_grouped_mm", "aten::_scaled_grouped_mm", family="matmul")
def _grouped(call: OpCall) -> Work:
    scaled = call.name.startswith("aten::_scaled")
    left, right = tensor(call, 0), tensor(call, 1)
    offsets = maybe_tensor(call, 4 if scaled else 2)
    out = dtype(call, 7 if scaled else 4) or ("bfloat16" if scaled else left.dtype)
    rows, columns = left.shape[-2], right.shape[-1]
    inner = _inner(left, right.shape[-2])
    groups = offsets.shape[0] if offsets is not None and offsets.shape else 1
    ranks = (len(left.shape), len(right.shape))
    flop = FMA_FLOP * rows * columns * inner
    if ranks == (3, 3):  # a batch: the groups are the first dimension
        result: tuple[int, ...] = (left.shape[0], rows, columns)
        flop *= left.shape[0]
    elif ranks == (2, 2):  # K is split over the groups, with a result for each
        result = (groups, rows, columns)
    elif ranks in ((2, 3), (3, 2)):  # the rows (or columns) are split: each meets one group's matrix
        result = (rows, columns)
    else:
        raise Uncounted(f"grouped product of {ranks[0]}-d and {ranks[1]}-d operands")
    return contraction(
        call,
        flop=flop,
        dtype=left.dtype,
        read=read_bytes(left, right, offsets),
        written=write_bytes(result, out),
        count="bounded",
        note="all rows are taken as used and every group's matrix as read once",
    )


@rule("aten::einsum", family="matmul")
def _einsum(call: OpCall) -> Work:
    equation, operands = text(call, 0).strip("\"'").replace(" ", ""), tensor_list(call, 1)
    terms, arrow, result = equation.partition("->")
    if not arrow or "." in equation or len(operands) != 2:
        raise Uncounted("an einsum whose equation is not recorded or not of two operands")
    sizes: dict[str, int] = {}
    for term, operand in zip(terms.split(","), operands, strict=True):
        if len(term) != len(operand.shape):
            raise Uncounted("an einsum whose equation doesn't fit its operands")
        sizes.update(zip(term, operand.shape, strict=True))
    return contraction(
        call,
        flop=FMA_FLOP * product(sizes.values()),
        dtype=operands[0].dtype,
        read=read_bytes(*operands),
        written=write_bytes([sizes[index] for index in result], operands[0].dtype),
        count="bounded",
        note="layout copies inside the einsum are not counted",
    )
