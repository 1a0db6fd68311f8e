"""What a step changes, copied once and put back any number of times, in place: the addresses of tensors stay the same.

That is parameters, buffers, gradients, optimizer state and options, inputs, random states, and what the step's closure
holds of these: the values of attributes and variables, and the entries of lists, dictionaries and sets. The workload's
own `reset` runs last.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from copy import copy, deepcopy
from typing import Any

import torch

from gobrrr import units
from gobrrr.model.workload import Workload
from gobrrr.observe.live.apart import apart
from gobrrr.observe.live.clock import on_gpu
from gobrrr.observe.live.state import contents
from gobrrr.observe.live.state.contents import Undo
from gobrrr.observe.live.state.parts import SCALARS, StateParts, internal_names, leaves, parts_of

DEVICE_SHARE = 0.1
"""The share of a device's memory that copies may take before they go to the host's; chosen."""


class TooLarge(Exception):
    """The state has more bytes than copies may take. Nothing was copied."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size} bytes")
        self.size = size


class Snapshot:
    """The state of a workload at one moment.

    `device_share`: the share of a device's memory that copies may take. Raises TooLarge where all copies together
    would take more than `most_bytes`. Leaves out what `beside`, an earlier snapshot, puts back.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        device_share: float = DEVICE_SHARE,
        most_bytes: float = math.inf,
        beside: Snapshot | None = None,
    ) -> None:
        self._parts = parts_of(workload, within=True)
        self._reset = workload.reset
        # the things themselves, so that their ids stay their own
        self._seen: dict[int, Any] = dict(beside._seen) if beside is not None else {}
        self._undo: list[Undo] = []
        self._room = _room(device_share)
        self.device_bytes = 0
        self.whole = self._parts.known or workload.reset is not None
        self.seconds = 0.0
        self.notes: list[str] = []
        """What is not put back, in words."""
        size = sum(map(_bytes, tensors_of(self._parts, self._seen)))
        if size > most_bytes:
            raise TooLarge(size)
        with apart():
            self._take()

    def restore(self) -> None:
        """Put everything back. Not while a treatment is applied."""
        begin = time.perf_counter()
        with apart():
            for undo in self._undo:
                undo()
        if self._reset is not None:
            self._reset()
        self.restore_random()
        if on_gpu():
            torch.cuda.synchronize()
        self.seconds = time.perf_counter() - begin

    def holds(self, thing: Any) -> bool:
        """Whether this snapshot puts back a tensor, a module or an optimizer."""
        return self._seen.get(id(thing)) is thing

    def restore_random(self) -> None:
        """Put back the random states only."""
        with apart():
            for undo in self._numbers:
                undo()

    def _take(self) -> None:
        for module in self._parts.modules:
            for submodule in module.modules():
                self._module(submodule)
        for optimizer in self._parts.optimizers:
            self._optimizer(optimizer)
        for tensor in self._parts.tensors:
            self._tensor(tensor)
        for thing in self._parts.stateful:
            self._stateful(thing)
        self._bound()
        self._numbers = random_states(self._parts.generators)

    def _bound(self) -> None:
        """The values of variables and attributes, and the entries of containers."""
        parts = self._parts
        self._undo += [contents.cell_back(cell, value) for cell, value in parts.cells]
        self._undo += [contents.name_back(names, name) for names, name in parts.names]
        self._undo += [contents.attributes_back(owner, frozenset()) for owner in parts.owners]
        self._undo += filter(None, map(contents.generator_back, parts.dice))
        entries = list(filter(None, map(contents.put_back, parts.containers)))
        self._undo += entries
        large = len(parts.containers) - len(entries)
        if large and self._reset is None:
            self.notes.append(f"not put back: {units.things(large, 'container')} of over {contents.MOST_HELD} entries")
        if parts.iterators and self._reset is None:
            names = ", ".join(dict.fromkeys(parts.iterators))
            self.notes.append(f"the step takes items from {names}: an iterator can't be put back")

    def _known(self, thing: Any) -> bool:
        known = id(thing) in self._seen
        self._seen[id(thing)] = thing
        return known

    def _module(self, module: Any) -> None:
        """A module's own parameters, buffers and modules, and whether it trains."""
        if self._known(module):
            return
        for parameter in (*module._parameters.values(), *module._buffers.values()):
            if isinstance(parameter, torch.Tensor):
                self._tensor(parameter)
        held = [(members, dict(members)) for members in (module._parameters, module._buffers, module._modules)]
        training = module.training

        def undo() -> None:
            for members, before in held:
                _put_back(members, before)
            if module.training != training:
                module.training = training

        self._undo += [undo, contents.attributes_back(module, internal_names())]

    def _tensor(self, tensor: Any) -> None:
        """A tensor's values, its memory, and its gradient."""
        if self._known(tensor):
            return
        data, values, requires_grad = tensor.detach(), self._copied(tensor), tensor.requires_grad
        gradient = tensor.grad if tensor.is_leaf else None
        before = None if gradient is None else self._copied(gradient)

        def undo() -> None:
            if _moved(tensor, data):
                tensor.data = data
            write(tensor, values)
            if not tensor.is_leaf:
                return
            if tensor.requires_grad != requires_grad:
                tensor.requires_grad_(requires_grad)
            if tensor.grad is not gradient:
                tensor.grad = gradient
            if gradient is not None:
                write(gradient, before)

        self._undo.append(undo)

    def _copied(self, tensor: Any) -> Any:
        """A copy on the device where there is room, else in the host's memory."""
        size = _bytes(tensor)
        if tensor.device.type != "cuda":
            return tensor.detach().clone()
        if self.device_bytes + size > self._room:
            return tensor.detach().cpu()
        try:
            copied = tensor.detach().clone()
        except torch.OutOfMemoryError:
            return tensor.detach().cpu()
        self.device_bytes += size
        return copied

    def _optimizer(self, optimizer: Any) -> None:
        """An optimizer's parameters, state and options. State that is new by then is removed."""
        if self._known(optimizer):
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._tensor(parameter)
        state = {parameter: self._frozen(held) for parameter, held in optimizer.state.items()}
        groups = list(optimizer.param_groups)
        options = [self._frozen({key: value for key, value in group.items() if key != "params"}) for group in groups]
        params = [list(group["params"]) for group in groups]

        def undo() -> None:
            for key in [key for key in optimizer.state if key not in state]:
                del optimizer.state[key]
            for key, thaw in state.items():
                held = optimizer.state[key]
                if isinstance(held, dict):
                    _put_back(held, thaw())
                else:
                    optimizer.state[key] = thaw()
            if list(map(id, optimizer.param_groups)) != list(map(id, groups)):
                optimizer.param_groups[:] = groups
            for group, thaw, before in zip(groups, options, params, strict=True):
                _put_back(group, {**thaw(), "params": group["params"]})
                if list(map(id, group["params"])) != list(map(id, before)):
                    group["params"] = list(before)

        self._undo.append(undo)

    def _frozen(self, value: Any) -> Callable[[], Any]:
        """What makes the value again as it is now, with the same tensors, which are put back by themselves."""
        if isinstance(value, torch.Tensor):
            self._tensor(value)
            return lambda: value
        if type(value) is dict:
            held = {key: self._frozen(item) for key, item in value.items()}
            return lambda: {key: thaw() for key, thaw in held.items()}
        if isinstance(value, SCALARS) or (type(value) is tuple and all(isinstance(item, SCALARS) for item in value)):
            return lambda: value
        if type(value) in (list, tuple):
            items, kind = [self._frozen(item) for item in value], type(value)
            return lambda: kind(thaw() for thaw in items)
        try:
            kept = deepcopy(value)
        except Exception:  # assume that a step does not change what can't be copied
            return lambda: value
        return lambda: copy(kept)

    def _stateful(self, thing: Any) -> None:
        """A learning rate schedule, a gradient scaler: an object with `state_dict` and `load_state_dict`."""
        if self._known(thing):
            return
        try:
            state = deepcopy(thing.state_dict())
        except Exception:  # it is not of that kind after all
            return
        self._undo.append(lambda: thing.load_state_dict(deepcopy(state)))


