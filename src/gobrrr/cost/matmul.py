"""Matrix products: 2 M N K FLOP; both operands read once, the result written once."""

from __future__ import annotations

from gobrrr.cost.arguments import dtype, flags, integer, maybe_tensor, number, tensor, tensor_list, text
from gobrrr.cost.build import contraction
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import FMA_FLOP, broadcast, numel, product, read_bytes, write_bytes
from gobrrr.cost.sparse import is_sparse, sparse_product
from gobrrr.model.work import OpCall, Scalar, Tensor, TensorList, Work

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
    if is_sparse(call):
        return sparse_product(call, tensor(call, 0), tensor(call, 1))
    rank = 3 if call.name.startswith("aten::bmm") else 2
    return product_of(call, tensor(call, 0, rank), tensor(call, 1, rank), out=dtype(call, 2) or "")


@rule("aten::addmm", "aten::addmm_", "aten::_addmm_activation", "aten::baddbmm", "aten::baddbmm_", family="matmul")
def _addmm(call: OpCall) -> Work:
    # addmm(..., out_dtype, *, beta, alpha) has one argument more than addmm(..., *, beta, alpha).
    typed = len(call.inputs) == 6 and isinstance(call.inputs[5], Scalar) and "activation" not in call.name
    # beta = 0 means that the added tensor is not read.
    added = None if number(call, 4 if typed else 3) == 0.0 else maybe_tensor(call, 0)
    if is_sparse(call):
        return sparse_product(call, tensor(call, 1), tensor(call, 2), added)
    out = dtype(call, 3) if typed else None
    return product_of(call, tensor(call, 1), tensor(call, 2), added=added, out=out or "")


@rule("aten::addbmm", "aten::addbmm_", family="matmul")
def _addbmm(call: OpCall) -> Work:
    added, left, right = tensor(call, 0), tensor(call, 1, 3), tensor(call, 2, 3)
    work = product_of(call, left, right, added=None if number(call, 3) == 0.0 else added)
    result = (left.shape[1], right.shape[2])
    return contraction(
        call,
        flop=work.matrix_flop or 0.0,
        dtype=left.dtype,
        read=work.bytes_read or 0.0,
        written=write_bytes(result, left.dtype),
    )


@rule("aten::linear", "aten::mkldnn_linear", "mkldnn::_linear_pointwise", "mkl::_mkl_linear", family="matmul")
@rule("quantized::linear_dynamic_fp16_unpacked_weight", "aten::_mixed_dtypes_linear", family="matmul")
@rule("onednn::qlinear_pointwise", family="matmul")
def _linear(call: OpCall) -> Work:
    """(input, weight, bias); MKL's has the packed weight first, fused sums another tensor, oneDNN's scales between."""
    place = {"mkl::_mkl_linear": 2, "onednn::qlinear_pointwise": 3}.get(call.name, 1)
    if call.name == "mkldnn::_linear_pointwise" and len(call.inputs) == 5:  # (input, other, weight, bias, attr)
        place = 2
    given, weight = tensor(call, 0), tensor(call, place, 2)
    rows = given.shape[:-1]
    inner = _inner(given, weight.shape[1])
    return contraction(
        call,
        flop=FMA_FLOP * numel(rows) * weight.shape[0] * inner,
        dtype=given.dtype,
        read=read_bytes(given, weight, maybe_tensor(call, place + 1)),
        written=write_bytes((*rows, weight.shape[0]), given.dtype),
    )


@rule("aten::linear_backward", "aten::mkldnn_linear_backward", family="matmul")
def _linear_backward(call: OpCall) -> Work:
    """(input, gradient, weight, mask): a product for the input's gradient and one for the weight's."""
    given, grad, weight, mask = tensor(call, 0), tensor(call, 1), tensor(call, 2, 2), flags(call, 3)
    if mask is None or len(mask) != 3:
        raise Uncounted("which gradients are computed is not recorded")
    once = FMA_FLOP * numel(given.shape) * weight.shape[0]
    written = mask[0] * write_bytes(given.shape, given.dtype) + mask[1] * write_bytes(weight.shape, weight.dtype)
    written += mask[2] * write_bytes(weight.shape[:1], weight.dtype)
    read = mask[0] * read_bytes(grad, weight) + mask[1] * read_bytes(grad, given) + mask[2] * read_bytes(grad)
    return contraction(call, flop=once * (mask[0] + mask[1]), dtype=given.dtype, read=read, written=written)


