"""The user's objects as they were: gradients, optimizer state, and what modules hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gobrrr.observe.static.recorder import Recorder


class Keeper:
    """Remembers modules and optimizers as they are when they are first used."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._seen: set[int] = set()

    def module(self, module: Any, _: Any) -> None:
        """A hook before a module's forward: keep its attributes, buffers and gradients, if its tensors are real."""
        if id(module) in self._seen:
            return
        self._seen.add(id(module))
        if any(isinstance(one, FakeTensor) for one in module.parameters(recurse=False)):
            return  # made for this recording alone
        kept = dict(module.__dict__)
        for name in ("_parameters", "_buffers", "_modules"):
            kept[name] = dict(kept.get(name, {}))
        gradients = [(one, one.grad) for one in module._parameters.values() if one is not None]
        self._undo.append(lambda: _put_back(module, kept, gradients))

    def optimizer(self, optimizer: Any) -> None:
        """Keep an optimizer's state and options."""
        if id(optimizer) in self._seen:
            return
        self._seen.add(id(optimizer))
        state = {key: dict(one) for key, one in optimizer.state.items()}
        groups = [dict(one) for one in optimizer.param_groups]
        gradients = [(one, one.grad) for group in groups for one in group["params"] if not isinstance(one, FakeTensor)]

        def undo() -> None:
            optimizer.state.clear()
            optimizer.state.update(state)
            for group, kept in zip(optimizer.param_groups, groups, strict=True):
                group.clear()
                group.update(kept)
            _regrade(gradients)

        self._undo.append(undo)

    def put_back(self) -> None:
        """Everything as it was."""
        for undo in reversed(self._undo):
            undo()


def _put_back(module: Any, kept: dict[str, Any], gradients: list[tuple[Any, Any]]) -> None:
    module.__dict__.clear()
    module.__dict__.update(kept)
    _regrade(gradients)


def _regrade(gradients: list[tuple[Any, Any]]) -> None:
    for parameter, gradient in gradients:
        if parameter.grad is not gradient:
            parameter.grad = gradient


@contextmanager
def kept(keeper: Keeper, recorder: Recorder) -> Iterator[None]:
    """Hooks on for the length of the block; everything put back at its end."""
    hooks = (
        torch.nn.modules.module.register_module_forward_pre_hook(keeper.module),
        register_optimizer_step_pre_hook(_before(keeper, recorder)),
        register_optimizer_step_post_hook(lambda *_: _after(recorder)),
    )
    try:
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
                optimizer.step()
            finally:
                recorder.recording = True
                for group, rate in zip(optimizer.param_groups, rates, strict=True):
                    if rate is not None:
                        group["lr"] = rate
        recorder.optimizing = True

    return hook


def _after(recorder: Recorder) -> None:
    recorder.optimizing = False
