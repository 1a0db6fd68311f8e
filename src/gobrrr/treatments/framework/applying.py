"""Helpers that apply a treatment to a workload in place and undo it."""

from __future__ import annotations

import copy
import functools
import itertools
import types
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from gobrrr import units
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import reaching
from gobrrr.treatments.framework.way import Apply

BACKEND = "inductor"
"""The backend of torch.compile."""

MISSING = object()
"""Stands for an attribute or an item that was not there."""

WORTH_TRYING = 0.02
"""A trial does not pay for a smaller share of the step. Chosen, not measured."""

MEMORY_SHORT = 0.8
"""From this share of the device's memory on, ways that save memory are tried. Chosen, not measured."""

_numbers = itertools.count()


def module_of(workload: Workload) -> Any:
    """The workload's model where it is an nn.Module, else None."""
    import torch

    return workload.model if isinstance(workload.model, torch.nn.Module) else None


def device_of(workload: Workload) -> str:
    """The kind of device that the workload runs on: that of its parameters, inputs, optimized parameters or held
    tensors, in this order; "cpu" where it has none."""
    module = module_of(workload)
    owned = itertools.chain(module.parameters(), module.buffers()) if module is not None else ()
    given = tensors_of((workload.inputs, workload.targets))
    optimized = (
        parameter for group in getattr(workload.optimizer, "param_groups", ()) for parameter in group["params"]
    )
    modules = reaching.modules(workload)
    held = itertools.chain(
        (part for module in modules for part in module.parameters()), reaching.held_tensors(workload)
    )
    kinds = (str(tensor.device.type) for tensor in itertools.chain(owned, given, optimized, held))
    return next(kinds, "cpu")


def on_cuda(workload: Workload) -> bool:
    """Whether it runs on a CUDA device."""
    return device_of(workload) == "cuda"


def trains(workload: Workload) -> bool:
    """Whether the step may update parameters."""
    return workload.optimizer is not None or workload.loss is not None


def goes_back(workload: Workload) -> bool:
    """Whether a step has a backward pass, as far as its own code shows."""
    return trains(workload) or reaching.goes_back(workload)


NO_BACKWARD = "the step shows no backward pass"
NO_MODEL = "which model the step runs is not known: return a gobrrr.Workload with model="
"""Reasons why a way does not fit a workload."""


def of_model(workload: Workload, why: str) -> str:
    """`why` a way does not fit the workload's model; NO_MODEL where the model is not known."""
    return NO_MODEL if workload.model is None else why


def modules_of(workload: Workload, *kinds: Any) -> list[Any]:
    """The model's modules, or only those of the classes `kinds`; none where the model is not an nn.Module."""
    module = module_of(workload)
    found = [] if module is None else list(module.modules())
    return [part for part in found if isinstance(part, kinds)] if kinds else found