def tensors_of(parts: StateParts, seen: Mapping[int, Any]) -> Iterator[Any]:
    """The tensors that a copy of the state is made of, each once, with their gradients; none of those in `seen`."""
    known = set(seen)
    held = [parameter for module in parts.modules for parameter in (*module.parameters(), *module.buffers())]
    for optimizer in parts.optimizers:
        held += [parameter for group in optimizer.param_groups for parameter in group["params"]]
        held += leaves(dict(optimizer.state))
    for tensor in (*held, *parts.tensors):
        if id(tensor) not in known:
            known.add(id(tensor))
            yield tensor
            if tensor.is_leaf and tensor.grad is not None:
                yield tensor.grad


def snapshot(workload: Workload) -> Snapshot:
    """The state of the workload now."""
    return Snapshot(workload)


def write(tensor: Any, values: Any) -> None:
    """Copy values into a tensor, also into an expanded one and into one made in inference mode."""
    with torch.inference_mode() if tensor.is_inference() else torch.no_grad():
        _own(tensor).copy_(_own(values, tensor))


def _own(tensor: Any, like: Any = None) -> Any:
    """The part of an expanded tensor that has memory of its own."""
    like = tensor if like is None else like
    if like.layout != torch.strided:
        return tensor
    for dim, (size, stride) in enumerate(zip(like.shape, like.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _moved(tensor: Any, data: Any) -> bool:
    """Whether the tensor has other memory, or another view of it, than it had."""
    if (tensor.shape, tensor.dtype, tensor.device, tensor.layout) != (data.shape, data.dtype, data.device, data.layout):
        return True
    if tensor.layout != torch.strided:
        return False
    try:
        return bool(tensor.data_ptr() != data.data_ptr() or tensor.stride() != data.stride())
    except RuntimeError:  # a tensor without memory of its own
        return False


def _put_back(mapping: dict[Any, Any], before: Mapping[Any, Any]) -> None:
    """Give a dictionary the entries that it had."""
    for key in [key for key in mapping if key not in before]:
        del mapping[key]
    contents.rebind(mapping, before)


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size()) if tensor.layout == torch.strided else 0


def _room(share: float) -> float:
    if not share or not on_gpu():
        return 0.0
    return share * float(torch.cuda.mem_get_info()[1])


def random_states(generators: tuple[Any, ...] = ()) -> list[Undo]:
    """What puts the random states of Python, NumPy and torch back to where they are now."""
    states: list[tuple[Callable[[Any], Any], Any]] = [
        (torch.set_rng_state, torch.get_rng_state()),
        (random.setstate, random.getstate()),
        *((generator.set_state, generator.get_state()) for generator in generators),
    ]
    if on_gpu():
        states.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        states.append((numpy.random.set_state, numpy.random.get_state()))
    return [lambda write=write, state=state: write(state) for write, state in states]  # type: ignore[misc]


def drawn(generators: tuple[Any, ...] = ()) -> Callable[[], bool]:
    """A function that says whether a random number was drawn since."""
    before = _positions(generators)
    return lambda: _positions(generators) != before


def seeds_itself(run: Callable[[int], Any]) -> bool:
    """Whether a step sets the seed of torch's random numbers itself and then draws some.

    Then it draws the same numbers whatever the seed was before. `run(seed)` sets a seed and takes steps.
    """
    ends = []
    for seed in (1, 2):
        run(seed)
        ends.append([generator.get_state() for generator in _torch_generators()])
    unused = [generator.manual_seed(generator.initial_seed()).get_state() for generator in _torch_generators()]
    return any(
        torch.equal(first, second) and not torch.equal(second, start)
        for first, second, start in zip(*ends, unused, strict=True)
    )


def _torch_generators() -> list[Any]:
    return [torch.default_generator, *(torch.cuda.default_generators if on_gpu() else ())]


def _positions(generators: tuple[Any, ...]) -> list[Any]:
    positions: list[Any] = [torch.get_rng_state().numpy().tobytes(), hash(random.getstate())]
    positions += [generator.get_state().cpu().numpy().tobytes() for generator in generators]
    if on_gpu():
        positions += [state.cpu().numpy().tobytes() for state in torch.cuda.get_rng_state_all()]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        state = numpy.random.get_state()
        positions.append((state[0], state[1].tobytes(), *state[2:]))
    return positions


def seeded(seed: int) -> None:
    """Seed the random numbers of Python, NumPy and torch."""
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
