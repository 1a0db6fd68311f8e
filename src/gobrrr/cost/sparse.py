"""Products with sparse operands: 2 FLOP for each stored element and column of the dense operand.

A trace records a sparse tensor's size as if it were dense; how many elements it stores (`Tensor.nnz`) only a recorder
sees. Where it isn't known the product is unknown: its dense count would be too much by the inverse of its density.
"""

from __future__ import annotations

import re

from gobrrr.cost.arguments import maybe_tensor, number, tensor
from gobrrr.cost.build import contraction, copy, made_bytes
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import FMA_FLOP, item_bytes, numel, read_bytes, write_bytes
from gobrrr.model.work import OpCall, Tensor, Work

INDEX_BYTES = 8  # an int64 column index for each stored element; COO has a row index as well
SPARSE_NOTE = "indices are taken as one int64 for each stored element"
_KERNELS = re.compile(r"cusparse|csrmm|csrmv|coomm|coomv|spmm|spmv|sddmm", re.IGNORECASE)
"""What kernels of sparse libraries are called."""


def is_sparse(call: OpCall) -> bool:
    """Whether an operand is sparse, or a kernel of a sparse library ran."""
    given = (maybe_tensor(call, place) for place in range(3))
    return any(operand is not None and operand.nnz is not None for operand in given) or any(
        map(_KERNELS.search, call.kernels)
    )


def stored(given: Tensor) -> int:
    """Elements that a sparse tensor stores. Raises Uncounted where it isn't known."""
    if given.nnz is None or given.nnz < 0:
        raise Uncounted("how many elements a sparse tensor stores is not recorded")
    return given.nnz


def sparse_bytes(given: Tensor) -> float:
    """Bytes of the stored values and their column indices."""
    return stored(given) * (item_bytes(given.dtype) + INDEX_BYTES)


def sparse_product(call: OpCall, left: Tensor, right: Tensor, added: Tensor | None = None) -> Work:
    """A sparse matrix (either side) times a dense matrix or vector."""
    if left.nnz is not None and right.nnz is not None:
        raise Uncounted("a product of two sparse matrices depends on where their elements are")
    sparse, dense = (left, right) if left.nnz is not None or right.nnz is None else (right, left)
    count = stored(sparse)
    if not dense.shape or len(sparse.shape) < 2:
        raise Uncounted("a sparse product of something that isn't a matrix")
    on_left = sparse is left
    others = 1 if len(dense.shape) == 1 else dense.shape[-1] if on_left else dense.shape[-2]
    rows = sparse.shape[-2] if on_left else sparse.shape[-1]
    return contraction(
        call,
        flop=FMA_FLOP * count * others,
        dtype=sparse.dtype,
        read=sparse_bytes(sparse) + read_bytes(dense, added),
        written=write_bytes((rows, others), dense.dtype),
        count="bounded",
        note=SPARSE_NOTE,
    )


@rule("aten::_sparse_mm", "aten::hspmm", "aten::smm", "aten::_sparse_sparse_matmul", family="sparse")
@rule("aten::_sparse_mm_reduce_impl", family="sparse")
def _mm(call: OpCall) -> Work:
    if call.name == "aten::_sparse_sparse_matmul":
        raise Uncounted("a product of two sparse matrices depends on where their elements are")
    return sparse_product(call, tensor(call, 0), tensor(call, 1))


@rule("aten::_sparse_addmm", "aten::sspaddmm", family="sparse")
def _addmm(call: OpCall) -> Work:
    added = tensor(call, 0)
    return sparse_product(call, tensor(call, 1), tensor(call, 2), added if added.nnz is None else None)


