"""What the profiler leaves out of a call, from the same step as it was dispatched in a live run.

The profiler writes the sizes in a list of tensors and not their element types, drops lists of more than 30, and has no
word for lists of optional tensors. A live run has one step's operations with all of it: a call is the recorded one
where name and sizes are the same.
"""

from __future__ import annotations

from gobrrr.model.recording import Recording
from gobrrr.model.work import Argument, OpCall, Scalar, Tensor, TensorList

Sizes = tuple[tuple[int, ...], ...]
Plain = tuple[str, Sizes]


class Recorded:
    """The calls with lists of one recorded step, by name and the sizes of their other tensors."""

    def __init__(self, seen: Recording | None) -> None:
        self._known: dict[Plain, dict[Sizes, OpCall]] = {}
        for call in seen.calls if seen is not None else ():
            if any(isinstance(value, TensorList) for value in call.call.inputs):
                self._known.setdefault(_plain(call.call), {}).setdefault(_listed(call.call), call.call)

    def complete(self, call: OpCall) -> OpCall:
        """The call with its lists of tensors as they were recorded; as it is where none was, or several could be it."""
        if not any(map(_lacks, call.inputs)):
            return call
        same = self._known.get(_plain(call), {})
        told = same.get(_listed(call))
        if told is None and not _listed(call) and len(same) == 1:
            told = next(iter(same.values()))
        if told is None:
            return call
        pairs = zip(call.inputs, (*told.inputs, *call.inputs[len(told.inputs) :]), strict=False)
        inputs = tuple(new if _lacks(mine) and isinstance(new, TensorList) else mine for mine, new in pairs)
        return OpCall(
            name=call.name,
            inputs=inputs,
            kernels=call.kernels,
            copied_bytes=call.copied_bytes,
            collective=call.collective,
            outputs=call.outputs,
        )


def _plain(call: OpCall) -> Plain:
    return call.name, tuple(one.shape for one in call.inputs if isinstance(one, Tensor))


def _listed(call: OpCall) -> Sizes:
    return tuple(item.shape for one in call.inputs if isinstance(one, TensorList) for item in one.items)


def _lacks(value: Argument) -> bool:
    """Whether an argument may be a list of tensors that was dropped, or is one without element types."""
    if isinstance(value, Scalar):
        return not value.text  # lists of optional tensors (indices) are not recorded as tensors at all
    return isinstance(value, TensorList) and not (value.items and all(item.dtype for item in value.items))