def tensors_of(tree: Any) -> Iterator[Any]:
    """All tensors in nested tuples, lists and mappings."""
    import torch

    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from tensors_of(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from tensors_of(value)


def mapped(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The same nested tuples, lists and mappings with each tensor replaced by `change(tensor)`."""
    import torch

    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, dict):
        changed = {key: mapped(value, change) for key, value in tree.items()}
        if type(tree) is dict:
            return changed
        return type(tree)(**changed) if all(isinstance(key, str) for key in tree) else type(tree)(changed)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(mapped(value, change) for value in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(mapped(value, change) for value in tree)
    if isinstance(tree, MutableMapping):  # a batch of transformers', say
        copied = copy.copy(tree)
        for key, value in tree.items():
            copied[key] = mapped(value, change)
        return copied
    return {key: mapped(value, change) for key, value in tree.items()} if isinstance(tree, Mapping) else tree


def patched(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    """Sets an object's attribute until the stack closes; deletes it then where the object had none of its own."""
    before = vars(owner).get(name, MISSING) if hasattr(owner, "__dict__") else getattr(owner, name)
    _put(stack, functools.partial(setattr, owner), functools.partial(delattr, owner), name, before, value)


def swapped(stack: ExitStack, mapping: Any, key: Any, value: Any) -> None:
    """Sets an item of a dictionary until the stack closes."""
    before = mapping.get(key, MISSING)
    _put(stack, mapping.__setitem__, functools.partial(mapping.pop, key), key, before, value)


def _put(
    stack: ExitStack, put: Callable[[Any, Any], None], drop: Callable[..., Any], name: Any, before: Any, value: Any
) -> None:
    if before is MISSING:
        stack.callback(_dropped, drop, name)
    else:
        stack.callback(put, name, before)
    put(name, value)


def _dropped(drop: Callable[..., Any], name: Any) -> None:
    try:
        drop(name)
    except (AttributeError, KeyError):
        return  # other code has removed it meanwhile


def around(workload: Workload, context: Callable[[], AbstractContextManager[Any]]) -> Workload:
    """The workload with one more context around its forward and loss, inside its own contexts."""
    return replace(workload, around=(*workload.around, context))


def entered(make: Callable[[Workload], AbstractContextManager[Any]]) -> Apply:
    """Applies a context around everything, such as a switch that is set while the workload runs."""

    @contextmanager
    def apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
        with make(workload):
            yield workload

    return apply


def own_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of a function with a code object of its own.

    torch.compile stores compiled code, recompilation counts and varying dimensions by code object and name: two arms
    that compile the same module must not share them.
    """
    code = function.__code__
    fresh = code.replace(co_name=f"{code.co_name}_{next(_numbers)}")
    copy = types.FunctionType(fresh, function.__globals__, fresh.co_name, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def whole_step(workload: Workload) -> tuple[Callable[..., Any], Sequence[Any]]:
    """The callable that runs one step of a workload, and its arguments.

    Raises UsageError where it has neither a step nor a model.
    """
    from gobrrr.observe.targets import step_of

    return step_of(workload, forward)


def forward(model: Callable[..., Any], *inputs: Any) -> Any:
    """One call of a model without gradients: the step of a workload that has only a model."""
    import torch

    with torch.no_grad():
        return model(*inputs)


def as_step(workload: Workload, step: Callable[..., Any], inputs: Sequence[Any]) -> Workload:
    """The workload with `step` in place of its model, loss, optimizer and loader."""
    return replace(workload, step=step, inputs=tuple(inputs), loss=None, targets=(), loader=None, around=())


def share_of(diagnosis: Diagnosis, *words: str) -> float:
    """The share of the device's time in calls with one of the words in their name; 1.0 where no calls are known."""
    total = sum(row.ns for row in diagnosis.ops)
    if total <= 0:
        return 1.0
    return sum(row.ns for row in diagnosis.ops if any(word in row.op.lower() for word in words)) / total


def counter_on(step: Any, device: Any) -> Any:
    """An optimizer's step counter moved to a device, in the type that torch.optim gives it there."""
    import torch

    double = str(device) == "cpu" and torch.get_default_dtype() == torch.float64
    return step.to(device, torch.float64 if double else torch.float32)


def memory_is_short(diagnosis: Diagnosis) -> str:
    """Why saving memory can't pay here; "" where the step fills the device's memory."""
    import torch

    peak = diagnosis.memory_peak_bytes
    if peak is None or not torch.cuda.is_available():
        return "it saves memory, not time, and the step's memory use is not known"
    share = peak / torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    if share >= MEMORY_SHORT:
        return ""
    return f"it saves memory, not time, and the step uses {units.percent(share)} of the device's"


def borrowed(stack: ExitStack, tensor: Any, like: Callable[[Any], Any], kept: dict[str, Any], *, back: bool) -> None:
    """Gives a tensor other memory, made by `like(its data)`, until the stack closes; then its own memory again, with
    the newer values if `back`.

    The tensor stays the object that the user's code holds. It gets the same memory at each visit, because a captured
    graph has its address.
    """
    own = tensor.data
    memory = kept.setdefault("memory", {})
    if id(tensor) not in memory:
        memory[id(tensor)] = tensor, like(own)  # the tensor too, so that its id stays its own
    tensor.data = memory[id(tensor)][1].copy_(own)
    stack.callback(_own_again, tensor, own, back)


def forgotten(kept: dict[str, Any], tensors: Sequence[Any]) -> None:
    """Frees the memory that `borrowed` made for tensors that are no longer among these."""
    memory, present = kept.get("memory", {}), {id(tensor) for tensor in tensors}
    for gone in [number for number in memory if number not in present]:
        del memory[gone]


def _own_again(tensor: Any, own: Any, back: bool) -> None:
    if back:
        own.copy_(tensor.data)
    tensor.data = own


def repeated_blocks(module: Any) -> list[Any]:
    """The model's repeated blocks: at least two of one class, held by a ModuleList or a Sequential; of several such
    classes the one with the most parameters."""
    import torch

    if module is None:
        return []
    families: dict[type, list[Any]] = {}
    for holder in module.modules():
        if isinstance(holder, (torch.nn.ModuleList, torch.nn.Sequential)):
            for child in holder:
                if len(list(child.children())) and not isinstance(child, (torch.nn.ModuleList, torch.nn.Sequential)):
                    families.setdefault(type(child), []).append(child)
    sizes = {
        kind: sum(p.numel() for block in found for p in block.parameters())
        for kind, found in families.items()
        if len(found) >= 2
    }
    return families[max(sizes, key=lambda kind: sizes[kind])] if sizes else []
