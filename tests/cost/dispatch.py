"""A recorder for tests: every aten call below autograd as an OpCall, written apart from the static door's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from gobrrr.cost import price
from gobrrr.cost.arguments import DTYPE_CODES
from gobrrr.cost.build import contraction_flop
from gobrrr.model.work import Argument, OpCall, Scalar, Tensor, TensorList, Work

CODES = {name: code for code, name in DTYPE_CODES.items()}


class Seen(NamedTuple):
    """One call: as a trace would have it (no outputs), with the tensors that went in and came out."""

    call: OpCall
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]

    def with_outputs(self) -> OpCall:
        """The call as the recorder of the static door has it."""
        return msgspec.structs.replace(self.call, outputs=tuple(map(tensor_of, self.outputs)))


def tensor_of(value: Any) -> Tensor:
    """Shape, dtype and strides; how many elements a sparse tensor stores."""
    import torch

    dtype = str(value.dtype).removeprefix("torch.")
    if value.layout is torch.strided:
        return Tensor(tuple(value.shape), dtype, tuple(value.stride()))
    return Tensor(tuple(value.shape), dtype, None, int(value._nnz()))


def argument_of(value: Any) -> Argument:
    """As the profiler prints it."""
    import torch

    if isinstance(value, torch.Tensor):
        return tensor_of(value)
    if isinstance(value, list | tuple):
        tensors = [one for one in value if isinstance(one, torch.Tensor)]
        return TensorList(tuple(map(tensor_of, tensors))) if tensors else Scalar(f"[{', '.join(map(str, value))}]")
    if isinstance(value, torch.dtype):
        return Scalar(str(CODES[str(value).removeprefix("torch.")]))
    skipped = torch.layout | torch.device | torch.memory_format | torch.Generator
    return Scalar("" if value is None or isinstance(value, skipped) else str(value))


def record(function: Callable[[], Any]) -> list[Seen]:
    """What `function` dispatches, its own backward calls included."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[Seen] = []

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            seen.append(_seen(func, args, kwargs or {}, result))
            return result

    with Mode():
        function()
    return seen


def _seen(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Seen:
    import torch
    from torch.utils._pytree import tree_leaves

    values = [
        args[place] if place < len(args) else kwargs.get(one.name, one.default_value)
        for place, one in enumerate(func._schema.arguments)
    ]
    call = OpCall(name=func._schema.name, inputs=tuple(map(argument_of, values)))
    into, out = (
        tuple(one for one in tree_leaves(tree) if isinstance(one, torch.Tensor)) for tree in ((args, kwargs), result)
    )
    return Seen(call, into, out)


def works(function: Callable[[], Any]) -> dict[str, list[Work]]:
    """The Work of every call, by op."""
    found: dict[str, list[Work]] = {}
    for seen in record(function):
        found.setdefault(seen.call.name, []).append(price(seen.with_outputs()))
    return found


def matrix_flop(function: Callable[[], Any]) -> float:
    """Model FLOP of every contraction that `function` dispatches. Fails on an op that isn't counted."""
    total = 0.0
    for name, group in works(function).items():
        assert all(work.known for work in group), (name, next((work.note for work in group if not work.known), ""))
        total += sum(contraction_flop(work) or 0.0 for work in group)
    return total
