"""Host or device: on which side of the link each tensor is, although all of them stand on the same stand-in device.

A build of torch without CUDA can't run a backward pass on tensors that claim to be on a GPU. So a step that asks for
"cuda" runs on fake CPU tensors, and which of them stand for tensors of the GPU is kept here, by storage: what an
operation computes from a tensor of the device is on the device. Where torch has CUDA, tensors say it themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch._subclasses.fake_tensor import FakeTensor

from gobrrr.observe.static.arguments import many_numbers
from gobrrr.observe.static.memory import Memory

Side = Literal["device", "host"]
Copy = Literal["", "HtoD", "DtoH"]


class Sides:
    """The side of each tensor. `native`: tensors know their device; otherwise it follows from what made them."""

    def __init__(self, memory: Memory, *, native: bool) -> None:
        self.memory = memory
        self.native = native
        self._forced: Side | None = None
        self._around: Side = "host"

    @contextmanager
    def forced(self, side: Side | None) -> Iterator[None]:
        """What is made in the block is on `side`, whatever it is made from."""
        before, self._forced = self._forced, side
        try:
            yield
        finally:
            self._forced = before

    @contextmanager
    def within(self, args: Any) -> Iterator[None]:
        """What is made from nothing in the block is on the side of `args`."""
        before = self._around
        if (
            args
            and not self.native
            and before == "host"
            and any(self.of(tensor) == "device" for tensor in tensors_of(args))
        ):
            self._around = "device"
        try:
            yield
        finally:
            self._around = before

    @property
    def making(self) -> Side | None:
        """The side on which new tensors are made now, where the program named one."""
        return self._forced

    def of(self, tensor: Any) -> Side:
        """The side of one tensor."""
        kind = _kind(tensor)
        if self.native or kind == "meta":
            return "host" if kind == "cpu" else "device"
        while _wrapped(tensor):  # by torch.func
            tensor = _unwrapped(tensor)
        return "device" if self.memory.holds(tensor) else "host"

    def spread(self, read: list[Any], written: list[Any]) -> tuple[Side, int]:
        """(the side on which an operation ran, the bytes of storages that it made there)."""
        side: Side
        if self.native or (written and _kind(written[0]) == "meta"):
            side = "device" if any(self.of(one) == "device" for one in (*read, *written)) else "host"
        elif self._forced is not None:
            side = self._forced
        elif read:
            side = "device" if any(self.of(one) == "device" for one in read) else "host"
        else:
            side = self._around
        made = 0
        for one in written:
            made += self.memory.add(one, on_device=side == "device")
        return side, made

    def crossing(self, read: list[Any], written: list[Any]) -> Copy:
        """The direction in which an operation's tensors cross the link; "" if they don't."""
        if not read or not written or not written[0].numel():
            return ""
        source, target = self.of(read[-1]), self.of(written[0])
        if source == target:
            return ""
        return "HtoD" if target == "device" else "DtoH"


def _kind(tensor: Any) -> str:
    """The type of the device that torch runs the tensor on; a fake tensor's `device` may be redirected."""
    return str((tensor.fake_device if isinstance(tensor, FakeTensor) else tensor.device).type)


_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
_unwrapped = torch._C._functorch.get_unwrapped


def tensors_of(value: Any) -> list[Any]:
    """All tensors in nested tuples, lists and dictionaries."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, list | tuple) and not many_numbers(value):
        return [tensor for item in value for tensor in tensors_of(item)]
    return []
