"""The dispatch mode that records the operations of a step on real tensors, and lets them run as usual."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from gobrrr.guarded import failed
from gobrrr.model.recording import Place, RecordedCall, RecordedLoop
from gobrrr.model.work import OpCall
from gobrrr.observe.live.again.repeats import Repeats
from gobrrr.observe.live.apart import beneath
from gobrrr.observe.live.objects.seen import Objects
from gobrrr.observe.live.ops.dependence import again_bytes, dependence, free_products, over_the_host, reads
from gobrrr.observe.live.ops.flow import Access, Flow, HostRead
from gobrrr.observe.live.ops.turns import LoopTurns
from gobrrr.observe.live.ops.uses import Uses
from gobrrr.observe.live.watches.calls import CallWatch
from gobrrr.observe.static.arguments import op_call, schema_of, tensor_record
from gobrrr.observe.static.owners import NO_TASK, Owners, with_recomputed
from gobrrr.observe.static.recorder import COPIES, SILENT, composite, non_blocking
from gobrrr.observe.static.sides import Copy, tensors_of
from gobrrr.observe.static.sites import Around, Sites

NON_COMPUTING = (*SILENT, "aten::_fused_sdp_choice")
"""Operations that only answer a question of torch's own and compute nothing."""
MOST_RECORDED_CALLS = 400_000
"""Operations of a step that are recorded: a training step of a 70B model has 20,000."""


class DispatchRecorder(TorchDispatchMode):
    """Records every operation, below autograd, while it is on and `paused()` is false."""

    supports_higher_order_operators = True

    def __init__(
        self,
        sites: Sites,
        uses: Uses | None = None,
        paused: Callable[[], bool] | None = None,
        objects: Objects | None = None,
        repeats: Repeats | None = None,
        turns: LoopTurns | None = None,
    ) -> None:
        super().__init__()
        self.sites, self.uses, self.objects, self.repeats, self.turns = sites, uses, objects, repeats, turns
        self.flow: list[Access | None] = []  # of each draft
        self.reads: list[HostRead] = []
        self._flow = Flow()
        self._running = 0  # operations that are being computed
        if turns is not None:
            turns.watch.reading = self._read
        self.drafts: list[tuple[RecordedCall, int, bool]] = []  # with the backward pass it is in, and the grad mode
        self.left_out = 0
        self.failed = ""  # what a note says of the last operation that could not be recorded
        self.optimizing = False
        self._paused = paused
        self._owners = Owners()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: nothing is compiled while this mode is on, and torch's wrapper for True costs more than the rest."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(issubclass(kind, FakeTensor) for kind in types):  # a tracer's, with a mode of its own: nothing runs
            return func(*args, **kwargs)
        if any(map(_dispatches_itself, types)):
            return NotImplemented  # a DTensor, for example: the operations on its local tensors come here again
        plain = isinstance(func, torch._ops.OpOverload)
        if plain and torch.is_inference_mode_enabled() and composite(func):  # inference mode does not decompose it
            with self:
                return func.decompose(*args, **kwargs)
        self._running += 1
        try:
            outputs = func(*args, **kwargs)
        finally:
            self._running -= 1
        if self._paused is None or not self._paused():
            watch = self.turns.watch if self.turns is not None else None
            listening = watch is not None and watch.pause()
            with torch._C.DisableTorchFunction():  # hides our operations from the program's own modes
                try:
                    self._record(func, args, kwargs, outputs, sys._getframe().f_back, plain=plain)
                except Exception as error:  # the user's step goes on
                    self.failed = failed("an operation of the step", error)
            if watch is not None and listening:
                watch.resume()
        return outputs

    def adopt(self, calls: tuple[RecordedCall, ...]) -> None:
        """Add calls that were recorded before, with sites of this recording, as if they ran now."""
        self.left_out += max(len(self.drafts) + len(calls) - MOST_RECORDED_CALLS, 0)
        self.drafts += [(call, NO_TASK, False) for call in calls[: MOST_RECORDED_CALLS - len(self.drafts)]]
        self.flow += [None] * (len(self.drafts) - len(self.flow))

    def loops(self, calls: tuple[RecordedCall, ...]) -> tuple[RecordedLoop, ...] | None:
        """The program's loops, with how their turns depend on each other; None where they could not be followed."""
        if self.turns is None or not self.turns.whole:
            return None
        result = []
        for loop in self.turns.found():
            depends, readers = dependence(calls, self.flow, loop.turns, self.reads)
            carried = calls[readers[0]].call.name if readers else ""
            kinds = {self._module_class(calls[at]) for at in readers}
            through = kinds.pop() if len(kinds) == 1 and not over_the_host(calls, loop.turns, self.reads) else ""
            read = reads(calls, loop.turns, self.reads)
            again = again_bytes(self.flow, loop.turns)
            free = free_products(calls, self.flow, loop.turns) if depends == "yes" and not read else ()
            result.append(RecordedLoop(loop.source, loop.turns, depends, carried, through, read, again, free))
        return tuple(result)

    def _read(self, tensor: Any, how: str) -> None:
        """The program reads memory without an operation. Reads by an operation that is running are left out."""
        if self._running or (self._paused is not None and self._paused()):
            return
        try:
            with torch._C.DisableTorchFunction():
                storage = self._flow.storage(tensor)
        except Exception as error:  # the user's step goes on
            self.failed = failed("a read of the step", error)
            storage = None
        self.reads.append(HostRead(len(self.drafts), storage, how != "tolist"))

    def _module_class(self, call: RecordedCall) -> str:
        """The class of the innermost module around a call; "" for none."""
        modules = self.sites.found[call.site].modules
        return modules[-1].rpartition("_")[0] if modules else ""

    def finished(self) -> tuple[RecordedCall, ...]:
        """The calls; those of the forward pass that a backward pass repeats are marked."""
        return with_recomputed(self.drafts)

    def _record(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outputs: Any,
        caller: FrameType | None,
        *,
        plain: bool,
    ) -> None:
        if len(self.drafts) >= MOST_RECORDED_CALLS:
            self.left_out += 1
            return
        if not plain:
            on_device = any(map(_device, tensors_of(args)))
            self._put(OpCall(name=f"higher_order::{func.name()}"), "device" if on_device else "host")
            return
        name = schema_of(func)[0]
        if name.startswith(NON_COMPUTING):
            return
        read, written = [*tensors_of(args), *tensors_of(kwargs)], tensors_of(outputs)
        place: Place = "device" if any(map(_device, (*read, *written))) else "host"
        try:
            call = op_call(func, args, kwargs, outputs=tuple(map(tensor_record, written)))
        except (RuntimeError, NotImplementedError):  # nested tensors have no shape
            call = OpCall(name=name)
        copy = _host_copy(read, written) if name in COPIES else ""
        reads_scalar = name == "aten::_local_scalar_dense" and place == "device"
        waits = reads_scalar or (copy != "" and not non_blocking(func, args, kwargs))
        recorded = self._put(call, place, waits=waits, copy=copy)
        if self.turns is not None:
            self.flow[-1] = self._flow.see(func, args, kwargs, written)
            self.turns.see(len(self.drafts) - 1, name, caller)
        if self.uses is not None:
            self.uses.see(func, args, kwargs, outputs, recorded)
        if self.objects is not None and not self.optimizing:  # the state of an optimizer has no names
            self.objects.see(read, written)
        self._number(func, args, kwargs, outputs, len(self.drafts) - 1)

    def _number(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any, at: int) -> None:
        if self.repeats is None:
            return
        if self.optimizing:
            self.repeats.wrote(func, args, kwargs)
        else:
            self.repeats.see(func, args, kwargs, outputs, at)

    def _put(self, call: OpCall, place: Place, *, waits: bool = False, copy: Copy = "") -> RecordedCall:
        owned = self._owners.of_this(self.sites.here, 1.0)
        recorded = RecordedCall(
            call=call,
            phase="backward" if owned.task != NO_TASK else "optimizer" if self.optimizing else "forward",
            site=owned.site,
            place=place,
            waits=waits,
            host_copy=copy,
            node=owned.node,
        )
        self.drafts.append((recorded, owned.task, owned.grad))
        self.flow.append(None)
        return recorded


