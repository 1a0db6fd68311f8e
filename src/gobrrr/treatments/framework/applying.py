"""What several treatments need to be applied to a workload in place, and taken off it again."""

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
"""What torch.compile hands its graphs to."""

MISSING = object()
"""Stands for an attribute or an item that was not there."""

WORTH_TRYING = 0.02
"""A part of the step that is smaller is not worth a trial."""

MEMORY_SHORT = 0.8
"""From this share of the device's memory on a step has reason to save some."""

_numbers = itertools.count()


def module_of(workload: Workload) -> Any:
    """The workload's model where it is an nn.Module, else None."""
    import torch

    return workload.model if isinstance(workload.model, torch.nn.Module) else None


def device_of(workload: Workload) -> str:
    """The kind of device that the workload runs on: that of its parameters, else of its inputs, else of what it
    optimizes or its step holds; "cpu" where nothing says so."""
    import torch

    module = module_of(workload)
    owned = itertools.chain(module.parameters(), module.buffers()) if module is not None else ()
    given = tensors_of((workload.inputs, workload.targets))
    optimized = (one for group in getattr(workload.optimizer, "param_groups", ()) for one in group["params"])
    found = (one for one in reaching.reached(workload) if isinstance(one, torch.nn.Module))
    held = itertools.chain((part for one in found for part in one.parameters()), reaching.held_tensors(workload))
    kinds = (str(one.device.type) for one in itertools.chain(owned, given, optimized, held))
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


NO_BACKWARD = "no backward is seen in the step"
NO_MODEL = "which model the step runs is not known: return a gobrrr.Workload with model="


def of_model(workload: Workload, why: str) -> str:
    """Why a way does not fit the workload's model; of a step whose model is not known, that."""
    return NO_MODEL if workload.model is None else why


def modules_of(workload: Workload, *kinds: Any) -> list[Any]:
    """The model's modules, those of one of the classes `kinds` where any are given; none without an nn.Module."""
    module = module_of(workload)
    found = [] if module is None else list(module.modules())
    return [one for one in found if isinstance(one, kinds)] if kinds else found


def tensors_of(tree: Any) -> Iterator[Any]:
    """All tensors in nested tuples, lists and mappings."""
    import torch

    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, Mapping):
        for one in tree.values():
            yield from tensors_of(one)
    elif isinstance(tree, (list, tuple)):
        for one in tree:
            yield from tensors_of(one)


def mapped(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The same nested tuples, lists and mappings with each tensor replaced by `change(tensor)`."""
    import torch

    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, dict):
        changed = {key: mapped(one, change) for key, one in tree.items()}
        if type(tree) is dict:
            return changed
        return type(tree)(**changed) if all(isinstance(key, str) for key in tree) else type(tree)(changed)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(mapped(one, change) for one in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(mapped(one, change) for one in tree)
    if isinstance(tree, MutableMapping):  # a batch of transformers', say
        made = copy.copy(tree)
        for key, one in tree.items():
            made[key] = mapped(one, change)
        return made
    return {key: mapped(one, change) for key, one in tree.items()} if isinstance(tree, Mapping) else tree


def patched(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    """Sets an object's own attribute until the stack closes; what was not the object's own is deleted then."""
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
        return  # whoever ran meanwhile took it away


def around(workload: Workload, context: Callable[[], AbstractContextManager[Any]]) -> Workload:
    """The workload with one more context around its forward and loss, inside those that it has."""
    return replace(workload, around=(*workload.around, context))


def entered(make: Callable[[Workload], AbstractContextManager[Any]]) -> Apply:
    """The way to apply what is a context around everything: a switch that is set while the workload runs."""

    @contextmanager
    def apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
        with make(workload):
            yield workload

    return apply


def own_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of a function whose code object is nobody else's.

    What torch.compile made, its count of recompilations and which dimensions varied belong to the code and its name:
    two arms that compile the same module must not share them.
    """
    code = function.__code__
    fresh = code.replace(co_name=f"{code.co_name}_{next(_numbers)}")
    copy = types.FunctionType(fresh, function.__globals__, fresh.co_name, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def whole_step(workload: Workload) -> tuple[Callable[..., Any], Sequence[Any]]:
    """The callable that runs one step of a workload, and what it is called with.

    Raises UsageError where it has neither a step nor a model.
    """
    import torch

    from gobrrr.observe.targets import step_of

    def forward(model: Callable[..., Any], *inputs: Any) -> Any:
        with torch.no_grad():
            return model(*inputs)

    return step_of(workload, forward)


def as_step(workload: Workload, step: Callable[..., Any], inputs: Sequence[Any]) -> Workload:
    """The workload as a step that does everything itself."""
    return replace(workload, step=step, inputs=tuple(inputs), loss=None, targets=(), loader=None, around=())


def share_of(diagnosis: Diagnosis, *words: str) -> float:
    """The share of the device's time in calls whose name has one of the words; 1.0 where no calls are known."""
    total = sum(row.ns for row in diagnosis.ops)
    if total <= 0:
        return 1.0
    return sum(row.ns for row in diagnosis.ops if any(word in row.op.lower() for word in words)) / total


def counter_on(step: Any, device: Any) -> Any:
    """An optimizer's count of steps on a device, in the type that torch.optim makes it in there."""
    import torch

    double = str(device) == "cpu" and torch.get_default_dtype() == torch.float64
    return step.to(device, torch.float64 if double else torch.float32)


def memory_is_short(diagnosis: Diagnosis) -> str:
    """Why a treatment that saves memory and costs time can't pay here; "" where the step fills the device."""
    import torch

    peak = diagnosis.memory_peak_bytes
    if peak is None or not torch.cuda.is_available():
        return "it saves memory, not time, and how much of it the step takes is not known"
    share = peak / torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    if share >= MEMORY_SHORT:
        return ""
    return f"it saves memory, not time, and the step takes {units.percent(share)} of the device's"


def borrowed(stack: ExitStack, tensor: Any, like: Callable[[Any], Any], kept: dict[str, Any], *, back: bool) -> None:
    """Gives a tensor other memory, which `like(its data)` makes, until the stack closes; then its own again, with the
    newer values where `back` says so.

    The tensor stays the object that the user's code holds. Its memory is the same at each visit, for a captured graph
    has its address.
    """
    own = tensor.data
    memory = kept.setdefault("memory", {})
    if id(tensor) not in memory:
        memory[id(tensor)] = tensor, like(own)  # the tensor too, so that its id stays its own
    tensor.data = memory[id(tensor)][1].copy_(own)
    stack.callback(_own_again, tensor, own, back)


def forgotten(kept: dict[str, Any], tensors: Sequence[Any]) -> None:
    """Lets go of the memory that was lent to tensors that are no longer among these."""
    memory, here = kept.get("memory", {}), {id(tensor) for tensor in tensors}
    for gone in [one for one in memory if one not in here]:
        del memory[gone]


def _own_again(tensor: Any, own: Any, back: bool) -> None:
    if back:
        own.copy_(tensor.data)
    tensor.data = own


def repeated_blocks(module: Any) -> list[Any]:
    """The blocks of one class, two at least, that a ModuleList or a Sequential of the model holds; of several classes
    the one with the most parameters. They have no repeated blocks above them."""
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
        kind: sum(p.numel() for one in found for p in one.parameters())
        for kind, found in families.items()
        if len(found) >= 2
    }
    return families[max(sizes, key=lambda kind: sizes[kind])] if sizes else []
