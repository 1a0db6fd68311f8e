"""Arguments that the profiler leaves out of a call, from the same step as a live run recorded it.

The profiler records the sizes of a list of tensors without their element types, drops lists of more than 30 tensors,
and does not record lists of optional tensors. A live run records one step's operations completely; a profiled call is
taken to be the recorded call of the same name and sizes.
"""

from __future__ import annotations

from msgspec import structs

from gobrrr.model.recording import Recording
from gobrrr.model.work import Argument, OpCall, Scalar, Tensor, TensorList

Sizes = tuple[tuple[int, ...], ...]
Plain = tuple[str, Sizes]


class Recorded:
    """One recorded step's calls with lists, by name and by the sizes of their other tensors."""

    def __init__(self, seen: Recording | None) -> None:
        self._known: dict[Plain, dict[Sizes, OpCall]] = {}
        for call in seen.calls if seen is not None else ():
            if any(isinstance(value, TensorList) for value in call.call.inputs):
                self._known.setdefault(_plain(call.call), {}).setdefault(_listed(call.call), call.call)

    def complete(self, call: OpCall) -> OpCall:
        """The call with its recorded lists of tensors; unchanged where no recorded call, or several, may be it."""
        if not any(map(_lacks, call.inputs)):
            return call
        same = self._known.get(_plain(call), {})
        recorded = same.get(_listed(call))
        if recorded is None and not _listed(call) and len(same) == 1:
            recorded = next(iter(same.values()))
        if recorded is None:
            return call
        pairs = zip(call.inputs, (*recorded.inputs, *call.inputs[len(recorded.inputs) :]), strict=False)
        inputs = tuple(new if _lacks(old) and isinstance(new, TensorList) else old for old, new in pairs)
        return structs.replace(call, inputs=inputs)


def _plain(call: OpCall) -> Plain:
    return call.name, tuple(argument.shape for argument in call.inputs if isinstance(argument, Tensor))


def _listed(call: OpCall) -> Sizes:
    lists = (argument for argument in call.inputs if isinstance(argument, TensorList))
    return tuple(item.shape for tensors in lists for item in tensors.items)


def _lacks(value: Argument) -> bool:
    """Whether an argument may be a dropped list of tensors, or is a list without element types."""
    if isinstance(value, Scalar):
        return not value.text  # lists of optional tensors (indices) are not recorded as tensors
    return isinstance(value, TensorList) and not (value.items and all(item.dtype for item in value.items))
