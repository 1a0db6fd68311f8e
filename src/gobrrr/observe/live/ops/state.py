"""What a step changes, put back afterwards: parameters, buffers, gradients, optimizer state, random states."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy, deepcopy
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gobrrr.observe.live.apart import apart


class _Copies:
    """Copies of what is about to be used, made once each."""

    def __init__(self) -> None:
        self.undo: list[Callable[[], None]] = []
        self._seen: dict[int, Any] = {}  # the things themselves: their ids stay their own

    def module(self, module: Any, _: Any = None) -> None:
        """A module's own parameters and buffers, and whether it trains."""
        if self._known(module):
            return
        with apart():
            for one in (*module._parameters.values(), *module._buffers.values()):
                if one is not None:
                    self.tensor(one)
        buffers, training = dict(module._buffers), module.training

        def undo() -> None:
            module._buffers.update(buffers)
            module.training = training

        self.undo.append(undo)

    def tensor(self, tensor: Any) -> None:
        """A tensor's values, and its gradient."""
        if self._known(tensor):
            return
        values, gradient = _copied(tensor), tensor.grad if tensor.is_leaf else None
        before = None if gradient is None else _copied(gradient)

        def undo() -> None:
            with torch.no_grad():
                tensor.copy_(values)
                if tensor.is_leaf:
                    tensor.grad = gradient
                if gradient is not None:
                    gradient.copy_(before)

        self.undo.append(undo)

    def optimizer(self, optimizer: Any) -> None:
        """An optimizer's parameters, state and options."""
        if not self._known(optimizer):
            with apart():
                self._optimizer(optimizer)

    def _optimizer(self, optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for one in group["params"]:
                self.tensor(one)
        state = {key: dict(one) for key, one in optimizer.state.items()}
        for one in state.values():
            for name, value in one.items():
                if isinstance(value, torch.Tensor):
                    self.tensor(value)
                else:
                    one[name] = deepcopy(value)
        options = [{name: copy(value) for name, value in group.items()} for group in optimizer.param_groups]

        def undo() -> None:
            optimizer.state.clear()
            optimizer.state.update(state)
            for group, kept in zip(optimizer.param_groups, options, strict=False):
                group.update(kept)

        self.undo.append(undo)

    def _known(self, thing: Any) -> bool:
        """Whether it was met before; it is from now on."""
        known = id(thing) in self._seen
        self._seen[id(thing)] = thing
        return known


def _copied(tensor: Any) -> Any:
    """A copy beside the tensor; in the host's memory where the device's does not hold both."""
    try:
        return tensor.detach().clone()
    except torch.OutOfMemoryError:
        return tensor.detach().cpu()


@contextmanager
def kept(*things: Any) -> Iterator[None]:
    """What the block changes is put back: of `things` (modules, optimizers) and of all that it is seen to use."""
    copies = _Copies()
    hooks = (
        torch.nn.modules.module.register_module_forward_pre_hook(copies.module),
        register_optimizer_step_pre_hook(lambda optimizer, *_: copies.optimizer(optimizer)),
    )
    with apart():
        numbers = _random_states()
    try:
        for one in things:
            if isinstance(one, torch.nn.Module):
                for module in one.modules():
                    copies.module(module)
            elif isinstance(one, torch.optim.Optimizer):
                copies.optimizer(one)
        yield
    finally:
        for hook in hooks:
            hook.remove()
        with apart():
            for undo in (*reversed(copies.undo), *numbers):
                undo()


def _random_states() -> list[Callable[[], None]]:
    states: list[tuple[Callable[[Any], Any], Any]] = [
        (torch.set_rng_state, torch.get_rng_state()),
        (random.setstate, random.getstate()),
    ]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        states.append((numpy.random.set_state, numpy.random.get_state()))
    return [lambda write=write, state=state: write(state) for write, state in states]  # type: ignore[misc]
