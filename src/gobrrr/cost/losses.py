"""Losses that are neither pointwise nor a plain choice: margins over classes, connectionist temporal classification."""

from __future__ import annotations

from gobrrr.cost.arguments import flag, maybe_tensor, tensor, tensors
from gobrrr.cost.build import contraction, made_bytes, vector
from gobrrr.cost.registry import rule
from gobrrr.cost.shapes import FMA_FLOP, numel, read_bytes, write_bytes
from gobrrr.model.work import OpCall, Work

MARGIN_FLOP = 4  # a difference, the margin, the clamp, the sum
LATTICE_FLOP = 12  # the log-sum-exp of three neighbours, and the emission


@rule("aten::multi_margin_loss", "aten::multilabel_margin_loss_forward", family="reduction")
@rule("aten::multi_margin_loss_backward", "aten::multilabel_margin_loss_backward", family="reduction")
def _margin(call: OpCall) -> Work:
    """One target class: each score once. Several: at most each class against each."""
    backward = call.name.endswith("backward")
    scores = tensor(call, 1 if backward else 0)
    several = scores.shape[-1] if "multilabel" in call.name and scores.shape else 1
    made = made_bytes(call)
    return vector(
        flop=MARGIN_FLOP * numel(scores.shape) * several,
        dtype=scores.dtype,
        read=read_bytes(*tensors(call)),
        written=write_bytes(scores.shape if backward else (), scores.dtype) if made is None else made,
        count="bounded",
        note="each class is taken as a target" if several > 1 else "the sum over rows is not counted apart",
        fusible=False,
    )


@rule("aten::_ctc_loss", "aten::_ctc_loss_backward", "aten::_cudnn_ctc_loss", "aten::miopen_ctc_loss",
      family="reduction")  # fmt: skip
def _temporal(call: OpCall) -> Work:
    """The lattice of T steps and 2 L + 1 states a sequence: each sums three neighbours in logarithms."""
    backward = call.name.endswith("backward")
    scores, targets = tensor(call, 1 if backward else 0, 3), tensor(call, 2 if backward else 1)
    steps, batch, _ = scores.shape
    longest = targets.shape[-1] if len(targets.shape) == 2 else -(-numel(targets.shape) // max(1, batch))
    states = batch * steps * (2 * longest + 1)
    made = made_bytes(call)
    plain = write_bytes(scores.shape, scores.dtype) if backward else write_bytes((states,), scores.dtype)
    return vector(
        flop=LATTICE_FLOP * states * (2 if backward else 1),
        dtype=scores.dtype,
        read=read_bytes(*tensors(call)),
        written=plain if made is None else made,
        count="bounded",
        note="every sequence is taken as long as the longest",
        fusible=False,
    )


@rule("torch_nn::_linear_cross_entropy_batch_chunked", family="matmul")
@rule("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction", family="matmul")
def _linear_cross_entropy(call: OpCall) -> Work:
    """A linear layer and a cross entropy in one, chunk by chunk: the scores never exist at once."""
    given, weight, target = tensor(call, 0), tensor(call, 1, 2), maybe_tensor(call, 2)
    rows, made = numel(given.shape[:-1]), made_bytes(call)
    # The reducing form computes the gradients of input and weight along with the loss, where they are asked for.
    ahead = [bool(flag(call, place)) for place in (12, 13)] if not call.name.endswith("no_reduction") else []
    return contraction(
        call,
        flop=FMA_FLOP * rows * numel(weight.shape) * (1 + sum(ahead)),
        dtype=given.dtype,
        read=read_bytes(given, weight, target),
        written=write_bytes((rows,), given.dtype) if made is None else made,
        count="bounded",
        note="the scores of a chunk are not counted as traffic",
    )
