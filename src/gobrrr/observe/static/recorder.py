"""The dispatch mode that writes down every operation of the step, below autograd and above the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from gobrrr.model.recording import Assumption, RecordedCall
from gobrrr.model.work import OpCall
from gobrrr.observe.static.arguments import dtype_word, named_call, op_call, schema_of, tensor_record
from gobrrr.observe.static.doubles import Doubles
from gobrrr.observe.static.memory import Memory
from gobrrr.observe.static.owners import NO_TASK, Owners, with_recomputed
from gobrrr.observe.static.replaced import REPLACED
from gobrrr.observe.static.sides import Copy, Side, Sides, tensors_of
from gobrrr.observe.static.sites import Sites
from gobrrr.observe.static.values import Values

aten = torch.ops.aten
_DEVICE = torch.ops.prim.device.default
_LISTS = ("aten::_foreach", "aten::_fused", "aten::_amp")
COPIES = ("aten::clone", "aten::copy", "aten::copy_", "aten::_to_copy", "aten::_foreach_copy_")
"""What may cross the link; an operation of the device that reads one number of the host's does not."""
SILENT = ("prim::", "profiler::", "aten::is_same_size", "aten::sym_")
MOST_ASSUMPTIONS = 50
LARGE = 1e6
MOST_ASKED = 16
MOST_CALLS = 400_000
"""Operations after which a step is taken to have no end: a training step of a 70B model has 20,000."""
MOST_ASKED_WITHIN, MOST_ASKED_EVER, LONG = 1_000, 5_000, 100_000
"""A line that asks for values so often, in a step of so many calls, is in a loop that won't end."""


class NeedsData(Exception):
    """The step asks for something that only real data could give."""


