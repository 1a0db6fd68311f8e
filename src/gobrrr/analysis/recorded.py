"""What the profiler leaves out of a call, from the same step as it was dispatched in a live run.

The profiler writes the sizes in a list of tensors and not their element types, and drops lists of more than 30. A live
run has one step's operations with all of it: a call is the recorded one where name and sizes are the same.
"""

from __future__ import annotations

from gobrrr.model.recording import Recording
from gobrrr.model.work import OpCall, TensorList

Key = tuple[str, tuple[tuple[int, ...], ...]]


class Recorded:
    """The calls with lists of one recorded step."""

    def __init__(self, seen: Recording | None) -> None:
        self._by_sizes: dict[Key, OpCall] = {}
        self._by_name: dict[str, dict[Key, OpCall]] = {}
        for one in seen.calls if seen is not None else ():
            if any(isinstance(value, TensorList) for value in one.call.inputs):
                key = _key(one.call)
                self._by_sizes.setdefault(key, one.call)
                self._by_name.setdefault(one.call.name, {}).setdefault(key, one.call)

    def complete(self, call: OpCall) -> OpCall:
        """The call with its lists of tensors as they were recorded; as it is where none was, or several could be it."""
        if not self._by_sizes or not any(_lacks(value) for value in call.inputs):
            return call
        known = self._by_sizes.get(_key(call))
        if known is None and any(isinstance(one, TensorList) and not one.items for one in call.inputs):
            same = self._by_name.get(call.name, {})
            known = next(iter(same.values())) if len(same) == 1 else None
        if known is None:
            return call
        inputs = list(call.inputs)
        for at, (mine, told) in enumerate(zip(call.inputs, known.inputs, strict=False)):
            if _lacks(mine) and isinstance(told, TensorList):
                inputs[at] = told
        return OpCall(
            name=call.name,
            inputs=tuple(inputs),
            kernels=call.kernels,
            copied_bytes=call.copied_bytes,
            collective=call.collective,
            outputs=call.outputs,
        )


def _key(call: OpCall) -> Key:
    """The operation and the sizes of all tensors in its lists."""
    lists = [one for one in call.inputs if isinstance(one, TensorList)]
    return call.name, tuple(item.shape for one in lists for item in one.items)


def _lacks(value: object) -> bool:
    """Whether an argument is a list of tensors that was dropped, or that has no element types."""
    return isinstance(value, TensorList) and not (value.items and all(one.dtype for one in value.items))