@rule("aten::sparse_sampled_addmm", family="sparse")
def _sampled(call: OpCall) -> Work:
    """The dense product only where the sparse matrix stores something."""
    pattern, left, right = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    if len(left.shape) < 2 or len(right.shape) < 2:
        raise Uncounted("a matrix product of something that isn't a matrix")
    written = stored(pattern) * item_bytes(pattern.dtype)
    return contraction(
        call,
        flop=FMA_FLOP * stored(pattern) * left.shape[-1],
        dtype=left.dtype,
        read=read_bytes(left, right) + (sparse_bytes(pattern) if number(call, 3) != 0.0 else 0.0),
        written=written,
        count="bounded",
        note=SPARSE_NOTE,
    )


@rule("aten::_sparse_mm_reduce_impl_backward", family="sparse")
def _reduce_backward(call: OpCall) -> Work:
    """A sampled product for the values' gradient, a product with the transpose for the dense operand's."""
    sparse, grad, other = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    columns = other.shape[-1] if other.shape else 1
    made = made_bytes(call)
    return contraction(
        call,
        flop=2 * FMA_FLOP * stored(sparse) * columns,
        dtype=sparse.dtype,
        read=sparse_bytes(sparse) + read_bytes(grad, other),
        written=read_bytes(other) if made is None else made,
        count="bounded",
        note=f"both gradients are taken as computed; {SPARSE_NOTE}",
    )


@rule("aten::_sparse_semi_structured_mm", "aten::_sparse_semi_structured_addmm", family="sparse")
def _half(call: OpCall) -> Work:
    """2:4: the first operand keeps half of its columns, so the product is half of the dense one."""
    shift = 1 if "addmm" in call.name else 0
    kept, meta, dense = (tensor(call, shift + place, 2) for place in range(3))
    return contraction(
        call,
        flop=FMA_FLOP * numel(kept.shape) * dense.shape[1],
        dtype=kept.dtype,
        read=read_bytes(kept, meta, dense, maybe_tensor(call, 0) if shift else None),
        written=write_bytes((kept.shape[0], dense.shape[1]), dense.dtype),
        count="bounded",
        note="only the kept half is multiplied: sparse tensor cores do it at up to twice the dense rate",
    )


@rule("aten::_sparse_semi_structured_linear", family="sparse")
def _half_linear(call: OpCall) -> Work:
    given, kept, meta = tensor(call, 0), tensor(call, 1, 2), tensor(call, 2)
    rows = given.shape[:-1]
    return contraction(
        call,
        flop=FMA_FLOP * numel(rows) * numel(kept.shape),
        dtype=given.dtype,
        read=read_bytes(given, kept, meta, maybe_tensor(call, 3)),
        written=write_bytes((*rows, kept.shape[0]), given.dtype),
        count="bounded",
        note="only the kept half is multiplied: sparse tensor cores do it at up to twice the dense rate",
    )


@rule("aten::_cslt_sparse_mm", family="sparse")
def _compressed(call: OpCall) -> Work:
    """cuSPARSELt hides the sparse operand's size in one buffer: the result's size is needed."""
    kept, dense = tensor(call, 0), tensor(call, 1, 2)
    if not call.outputs:
        raise Uncounted("the sparse operand's size is in a buffer that the profiler doesn't record")
    out = call.outputs[0]
    return contraction(
        call,
        flop=FMA_FLOP * numel(out.shape) * dense.shape[0] / 2,
        dtype=dense.dtype,
        read=read_bytes(kept, dense),
        written=write_bytes(out.shape, out.dtype),
        count="bounded",
        note="only the kept half is multiplied: sparse tensor cores do it at up to twice the dense rate",
    )


@rule("aten::_to_sparse", "aten::_to_sparse_csr", "aten::_to_sparse_csc", "aten::_to_sparse_bsr", family="sparse")
@rule("aten::_to_sparse_bsc", "aten::sparse_mask", "aten::_sparse_mask_projection", "aten::_coalesce", family="sparse")
def _made(call: OpCall) -> Work:
    if not call.outputs:
        raise Uncounted("how many elements the sparse result stores is not recorded")
    written = sum(sparse_bytes(output) for output in call.outputs)
    return copy(read=read_bytes(tensor(call, 0)), written=written, count="bounded", note=SPARSE_NOTE, fusible=False)
