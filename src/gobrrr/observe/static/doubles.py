"""Fake tensors for the real ones that a step comes upon: its inputs, the weights of a model that is there already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

from gobrrr.observe.static.arguments import SPARSE, STORED, many_numbers
from gobrrr.observe.static.memory import Memory
from gobrrr.observe.static.values import Values, small


class Doubles:
    """One fake tensor for each real one, so that no operation ever reaches real data.

    `keep` is told of each real tensor before the step can change what belongs to it.
    """

    def __init__(self, fake: FakeTensorMode, memory: Memory, values: Values, keep: Callable[[Any], None]) -> None:
        self.fake, self.memory, self.values, self.keep = fake, memory, values, keep
        self._known: dict[int, tuple[Any, Any]] = {}  # by id, with the real tensor so that the id stays its own

    def of(self, tensor: Any) -> Any:
        """The fake tensor that stands for `tensor`; a fake one stands for itself."""
        if isinstance(tensor, FakeTensor):
            return tensor
        known = self._known.get(id(tensor))
        return known[1] if known is not None else self._made(tensor)

    def within(self, values: Any) -> Any:
        """Nested containers with their tensors replaced."""
        return tree_map_only(torch.Tensor, self.of, values)

    def given(self, value: Any) -> Any:
        """An operation's arguments with their tensors replaced, also those in lists."""
        if isinstance(value, torch.Tensor):
            return self.of(value)
        if isinstance(value, dict):
            return {key: self.given(one) for key, one in value.items()}
        if type(value) in (list, tuple) and not many_numbers(value):
            return type(value)(map(self.given, value))
        return value

    def _made(self, tensor: Any) -> Any:
        self.keep(tensor)
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            made = self.fake.from_tensor(tensor) if tensor.device.type in ("cpu", "meta") else self._here(tensor)
            if tensor.layout in SPARSE:
                setattr(made, STORED, tensor._nnz())
            self.memory.add(made, on_device=tensor.device.type != "cpu", old=True)
            if tensor.device.type == "cpu" and not tensor.requires_grad and small(tensor):
                self.values.keep(made, tensor.detach().clone())
        self._known[id(tensor)] = (tensor, made)
        return made

    def _here(self, tensor: Any) -> Any:
        """A double on the stand-in device of a tensor that is really on a GPU."""
        with self.fake:
            made = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="cpu")
        return made.requires_grad_(tensor.requires_grad)
