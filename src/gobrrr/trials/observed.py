"""The values of some steps of an arm: outputs, losses, gradients, and the change of the parameters. All are copies.

The rows of the inputs are rolled in place between steps, so that an arm which reads its inputs only once, such as a
wrongly captured graph, gives different numbers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from gobrrr.model.workload import Workload
from gobrrr.observe.live.state.parts import buffers_of, leaves, parameters_of
from gobrrr.observe.live.state.snapshot import write

MOST_PARAMETERS = 16
MOST_BUFFERS = 8
MOST_VALUES = 1 << 18
"""Parameters, buffers, and values of one tensor in one step that are compared at most, chosen evenly."""
DEEPEST_OUTPUT = 6
"""Levels of a nested output that are searched for tensors."""


@dataclass
class Observed:
    """Values by name, with one entry per step: the model's outputs, what the step returned, sampled gradients.

    `change`: parameters and buffers at the end less at the begin; `changed`: whether any value differs; `sizes`: their
    norms before. `shapes`: of what the step returned; `given`: of the model's outputs. `roundoff`: the largest unit
    roundoff among the returned types. Losses are under "".
    """

    outputs: dict[str, list[Any]] = field(default_factory=dict)
    returned: dict[str, list[Any]] = field(default_factory=dict)
    losses: dict[str, list[Any]] = field(default_factory=dict)
    gradients: dict[str, list[Any]] = field(default_factory=dict)
    change: dict[str, Any] = field(default_factory=dict)
    changed: dict[str, bool] = field(default_factory=dict)
    sizes: dict[str, float] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    given: dict[str, tuple[int, ...]] = field(default_factory=dict)
    roundoff: float = 0.0


class StepObserver:
    """Observes steps, with the same parameters and buffers in every arm.

    `times`: how many of the workload's batches one step processes, concatenated: of a tensor that is as many times as
    large in one dimension only the first batch's part is used. `like`: the values for one batch, which tell the
    dimension; without them it is the first with a matching size.
    """

    def __init__(self, workload: Workload, times: int = 1, like: Observed | None = None) -> None:
        self._original = workload
        self._times, self._rows, self._like = times, _batch(workload), like or Observed()
        self._names = _evenly(list(parameters_of(workload)), MOST_PARAMETERS)
        self._buffers = _evenly(list(buffers_of(workload)), MOST_BUFFERS)
        self._found = Observed()
        self._parameters: dict[str, Any] = {}

    def seen(self, output: Any) -> None:
        """Record the model's output, and the gradients that exist now."""
        for name, leaf in named_leaves(output):
            tensor = self._first_batch(leaf, self._like.given.get(name))
            self._found.outputs.setdefault(name, []).append(sampled(tensor))
            self._found.given[name] = tuple(tensor.shape)
        self._gradients()

    def run(self, call: Callable[[], Any], workload: Workload, steps: int) -> Observed:
        """Run the steps and return their values. `workload`: what the arm made of the original."""
        found = self._found = Observed()
        self._parameters = self._now(workload)
        begin = {name: tensor.detach().clone() for name, tensor in self._parameters.items()}
        rolled = _rollable(self._original, workload, self._times)
        as_given = [tensor.detach().clone() for tensor in rolled]
        try:
            for number in range(steps):
                if number:
                    for tensor in rolled:
                        write(tensor, tensor.roll(1, 0))
                self._returned(call())
                if all(len(gradient) <= number for gradient in found.gradients.values()):
                    self._gradients()
        finally:
            for tensor, values in zip(rolled, as_given, strict=True):
                write(tensor, values)
        for name, tensor in self._now(workload).items():
            if name in begin and begin[name].shape == tensor.shape:
                found.changed[name] = not torch.equal(begin[name], tensor.detach().to(begin[name].dtype))
                values = sampled(begin[name])
                found.change[name], found.sizes[name] = sampled(tensor) - values, float(values.double().norm())
                found.roundoff = max(found.roundoff, roundoff(tensor.dtype))
        return found

    def _returned(self, value: Any) -> None:
        found = self._found
        for name, leaf in named_leaves(value):
            tensor = self._first_batch(leaf, self._like.shapes.get(name))
            if not name and tensor.numel() == 1 and tensor.is_floating_point():
                found.losses.setdefault("", []).append(sampled(tensor))
            else:
                found.returned.setdefault(name, []).append(sampled(tensor))
                found.shapes[name] = tuple(tensor.shape)
            found.roundoff = max(found.roundoff, roundoff(tensor.dtype))

    def _first_batch(self, tensor: Any, like: tuple[int, ...] | None) -> Any:
        if self._times == 1:
            return tensor
        rows = like or (self._rows,) * tensor.dim()
        if len(rows) != tensor.dim():
            return tensor
        larger = [dim for dim, size in enumerate(tensor.shape) if size == self._times * rows[dim] > 0]
        return tensor.narrow(larger[0], 0, rows[larger[0]]) if larger else tensor

    def _gradients(self) -> None:
        for name in self._names:
            tensor = self._parameters.get(name)
            if tensor is not None and tensor.is_leaf and tensor.grad is not None:
                self._found.gradients.setdefault(name, []).append(sampled(tensor.grad))

    def _now(self, workload: Workload) -> dict[str, Any]:
        """The parameters and buffers while an arm is entered; those of its own model, if it has one."""
        found = parameters_of(self._original) | buffers_of(self._original)
        model = workload.model
        if model is not self._original.model and isinstance(model, torch.nn.Module):
            for name, tensor in (*model.named_parameters(), *model.named_buffers()):
                found[name.replace("_orig_mod.", "")] = tensor
        return {name: found[name] for name in (*self._names, *self._buffers) if name in found}


