"""The reference for both arms: a copy of model and inputs in float64, without TF32 or autocast.

float64 may take many times as long (64 times on consumer GPUs): a step that takes too long is ended in the middle.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gobrrr.model.workload import Workload
from gobrrr.observe.live.clock import on_gpu, wait
from gobrrr.observe.live.state.snapshot import random_states
from gobrrr.observe.targets import step_of
from gobrrr.treatments.framework.applying import forward


def possible(workload: Workload) -> bool:
    """Whether a copy of the model can run the step: not where the user's own step holds the model."""
    return workload.step is None and isinstance(workload.model, torch.nn.Module)


class TooLong(Exception):
    """The copy's steps took too long."""


class _Watch(TorchDispatchMode):  # type: ignore[misc,unused-ignore]
    """Ends a step at its next operation once its time is over; waits for the device, which may be far behind."""

    def __init__(self, most_s: float) -> None:
        super().__init__()
        self._until = time.perf_counter() + most_s

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        wait()
        if time.perf_counter() > self._until:
            raise TooLong
        return found


@contextmanager
def reference(
    workload: Workload, dtype: Any, seen: Callable[[Any], None], most_s: float = math.inf
) -> Iterator[tuple[Callable[[], Any], Workload]]:
    """The step of a copy in `dtype`, and the copy. Restores random states and settings afterwards.

    All its steps together may take `most_s` seconds; then one raises TooLong. Exceptions from copying and casting pass
    through.
    """
    numbers = random_states()
    try:
        with _exactly(workload, dtype):
            twin = _twin(workload, dtype)
            run, arguments = step_of(twin, forward, seen=seen)
            watch = nullcontext() if math.isinf(most_s) else _Watch(most_s)

            def call() -> Any:
                with watch:
                    return run(*arguments)

            yield call, twin
    finally:
        for undo in numbers:
            undo()


def lower_than_float32(workload: Workload) -> bool:
    """Whether the model holds numbers of fewer than 32 bits."""
    held = (*workload.model.parameters(), *workload.model.buffers())
    return any(tensor.is_floating_point() and tensor.element_size() < 4 for tensor in held)


def release() -> None:
    """Free the memory of a copy that did not fit."""
    if on_gpu():
        torch.cuda.empty_cache()


def _twin(workload: Workload, dtype: Any) -> Workload:
    memo: dict[int, Any] = {}
    model = copy.deepcopy(workload.model, memo)
    loss = copy.deepcopy(workload.loss, memo) if isinstance(workload.loss, torch.nn.Module) else workload.loss
    optimizer = None if workload.optimizer is None else _optimizer(workload.optimizer, memo)
    for module in (model, loss):
        if isinstance(module, torch.nn.Module):
            module.to(dtype)
    if optimizer is not None:
        _load(optimizer, workload.optimizer)
    loader = workload.loader
    return dataclasses.replace(
        workload,
        model=model,
        loss=loss,
        optimizer=optimizer,
        inputs=tuple(cast(value, dtype) for value in workload.inputs),
        targets=tuple(cast(target, dtype) for target in workload.targets),
        loader=None if loader is None else _Cast(loader, dtype),
        around=(),
    )


def _optimizer(optimizer: Any, memo: dict[int, Any]) -> Any:
    """The same optimizer for the copied parameters, made before they are cast, which keeps their identity."""
    groups = []
    for group in optimizer.param_groups:
        options = {name: value for name, value in group.items() if name != "params"}
        for slow in ("fused", "foreach", "capturable"):
            if slow in options:
                options[slow] = False
        if isinstance(options.get("lr"), torch.Tensor):
            options["lr"] = float(options["lr"])
        groups.append({**options, "params": [memo[id(parameter)] for parameter in group["params"]]})
    lr = groups[0].get("lr")
    try:
        return type(optimizer)(groups)
    except TypeError:  # older optimizers require the learning rate
        return type(optimizer)(groups, lr=lr)


def _load(optimizer: Any, like: Any) -> None:
    """Loads the state of another optimizer, in the type of the parameters."""
    ours = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    theirs = [parameter for group in like.param_groups for parameter in group["params"]]
    for parameter, other in zip(ours, theirs, strict=True):
        if other in like.state:
            held = like.state[other]
            optimizer.state[parameter] = {name: _value(name, value, parameter) for name, value in held.items()}


def _value(name: str, value: Any, parameter: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return copy.deepcopy(value)
    if name == "step":
        return value.detach().clone().cpu()
    value = value.detach().clone().to(parameter.device)
    return value.to(parameter.dtype) if value.is_floating_point() else value


class _Cast:
    """A loader whose batches are cast."""

    def __init__(self, loader: Any, dtype: Any) -> None:
        self._loader, self._dtype = loader, dtype

    def __iter__(self) -> Iterator[Any]:
        for batch in self._loader:
            yield cast(batch, self._dtype)


def cast(value: Any, dtype: Any) -> Any:
    """The value with copies of its tensors, floating-point ones in `dtype`."""
    if isinstance(value, torch.Tensor):
        copied = value.detach().clone()
        copied = copied.to(dtype) if value.is_floating_point() else copied
        return copied.requires_grad_(value.requires_grad)
    if isinstance(value, Mapping):
        found = {key: cast(item, dtype) for key, item in value.items()}
        return found if type(value) is dict else type(value)(found)  # type: ignore[call-arg]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(cast(item, dtype) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(cast(item, dtype) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {
            field.name: cast(getattr(value, field.name), dtype) for field in dataclasses.fields(value) if field.init
        }
        return dataclasses.replace(value, **parts)
    return value


@contextmanager
def _exactly(workload: Workload, dtype: Any) -> Iterator[None]:
    """Switches off autocast, and TF32 for float32."""
    kinds = {parameter.device.type for parameter in workload.model.parameters()} | {"cpu"}
    with ExitStack() as stack:
        for kind in sorted(kinds - {"meta"}):
            stack.enter_context(torch.autocast(kind, enabled=False))
        if dtype == torch.float32 and on_gpu():
            cudnn, products = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
            stack.callback(setattr, torch.backends.cudnn, "allow_tf32", cudnn)
            stack.callback(torch.set_float32_matmul_precision, products)
            torch.backends.cudnn.allow_tf32 = False
            torch.set_float32_matmul_precision("highest")
        yield