class DispatchNumberer(DispatchRecorder):
    """For the second look: numbers what the operations compute, and counts them by line.

    `places`: (name, site) of each operation; `elements`: how many elements its input tensors have.
    """

    def __init__(self, repeats: Repeats, paused: Callable[[], bool] | None = None) -> None:
        super().__init__(Sites(), paused=paused, repeats=repeats)
        self.places: list[tuple[str, int]] = []
        self.elements: list[int] = []

    def _record(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outputs: Any,
        caller: FrameType | None,
        *,
        plain: bool,
    ) -> None:
        if not plain or len(self.places) >= MOST_RECORDED_CALLS:
            return
        name = schema_of(func)[0]
        if name.startswith(NON_COMPUTING):
            return
        self.places.append((name, self._owners.of_this(self.sites.here, 1.0).site))
        self.elements.append(sum(map(_elements, (*tensors_of(args), *tensors_of(kwargs)))))
        self._number(func, args, kwargs, outputs, len(self.places) - 1)


def _elements(tensor: Any) -> int:
    return int(tensor.numel()) if tensor.layout is torch.strided and not tensor.is_nested else 0


def _dispatches_itself(kind: Any) -> bool:
    return getattr(kind, "__torch_dispatch__", None) is not torch._C._disabled_torch_dispatch_impl


def _device(tensor: Any) -> bool:
    return bool(tensor.device.type not in ("cpu", "meta"))


def _host_copy(read: list[Any], written: list[Any]) -> Copy:
    """The direction of a copy between host and device; "" for any other."""
    if not read or not written or _device(read[-1]) == _device(written[0]):
        return ""
    return "HtoD" if _device(written[0]) else "DtoH"


@contextmanager
def following(mode: DispatchRecorder) -> Iterator[None]:
    """Within the block, the mode is on, with hooks that tell it which module and which optimizer runs."""
    uses, objects = mode.uses, mode.objects
    before_forward = torch.nn.modules.module.register_module_forward_pre_hook
    hooks = [
        register_optimizer_step_pre_hook(lambda *_: _optimizing(mode, True)),
        register_optimizer_step_post_hook(lambda *_: _optimizing(mode, False)),
    ]
    quietly: Around = _quietly(mode.turns.watch) if mode.turns is not None else lambda hook: hook
    if uses is not None:
        hooks.append(before_forward(quietly(uses.module)))
    if objects is not None:
        hooks.append(register_optimizer_step_pre_hook(lambda optimizer, *_: objects.optimizer(optimizer)))
        named = lambda module, args: objects.module(module, args, top=not mode.sites.inside)  # noqa: E731
        hooks.append(before_forward(quietly(named)))
    try:
        again = mode.repeats.following(mode.sites, quietly) if mode.repeats is not None else nullcontext()
        with mode.sites.following(quietly), again, beneath(mode):
            yield
    finally:
        for hook in hooks:
            hook.remove()


def _quietly(watch: CallWatch) -> Around:
    """Wraps our hooks: calls that they make are not recorded as the program's."""

    def around(hook: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any) -> None:
            listening = watch.pause()
            try:
                hook(*args)
            finally:
                if listening:
                    watch.resume()

        return wrapped

    return around


def _optimizing(mode: DispatchRecorder, now: bool) -> None:
    mode.optimizing = now