class Recorder(TorchDispatchMode):
    """Writes down operations while `recording`; follows values, sides and memory all the time."""

    def __init__(self, sides: Sides, sites: Sites, values: Values, memory: Memory, doubles: Doubles) -> None:
        super().__init__()
        self.sides, self.sites, self.values, self.memory, self.doubles = sides, sites, values, memory, doubles
        self.recording = False
        self.optimizing = self.counters_on_host = False
        self.drafts: list[tuple[RecordedCall, int, bool]] = []  # with the backward pass it is in, and the grad mode
        self.assumptions: dict[tuple[str, str | None], Assumption] = {}
        self.needed = 1.0
        self.remarks: dict[str, str] = {}
        self.copy_waits = True
        self._asked_at: dict[str | None, int] = {}
        self._owners = Owners()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: nothing is compiled while this mode is on, and the wrapper that would say so costs more than the rest."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE and isinstance(args[0], FakeTensor):  # C++ asks for it, more often than for anything else
            return args[0].fake_device
        with torch._C.DisableTorchFunction():  # what torch does inside an operation is not the program's doing
            return self._dispatched(func, args, kwargs or {})

    def _dispatched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = schema_of(func)[0]
        if name.startswith(SILENT):
            return func(*args, **kwargs)
        if name == "aten::_local_scalar_dense":
            return self.asked(args[0])
        if composite(func) and torch.is_inference_mode_enabled():  # which doesn't take it apart first
            with self:
                return func.decompose(*args, **kwargs)
        read = tensors_of(args)
        if kwargs:
            read += tensors_of(kwargs)
        if all(isinstance(one, FakeTensor) for one in read):
            return self._faked(func, name, args, kwargs, read)
        given, named = self.doubles.given(args), self.doubles.given(kwargs)
        outputs = self._faked(func, name, given, named, tensors_of((given, named)))
        # an operation in place answers with its argument, which the program knows as the real one
        return next((one for one in read if self.doubles.of(one) is outputs), outputs)

    def _faked(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], read: list[Any]) -> Any:
        outputs = self._run(func, name, args, kwargs)
        written = tensors_of(outputs)
        self.values.on_host = self.sides.making != "device"
        if not self.values.follow(func, args, kwargs, read, outputs, written):
            self.values.assume(func, args, outputs)
        place, made = self.sides.spread(read, written)
        if place == "device" and len(read) > 1 and torch.Tag.pointwise in func.tags and not name.startswith(_LISTS):
            self._mixed(name, read)
        if self.recording:
            call = op_call(func, args, kwargs, outputs=tuple(map(tensor_record, written)))
            copy: Copy = self.sides.crossing(read, written) if name in COPIES else ""
            waits = bool(copy) and self.copy_waits and not non_blocking(func, args, kwargs)
            counter = place == "host" and self._counts(read, written)
            self._put(call, place, made, copy=copy, waits=waits, counter=counter)
        return outputs

    def _counts(self, read: list[Any], written: list[Any]) -> bool:
        """Whether an operation of an optimizer is about its step counters alone: numbers that follow from constants."""
        numbers = (*read, *written)
        return (
            self.optimizing
            and self.counters_on_host
            and bool(numbers)
            and all(self._known(number) for number in numbers)
        )

    def _known(self, tensor: Any) -> bool:
        return not tensor.dim() and self.values.one(tensor) is not None

    def _mixed(self, name: str, read: list[Any]) -> None:
        """Note an operation on a device whose other operand is on the host: it runs here, and fails on a GPU."""
        if any(one.dim() and self.sides.of(one) == "host" for one in read):
            where = self.sites.where()
            self.remarks.setdefault(
                where, f"{name} at {where} takes a tensor of the host with one of the GPU's: it fails"
            )

    def _run(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        replacement = REPLACED.get(name)
        if replacement is not None:
            return replacement(func, args, kwargs)
        try:
            return func(*args, **kwargs)
        except (DynamicOutputShapeException, DataDependentOutputException):
            known = self.values.computed(func, args, kwargs)
            if known is None:
                raise NeedsData(
                    f"{name} at {self.sites.where()}: the size of its result depends on data, "
                    "which a prediction has not got; take it out of the step or give it a fixed size"
                ) from None
            return known

    def asked(self, tensor: Any) -> Any:
        """The value of a tensor of one element: the real one where it is known, else a stand-in that is noted."""
        tensor = self.doubles.of(tensor)
        value = self.values.one(tensor)
        self.waited(tensor, counted=value is not None)
        if value is None:
            return self.assume(tensor)
        if self.values.assumed(tensor):
            self._note(f"whether data equal a constant, in a {dtype_word(tensor.dtype)} tensor", value)
        return value

    def waited(self, tensor: Any, *, counted: bool = False) -> None:
        """The host waits for the device: for a value, or (None) for all of its work.

        `counted`: the value follows from constants alone, as an optimizer's step counter does. Such tensors live on the
        host also where everything is on the CPU, so that nobody waits for them.
        """
        if not self.recording:
            return
        if tensor is None:
            self._put(OpCall(name="synchronize"), "device", 0, waits=True)
            return
        side = self.sides.of(tensor)
        call = op_call(aten._local_scalar_dense.default, (tensor,), {})
        self._put(
            call, side, 0, waits=side == "device" or not counted, counter=side == "host" and self._counts([tensor], [])
        )

    def assume(self, tensor: Any) -> Any:
        """A stand-in for a value that only real data has."""
        what = f"the value of a {dtype_word(tensor.dtype)} tensor"
        line = self.sites.line()
        times = self._asked_at[line] = self._asked_at.get(line, 0) + 1
        if times > MOST_ASKED_WITHIN and (times > MOST_ASKED_EVER or len(self.drafts) > LONG):
            raise NeedsData(
                f"{self.sites.where()} has asked for {what} {times} times: a loop that ends when data say so, which a "
                "prediction has not got; give it a fixed number of turns"
            )
        stand_in = _stand_in(tensor, times)
        self._note(what, stand_in)
        return stand_in

    def _note(self, what: str, stand_in: Any) -> None:
        line = self.sites.line()
        if len(self.assumptions) < MOST_ASSUMPTIONS:
            self.assumptions.setdefault((what, line), Assumption(what, str(stand_in), line))

    def _put(
        self, call: OpCall, place: Side, made: int, *, waits: bool = False, copy: Copy = "", counter: bool = False
    ) -> None:
        owned = self._owners.of_this(self.sites.here, self.needed)
        if len(self.drafts) >= MOST_CALLS:
            raise NeedsData(
                f"the step has no end: {MOST_CALLS:,} operations until {self.sites.where()}; its loop waits for data, "
                "which a prediction has not got"
            )
        recorded = RecordedCall(
            call=call,
            phase="backward" if owned.task != NO_TASK else "optimizer" if self.optimizing else "forward",
            site=owned.site,
            place=place,
            waits=waits,
            needed=owned.needed,
            host_copy=copy,
            node=owned.node,
            new_bytes=made,
            counter=counter,
        )
        self.drafts.append((recorded, owned.task, owned.grad))

    @contextmanager
    def instead(self, name: str, args: tuple[Any, ...]) -> Iterator[list[Any]]:
        """What runs in the block is not recorded; one call of `name` is, with the outputs put into the list."""
        outputs: list[Any] = []
        before, self.recording = self.recording, False
        try:
            yield outputs
        finally:
            self.recording = before
        if self.recording:
            side = self.sides.of(outputs[0]) if outputs else "device"
            self._put(named_call(name, args, tuple(map(tensor_record, outputs))), side, 0)

    @contextmanager
    def needing(self, share: float) -> Iterator[None]:
        """Of what runs in the block, and of its backward pass, the maths needs `share`."""
        before, self.needed = self.needed, share
        try:
            yield
        finally:
            self.needed = before

    @contextmanager
    def copying(self, *, waits: bool) -> Iterator[None]:
        """Whether the host waits for the end of copies over the link that are made in the block."""
        before, self.copy_waits = self.copy_waits, waits
        try:
            yield
        finally:
            self.copy_waits = before

    def forget(self) -> None:
        """What was recorded until now was the making of the step, not the step."""
        self.drafts.clear()
        self.remarks.clear()
        self.assumptions.clear()
        self.sites.module_calls = 0

    def finished(self) -> tuple[RecordedCall, ...]:
        """The calls, with the operations that a backward pass repeats from the forward pass marked."""
        return with_recomputed(self.drafts)


def _stand_in(tensor: Any, times: int) -> Any:
    """True or 1 at first. A loop that goes on as long as the answer is the same would never end: so others later."""
    yes = times <= MOST_ASKED
    if tensor.dtype is torch.bool:
        return yes
    if tensor.is_floating_point():
        return 1.0 if yes else (0.0, LARGE, -1.0)[times % 3]
    return int(yes)


@cache
def composite(func: Any) -> bool:
    """Whether the operation is written in terms of others, and is recorded as those."""
    return bool(func._can_decompose())


def non_blocking(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether `copy_` or `_to_copy` was asked not to wait for the copy's end."""
    return bool(kwargs.get("non_blocking") or (func is aten.copy_.default and len(args) > 2 and args[2]))