def _evenly(names: list[str], most: int) -> list[str]:
    if len(names) <= most:
        return names
    return [names[round(i * (len(names) - 1) / (most - 1))] for i in range(most)]


def _batch(workload: Workload) -> int:
    """The number of rows of the inputs; 0 where they differ."""
    sizes = {leaf.shape[0] if leaf.dim() else 0 for value in workload.inputs for leaf in leaves(value)}
    return int(sizes.pop()) if len(sizes) == 1 else 0


def _rollable(original: Workload, workload: Workload, times: int = 1) -> list[Any]:
    """The inputs whose rows may be rolled: those that the arm reads, where they match the user's, else the user's.

    `times` concatenated batches roll like one batch.
    """
    theirs, ours = _rows(workload), _rows(original)
    alike = [tensor.shape[0] for tensor in theirs] == [times * tensor.shape[0] for tensor in ours]
    return theirs if alike else ours


def _rows(workload: Workload) -> list[Any]:
    """Floating-point tensors with rows; where all are integers, those with columns: tokens, but not offsets."""
    given = {id(leaf): leaf for value in workload.inputs for leaf in leaves(value)}
    held = [
        leaf
        for leaf in given.values()
        if not isinstance(leaf, torch.nn.Parameter)
        and leaf.layout == torch.strided
        and leaf.dim() > 0
        and leaf.shape[0] > 1
        and leaf.stride(0) != 0
    ]
    floats = [tensor for tensor in held if tensor.is_floating_point()]
    if floats:
        return floats
    tokens = [tensor for tensor in held if tensor.dim() > 1 and not tensor.is_complex()]
    return tokens if len({token.shape[0] for token in tokens}) == 1 else []


def named_leaves(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The tensors and numbers in an output, by their path."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, bool | int | float):
        yield name, torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else torch.int64)
    elif value is None or depth > DEEPEST_OUTPUT or isinstance(value, str | bytes | torch.nn.Module):
        return
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from named_leaves(item, f"{name}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from named_leaves(item, f"{name}.{number}", depth + 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for part in dataclasses.fields(value):
            yield from named_leaves(getattr(value, part.name, None), f"{name}.{part.name}", depth + 1)
    elif hasattr(value, "__dict__") and not callable(value):
        for key, var in vars(value).items():
            yield from named_leaves(var, f"{name}.{key}", depth + 1)


def sampled(tensor: Any) -> Any:
    """A copy of a tensor's values in host memory: float64, or int64 for integers."""
    with torch.no_grad():
        tensor = tensor.detach()
        if tensor.layout != torch.strided:
            tensor = tensor.to_dense()
        if tensor.is_quantized:
            tensor = tensor.dequantize()
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor.resolve_conj())
        flat = tensor.reshape(-1)
        if flat.numel() > MOST_VALUES:
            flat = flat[:: math.ceil(flat.numel() / MOST_VALUES)]
        whole = not tensor.is_floating_point()
        return flat.to(torch.int64 if whole else torch.float64).to("cpu", copy=True)


def roundoff(dtype: Any) -> float:
    """The unit roundoff of a type, half the distance from 1 to the next number; 0 for integers."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    return float(torch.finfo(dtype).eps) / 2
