"""Recurrent layers: every weight matrix meets every token once, 2 FLOP a weight and token; the backward pass twice."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.cost.arguments import flag, integer, maybe_tensor, tensor, tensor_list
from gobrrr.cost.build import contraction, made_bytes, vector
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import FMA_FLOP, numel, read_bytes, write_bytes
from gobrrr.model.work import OpCall, Tensor, TensorList, Work

_NOTE = "weights and input are taken as read once; the steps read the weights again if they don't stay in the cache"
"""The note of every recurrent layer."""


def _layers(
    call: OpCall, given: Tensor, weights: Sequence[Tensor], *, hidden: int | None, directions: int, passes: int
) -> Work:
    if len(given.shape) < 2:
        raise Uncounted("a recurrent layer whose input has no time dimension")
    tokens = numel(given.shape[:-1])
    kind = given.dtype
    typed = [Tensor(weight.shape, weight.dtype or kind, weight.strides) for weight in weights]
    matrices = [matrix for matrix in typed if len(matrix.shape) == 2]
    width = hidden or min((matrix.shape[1] for matrix in matrices), default=0)
    read = read_bytes(given, *typed)
    return contraction(
        call,
        flop=passes * FMA_FLOP * tokens * sum(numel(matrix.shape) for matrix in matrices),
        dtype=kind,
        read=passes * read,
        written=write_bytes((tokens, width * directions), kind) + (read if passes > 1 else 0.0),
        count="bounded",
        note=_NOTE,
    )


@rule("aten::_cudnn_rnn", "aten::miopen_rnn", family="recurrent")
def _vendor_rnn(call: OpCall) -> Work:
    # (input, weights, stride, [weight buffer,] hx, cx, mode, hidden size, ...): cuDNN has one argument more.
    shift = 0 if call.name == "aten::_cudnn_rnn" else -1
    hidden = integer(call, 7 + shift)
    directions = 2 if flag(call, (13 if shift == 0 else 11)) else 1
    return _layers(call, tensor(call, 0), tensor_list(call, 1), hidden=hidden, directions=directions, passes=1)


@rule("aten::_cudnn_rnn_backward", "aten::miopen_rnn_backward", family="recurrent")
def _vendor_rnn_backward(call: OpCall) -> Work:
    return _layers(call, tensor(call, 0), tensor_list(call, 1), hidden=None, directions=1, passes=2)


@rule("aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu", family="recurrent")
def _composite(call: OpCall) -> Work:
    """(input, state, weights, ...); packed sequences have their batch sizes second: (data, sizes, state, weights)."""
    places = [place for place, argument in enumerate(call.inputs) if isinstance(argument, TensorList)]
    if not places:
        raise Uncounted("the weights are not recorded")
    last = places[-1]
    directions = 2 if flag(call, last + 5) else 1
    return _layers(call, tensor(call, 0), tensor_list(call, last), hidden=None, directions=directions, passes=1)


@rule("aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward", family="recurrent")
def _mkldnn(call: OpCall) -> Work:
    """One layer in one direction; the backward pass has a product for the input's gradient and one for the weights'."""
    weights = [weight for weight in (maybe_tensor(call, place) for place in range(1, 5)) if weight is not None]
    passes = 2 if call.name.endswith("backward") else 1
    return _layers(call, tensor(call, 0), weights, hidden=None, directions=1, passes=passes)


@rule("aten::_thnn_fused_lstm_cell_backward_impl", "aten::_thnn_fused_gru_cell_backward", family="recurrent")
def _fused_cell_backward(call: OpCall) -> Work:
    """Pointwise over the saved gates; writes the gates' gradient and the state's."""
    given = [argument for argument in call.inputs if isinstance(argument, Tensor)]
    saved = tensor(call, 4 if "lstm" in call.name else 1)
    made = made_bytes(call)
    return vector(
        flop=5 * numel(saved.shape),
        dtype=saved.dtype,
        read=read_bytes(*given),
        written=write_bytes(saved.shape, saved.dtype) if made is None else made,
        count="exact" if made is not None else "bounded",
        note="" if made is not None else "the state's gradient is not counted as written",
    )


@rule("aten::lstm_cell", "aten::gru_cell", "aten::rnn_tanh_cell", "aten::rnn_relu_cell", family="recurrent")
def _cell(call: OpCall) -> Work:
    given = tensor(call, 0, 2)
    weights = [weight for weight in (maybe_tensor(call, 2), maybe_tensor(call, 3)) if weight is not None]
    return _layers(call, given, weights, hidden=None, directions=1, passes=1)


@rule("aten::_thnn_fused_lstm_cell", "aten::_thnn_fused_gru_cell", family="recurrent")
def _fused_cell(call: OpCall) -> Work:
    """Pointwise: both gates' pre-activations and the state in; the new state(s) and the saved gates out."""
    gates, other, state = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    states = 2 if "lstm" in call.name else 1
    saved = (4 if "lstm" in call.name else 5) * numel(state.shape)
    written = states * write_bytes(state.shape, state.dtype) + write_bytes((saved,), state.dtype)
    biases = (maybe_tensor(call, 3), maybe_tensor(call, 4))
    return vector(
        flop=3 * numel(gates.shape),
        dtype=gates.dtype,
        read=read_bytes(gates, other, state, *biases),
        written=written,
    )
