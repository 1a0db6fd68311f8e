"""Softmax and its logarithm: one read, one write.

5 FLOP an element forward (maximum, subtract, exponential, sum, divide), 4 backward.
"""

from __future__ import annotations

from gobrrr.cost.arguments import dtype, flag, tensor
from gobrrr.cost.build import vector
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import numel, read_bytes, write_bytes
from gobrrr.model.work import OpCall, Work

SOFTMAX_FLOP = 5
SOFTMAX_BACKWARD_FLOP = 4
"""FLOP an element: see above."""


@rule("aten::_softmax", "aten::_log_softmax", "aten::_safe_softmax", family="softmax")
def _softmax(call: OpCall) -> Work:
    given = tensor(call, 0)
    # The third argument widens a half input's result; _safe_softmax has a dtype there instead.
    widened = "float32" if flag(call, 2) and given.dtype in ("float16", "bfloat16") else given.dtype
    return _forward(call, widened)


@rule("aten::softmax", "aten::log_softmax", "aten::special_softmax", family="softmax")
def _composite(call: OpCall) -> Work:
    return _forward(call, dtype(call, 2) or tensor(call, 0).dtype)


def _forward(call: OpCall, out: str) -> Work:
    given = tensor(call, 0)
    count = numel(given.shape)
    return vector(
        flop=SOFTMAX_FLOP * count, dtype=given.dtype, read=read_bytes(given), written=write_bytes(given.shape, out)
    )


@rule("aten::_softmax_backward_data", "aten::_log_softmax_backward_data", family="softmax")
def _backward(call: OpCall) -> Work:
    grad, output = tensor(call, 0), tensor(call, 1)
    out = dtype(call, 3) or grad.dtype
    return vector(
        flop=SOFTMAX_BACKWARD_FLOP * numel(output.shape),
        dtype=grad.dtype,
        read=read_bytes(grad, output),
        written=write_bytes(output.shape, out),
    )


@rule("aten::_sparse_softmax", "aten::_sparse_log_softmax", family="softmax")
@rule("aten::_sparse_softmax_backward_data", "aten::_sparse_log_softmax_backward_data", family="softmax")
def _of_stored(call: OpCall) -> Work:
    """Over the elements that a sparse tensor stores; of one that isn't known to be sparse, nothing is known."""
    first, backward = tensor(call, 0), "backward" in call.name
    if first.nnz is None:
        raise Uncounted("how many elements a sparse tensor stores is not recorded")
    stored = max(0, first.nnz)
    return vector(
        flop=(SOFTMAX_BACKWARD_FLOP if backward else SOFTMAX_FLOP) * stored,
        dtype=first.dtype,
        read=read_bytes(first) * (2 if backward else 1),
        written=read_bytes(first),
        count="bounded",
        note="indices are not counted as traffic",
    )


@rule("aten::_masked_softmax_backward", family="softmax")
def _masked_backward(call: OpCall) -> Work:
    grad, output, mask = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    return vector(
        flop=SOFTMAX_BACKWARD_FLOP * numel(output.shape),
        dtype=grad.dtype,
        read=read_bytes(grad, output, mask),
        written=write_bytes(output.shape, grad.dtype),
    )


@rule("aten::_masked_softmax", family="softmax")
def _masked(call: OpCall) -> Work:
    given, mask = tensor(call, 0), tensor(call, 1)
    count = numel(given.shape)
    read = read_bytes(given, mask)
    return vector(
        flop=SOFTMAX_FLOP * count, dtype=given.dtype, read=read, written=write_bytes(given.shape, given.dtype)
    )
