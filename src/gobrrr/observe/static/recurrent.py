"""Recurrent layers as a GPU runs them: one call of cuDNN's for all steps, where a CPU has several operations a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from gobrrr.observe.static.recorder import Recorder

_VF: Any = torch._VF
MODES: dict[Any, tuple[int, int]] = {_VF.rnn_relu: (0, 1), _VF.rnn_tanh: (1, 1), _VF.lstm: (2, 4), _VF.gru: (3, 3)}
"""By torch's function: cuDNN's number for the kind of layer (cudnnRNNMode_t), and its gates."""


class Layers(NamedTuple):
    """What the layers are, beside their weights."""

    mode: int
    gates: int
    number: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool


def layers(function: Any, args: Sequence[Any], recorder: Recorder) -> Any:
    """`torch.lstm(data, states, weights, bias, ...)` and its kin, of data that is not packed; None for packed data.

    Raises nothing of its own: what cuDNN would refuse is not checked.
    """
    if len(args) != 9 or isinstance(args[2], torch.Tensor):
        return None
    data, states, weights, _, number, dropout, train, bidirectional, batch_first = args
    kind = Layers(*MODES[function], number, dropout, train, bidirectional, batch_first)
    hidden, cell = states if isinstance(states, list | tuple) else (states, None)
    given = (data, hidden, cell, *weights)
    if torch.is_autocast_enabled("cuda"):
        low = torch.get_autocast_dtype("cuda")
        given = tuple(None if one is None else one.to(low) for one in given)
    output, last, cells = _Recurrent.apply(recorder, kind, *given)
    return (output, last) if cell is None else (output, last, cells)


class _Recurrent(torch.autograd.Function):
    """Results without values: of the right shape, dtype and lifetime."""

    @staticmethod
    def forward(ctx: Any, recorder: Recorder, kind: Layers, data: Any, hidden: Any, cell: Any, *weights: Any) -> Any:
        """The last layer's states of all steps, and all layers' last states."""
        ctx.recorder, ctx.kind = recorder, kind
        with recorder.instead("aten::_cudnn_rnn", _arguments(kind, data, hidden, cell, weights)) as outputs:
            directions = 2 if kind.bidirectional else 1
            output = data.new_empty((*data.shape[:-1], directions * hidden.shape[-1]))
            last = torch.empty_like(hidden)
            cells = None if cell is None else torch.empty_like(cell)
            # what the backward pass reads again of each step and layer: the gates and the state
            each = (kind.gates + 1) * (weights[1].shape[0] // kind.gates)
            kept = kind.number * directions * data.shape[0] * data.shape[1] * each
            reserve = data.new_empty((kept if kind.train else 0,))
            outputs.extend(one for one in (output, last, cells) if one is not None)
        ctx.save_for_backward(data, hidden, cell, output, reserve, *weights)
        return output, last, cells

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Gradients of the data, the first states and the weights."""
        data, hidden, cell, output, reserve, *weights = ctx.saved_tensors
        head, tail = (data, tuple(weights), 4, None, hidden, cell), _options(ctx.kind, hidden, weights)
        args = (*head, output, *gradients, *tail, reserve, [True, True, cell is not None, True])
        with ctx.recorder.instead("aten::_cudnn_rnn_backward", args) as outputs:
            made = [None if weight is None else torch.empty_like(weight) for weight in (data, hidden, cell, *weights)]
            outputs.extend(one for one in made if one is not None)
        return (None, None, *made)


def _arguments(kind: Layers, data: Any, hidden: Any, cell: Any, weights: Sequence[Any]) -> tuple[Any, ...]:
    """In the order of aten::_cudnn_rnn's schema."""
    return (data, tuple(weights), 4, None, hidden, cell, *_options(kind, hidden, weights))


def _options(kind: Layers, hidden: Any, weights: Sequence[Any]) -> tuple[Any, ...]:
    width = weights[1].shape[0] // kind.gates
    projected = hidden.shape[-1] if hidden.shape[-1] != width else 0
    options = (kind.mode, width, projected, kind.number, kind.batch_first, kind.dropout, kind.train)
    return (*options, kind.bidirectional, (), None)