@rule("aten::mkldnn_linear_backward_input", "aten::mkldnn_linear_backward_weights", family="matmul")
def _linear_backward_part(call: OpCall) -> Work:
    """(input size, gradient, weight) or (gradient, input, weight, bias?): one product."""
    of_input = call.name.endswith("input")
    grad, weight = tensor(call, 1 if of_input else 0), tensor(call, 2, 2)
    given = None if of_input else tensor(call, 1)
    rows = numel(grad.shape[:-1])
    written = rows * weight.shape[1] if of_input else numel(weight.shape)
    return contraction(
        call,
        flop=FMA_FLOP * rows * numel(weight.shape),
        dtype=grad.dtype,
        read=read_bytes(grad, weight if given is None else given),
        written=write_bytes((written,), grad.dtype),
    )


@rule("aten::matmul_backward", family="matmul")
def _matmul_backward(call: OpCall) -> Work:
    """(gradient, left, right, mask): each gradient is a product of as many FLOP as the forward."""
    grad, left, right, mask = tensor(call, 0), tensor(call, 1), tensor(call, 2), flags(call, 3)
    if mask is None or len(mask) != 2 or not left.shape or not right.shape:
        raise Uncounted("which gradients are computed is not recorded")
    once = FMA_FLOP * numel(grad.shape) * left.shape[-1]
    read = mask[0] * read_bytes(grad, right) + mask[1] * read_bytes(grad, left)
    written = mask[0] * write_bytes(left.shape, left.dtype) + mask[1] * write_bytes(right.shape, right.dtype)
    return contraction(call, flop=once * (mask[0] + mask[1]), dtype=left.dtype, read=read, written=written)


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
    if is_sparse(call):
        return sparse_product(call, tensor(call, 0), tensor(call, 1))
    return _times_vector(call, tensor(call, 0), tensor(call, 1, 1), None)


@rule("aten::addmv", "aten::addmv_", family="matmul")
def _addmv(call: OpCall) -> Work:
    added = None if number(call, 3) == 0.0 else tensor(call, 0)
    if is_sparse(call):
        return sparse_product(call, tensor(call, 1), tensor(call, 2), added)
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
    lists = (call.inputs[place] for place in (2, 5) if place < len(call.inputs)) if second else ()
    in_lists = (item for argument in lists if isinstance(argument, TensorList) for item in argument.items)
    scales = read_bytes(*in_lists) if second else read_bytes(maybe_tensor(call, 2), maybe_tensor(call, 3))
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


@rule("aten::_weight_int4pack_mm_for_cpu", family="matmul")
def _int4_weights_of_a_cpu(call: OpCall) -> Work:
    # Here the packed weight is (N, K / 2) of uint8.
    given, weight = tensor(call, 0, 2), tensor(call, 1, 2)
    return _weight_only(call, given, weight, weight.shape[0], (maybe_tensor(call, 3),))


@rule("aten::_dyn_quant_matmul_4bit", "aten::_wrapped_quantized_linear_prepacked", family="matmul")
def _packed_weights(call: OpCall) -> Work:
    """The columns are a number among the arguments: the packed weight has no shape of its own."""
    columns = integer(call, 4 if call.name.endswith("4bit") else 6)
    given, weight = tensor(call, 0), maybe_tensor(call, 1 if call.name.endswith("4bit") else 3)
    if columns is None or columns < 0 or not given.shape:
        raise Uncounted("the layer's width is not recorded")
    rows = given.shape[:-1]
    return contraction(
        call,
        flop=FMA_FLOP * numel(given.shape) * columns,
        dtype=given.dtype,
        read=read_bytes(given, weight),
        written=write_bytes((*rows, columns), given.dtype),
        count="bounded",
        note="quantizing the input on the way is not counted",
    )


def _weight_only(call: OpCall, given: Tensor, weight: Tensor, columns: int, scales: tuple[Tensor | None, ...]) -> Work:
    rows, inner = given.shape
    return contraction(
        call,
        flop=FMA_FLOP * rows * columns * inner,
        dtype=given.dtype,
        read=read_bytes(given, weight, *scales),
        written=write_bytes((rows, columns), given.dtype),
    )


# Positions of the groups' ends and of the result's type.
_GROUPED = {"aten::_grouped_mm": (2, 4), "aten::_scaled_grouped_mm": (4, 7), "aten::_scaled_grouped_mm_v2": (8, 10)}


@rule(*_GROUPED, family="matmul")
def _grouped(call: OpCall) -> Work:
    scaled = call.name.startswith("aten::_scaled")
    left, right = tensor(call, 0), tensor(call, 1)
    offsets_place, out_place = _GROUPED[call.name]
    offsets = maybe_tensor(call, offsets_place)
    out = dtype(call, out_place) or ("bfloat16" if scaled else left.dtype)
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
