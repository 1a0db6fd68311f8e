"""The user's objects as they were: gradients, optimizer state, and what modules hold."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import _disable_current_modes

from gobrrr.observe.static.recorder import Recorder

_CHANGING = ("train", "_apply", "requires_grad_", "load_state_dict", "zero_grad", "__setattr__")
"""Methods of nn.Module that change it outside of its forward."""


def _same_memory(tensor: Any, data: Any) -> bool:
    if tensor.device != data.device or tensor.dtype != data.dtype or tensor.shape != data.shape:
        return False
    if tensor.layout is not torch.strided or data.device.type == "meta":
        return True
    try:
        return bool(tensor.data_ptr() == data.data_ptr() and tensor.stride() == data.stride())
    except RuntimeError:  # a tensor of torch.func's transforms has no memory of its own
        return True


class Keeper:
    """Remembers modules, optimizers and what belongs to them as they are when they are first used."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._seen: set[int] = set()

    def module(self, module: Any, _: Any) -> None:
        """A hook before a module's forward: keep its attributes, buffers and gradients, if its tensors are real."""
        if id(module) in self._seen:
            return
        if any(isinstance(one, FakeTensor) for one in module.parameters(recurse=False)):
            return  # made for this recording alone
        self._seen.add(id(module))  # which the undo below keeps alive, so that the id stays its own
        kept = dict(module.__dict__)
        for name in ("_parameters", "_buffers", "_modules"):
            kept[name] = dict(kept.get(name, {}))
        for parameter in module._parameters.values():
            self.tensor(parameter)
        self._undo.append(lambda: _put_back(module, kept))

    def tensor(self, tensor: Any) -> None:
        """Keep the gradient of a tensor that is real, and whether it wants one."""
        if id(tensor) in self._seen or not isinstance(tensor, torch.Tensor) or isinstance(tensor, FakeTensor):
            return
        if not tensor.is_leaf:
            return
        self._seen.add(id(tensor))
        gradient, wanted = tensor.grad, tensor.requires_grad
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            data = tensor.detach()  # the same memory, whatever the step assigns to `.data`

        def undo() -> None:
            if not _same_memory(tensor, data):
                tensor.data = data
            if tensor.requires_grad != wanted:
                tensor.requires_grad_(wanted)
            if tensor.grad is not gradient:
                tensor.grad = gradient

        self._undo.append(undo)

    def attributes(self, thing: Any) -> None:
        """Keep the attributes of a scheduler or of a gradient scaler."""
        if id(thing) in self._seen:
            return
        self._seen.add(id(thing))
        kept = {name: copy(var) if type(var) in (dict, list, defaultdict) else var for name, var in vars(thing).items()}

        def undo() -> None:
            vars(thing).clear()
            vars(thing).update(kept)

        self._undo.append(undo)

    def module_tree(self, module: Any) -> None:
        """Keep a module and those within, if it is more than begun."""
        if id(module) not in self._seen and "_modules" in vars(module):
            for one in module.modules():
                self.module(one, None)

    def optimizer_made(self, optimizer: Any) -> None:
        """Keep an optimizer that is more than begun."""
        if getattr(optimizer, "param_groups", None):
            self.optimizer(optimizer)

    def optimizer(self, optimizer: Any) -> None:
        """Keep an optimizer's state and options."""
        if id(optimizer) in self._seen:
            return
        self._seen.add(id(optimizer))
        state = {key: dict(one) for key, one in optimizer.state.items()}
        groups = [dict(param_group) for param_group in optimizer.param_groups]
        for group in groups:
            group["params"] = list(group["params"])
            for parameter in group["params"]:
                self.tensor(parameter)
        attributes = {name: var for name, var in vars(optimizer).items() if name not in ("state", "param_groups")}

        def undo() -> None:
            vars(optimizer).update(attributes)
            optimizer.state.clear()
            optimizer.state.update(state)
            del optimizer.param_groups[len(groups) :]
            for group, kept in zip(optimizer.param_groups, groups, strict=True):
                group.clear()
                group.update(kept)

        self._undo.append(undo)

    def put_back(self) -> None:
        """Everything as it was."""
        for undo in reversed(self._undo):
            undo()


def _put_back(module: Any, kept: dict[str, Any]) -> None:
    module.__dict__.clear()
    module.__dict__.update(kept)


@contextmanager
def _before_changes(keeper: Keeper) -> Iterator[None]:
    """Keep modules, schedulers and gradient scalers before a method of theirs changes them."""
    with ExitStack() as stack:
        for name in _CHANGING:
            stack.enter_context(patch.object(torch.nn.Module, name, _first(keeper.module_tree, torch.nn.Module, name)))
        for home, name in _methods():
            stack.enter_context(patch.object(home, name, _first(keeper.attributes, home, name)))
        for name in ("zero_grad", "add_param_group", "load_state_dict"):
            method = _first(keeper.optimizer_made, torch.optim.Optimizer, name)
            stack.enter_context(patch.object(torch.optim.Optimizer, name, method))
        yield


def _methods() -> list[tuple[type, str]]:
    schedulers = [var for var in vars(torch.optim.lr_scheduler).values() if isinstance(var, type)]
    found = [(scheduler, "step") for scheduler in schedulers if callable(vars(scheduler).get("step"))]
    return [*found, *((torch.amp.GradScaler, name) for name in ("scale", "unscale_", "step", "update"))]


def _first(keep: Callable[[Any], None], home: type, name: str) -> Callable[..., Any]:
    """The method, with its object kept before the first call."""
    plain = vars(home)[name]

    @functools.wraps(plain)
    def method(this: Any, *args: Any, **kwargs: Any) -> Any:
        keep(this)
        return plain(this, *args, **kwargs)

    return method


@contextmanager
def kept(keeper: Keeper, recorder: Recorder) -> Iterator[None]:
    """Hooks on for the length of the block; everything put back at its end."""
    hooks = (
        torch.nn.modules.module.register_module_forward_pre_hook(keeper.module),
        register_optimizer_step_pre_hook(_before(keeper, recorder)),
        register_optimizer_step_post_hook(lambda *_: _after(recorder)),
    )
    try:
        with _before_changes(keeper):
            yield
    finally:
        for hook in hooks:
            hook.remove()
        keeper.put_back()


def _before(keeper: Keeper, recorder: Recorder) -> Callable[..., None]:
    """Before an optimizer's step: keep it; let it make its state in a step that is not recorded."""

    def hook(optimizer: Any, args: Any, kwargs: Any) -> None:
        keeper.optimizer(optimizer)
        if recorder.recording and not recorder.optimizing and not optimizer.state:
            recorder.recording = False
            rates = [group.get("lr") for group in optimizer.param_groups]
            try:
                with recorder.memory.carried():
                    optimizer.step()
            finally:
                recorder.recording = True
                for group, rate in zip(optimizer.param_groups, rates, strict=True):
                    if rate is not None:
                        group["lr"] = rate
        recorder.optimizing, recorder.counters_on_host = True, _counts_on_host(optimizer)

    return hook


def _counts_on_host(optimizer: Any) -> bool:
    """Whether the step counters of an optimizer are on the host where its parameters are on a GPU, as those of torch
    are: but for the forms that count on the device, and ASGD."""
    on_device = any(group.get("capturable") or group.get("fused") for group in optimizer.param_groups)
    return not on_device and not isinstance(optimizer, torch.optim.ASGD)


def _after(recorder: Recorder) -> None:
    recorder.optimizing = False
