"""What a CUDA graph needs beside the graph: the state from before it was captured, and a step that is one replay."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from gobrrr.model.workload import Workload
from gobrrr.observe.installed import is_users
from gobrrr.treatments.framework import applying, reaching
from gobrrr.treatments.framework.way import Unapplied

WARM_UP = 3
"""Steps on a side stream before the capture: libraries and the allocator settle."""


class Before:
    """The values of a model and its optimizer, of gradients and of random numbers, put back in place."""

    def __init__(self, workload: Workload) -> None:
        import torch

        optimizer = workload.optimizer
        self.optimizer = optimizer
        self.parameters = parameters_of(workload)
        self.values = [
            (parameter, parameter.data_ptr(), parameter.detach().clone())
            for parameter in [*self.parameters, *_others(workload)]
        ]
        self.gradients = [
            (parameter, parameter.grad, None if parameter.grad is None else parameter.grad.clone())
            for parameter in self.parameters
        ]
        state = {} if optimizer is None else optimizer.state
        self.state = {
            parameter: (
                kept,
                [(key, one, one.clone() if isinstance(one, torch.Tensor) else one) for key, one in kept.items()],
            )
            for parameter, kept in state.items()
        }
        self.groups = [dict(group) for group in self._groups()]
        self.random = torch.get_rng_state()
        self.on_device = torch.cuda.get_rng_state() if torch.cuda.is_available() else None

    def _groups(self) -> list[dict[str, Any]]:
        return list(getattr(self.optimizer, "param_groups", ()))

    def moved(self) -> str:
        """Why a replay would not do what the steps did since; "" where it would."""
        import torch

        if any(one.data_ptr() != address for one, address, _ in self.values):
            return "the step gives parameters or buffers other memory"
        rates = [(now.get("lr"), was.get("lr")) for now, was in zip(self._groups(), self.groups, strict=True)]
        if any(now is not was and now != was for now, was in rates):
            return "the step changes the learning rate, which a graph holds fixed"
        if not torch.equal(torch.get_rng_state(), self.random):
            return "the step draws random numbers on the host, which a graph holds fixed"
        return ""

    def put_back(self) -> None:
        """Everything as it was."""
        import torch

        with torch.no_grad():
            for one, _, value in self.values:
                one.copy_(value)
            for one, gradient, value in self.gradients:
                one.grad = None if gradient is None else gradient.copy_(value)
        if self.optimizer is not None:
            for parameter in [one for one in self.optimizer.state if one not in self.state]:
                del self.optimizer.state[parameter]
            for parameter, (kept, values) in self.state.items():
                kept.clear()
                kept.update({key: value if one is value else one.copy_(value) for key, one, value in values})
                self.optimizer.state[parameter] = kept
            for group, before in zip(self.optimizer.param_groups, self.groups, strict=True):
                group.update(before)
        torch.set_rng_state(self.random)
        if self.on_device is not None:
            torch.cuda.set_rng_state(self.on_device)


@contextmanager
def without_waits() -> Iterator[None]:
    """Raises Unapplied where the host waits for the device within: a capture that fails leaves things behind."""
    import torch

    from gobrrr.observe.live.watches.sync_mode import set_sync_mode

    before = torch.cuda.get_sync_debug_mode()
    set_sync_mode("error")
    try:
        yield
    except RuntimeError as error:
        if "synchroniz" not in str(error):
            raise
        raise Unapplied(f"the host waits for the device inside it{_line_of(error)}: see remove-sync") from error
    finally:
        set_sync_mode(before)


def _line_of(error: BaseException) -> str:
    """Where an error comes from in the user's source; "" where that is not known."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_users(frame.filename)]
    return f" ({os.path.basename(own[-1].filename)}:{own[-1].lineno})" if own else ""


@contextmanager
def recovered(pool: Any = None) -> Iterator[None]:
    """After a capture that failed the allocator and the random numbers believe that it goes on: they are told."""
    import torch

    try:
        yield
    except BaseException:
        device = torch.cuda.current_device()
        with suppress(Exception):
            generator = torch.cuda.default_generators[device]
            generator.graphsafe_set_state(generator.clone_state())
        with suppress(Exception):
            torch._C._cuda_endAllocateToPool(device, pool)
        raise


def parameters_of(workload: Workload) -> list[Any]:
    """The parameters of the models that the step holds and of the optimizer, each once."""
    found = [parameter for module in _modules(workload) for parameter in module.parameters()]
    found += [one for group in getattr(workload.optimizer, "param_groups", ()) for one in group["params"]]
    return list({id(one): one for one in found}.values())


def _modules(workload: Workload) -> list[Any]:
    import torch

    return [one for one in reaching.reached(workload) if isinstance(one, torch.nn.Module)]


def _others(workload: Workload) -> list[Any]:
    """Buffers, and the tensors that the step holds itself: a cache, say."""
    found = [buffer for module in _modules(workload) for buffer in module.buffers()]
    own = {id(parameter) for parameter in parameters_of(workload)}
    found += reaching.held_tensors(workload)
    return [one for one in {id(one): one for one in found}.values() if id(one) not in own]


def fixed(tree: Any) -> Any:
    """The same inputs in memory of their own, whose addresses stay."""
    return applying.mapped(tree, lambda one: one.detach().clone().requires_grad_(one.requires_grad))


class Replayed:
    """A whole step, captured: its inputs are copied in, its results are copies.

    Raises Unapplied where the step can't be captured. Afterwards the workload is as it was.
    """

    def __init__(self, workload: Workload) -> None:
        import torch

        self.workload, self.optimizer = workload, workload.optimizer
        step, self.inputs = applying.whole_step(workload)
        self.static = fixed(tuple(self.inputs))
        self.slots = list(applying.tensors_of(self.static))
        before = Before(workload)
        self.graph = torch.cuda.CUDAGraph()
        try:
            with ExitStack() as stack:
                capturable(stack, self.optimizer)
                side = torch.cuda.Stream()
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    for _ in range(WARM_UP):
                        step(*self.static)
                    with without_waits():
                        step(*self.static)
                torch.cuda.current_stream().wait_stream(side)
                why = before.moved()
                if any(slot._version for slot in self.slots):
                    why = "the step writes into its inputs"
                if why:
                    raise Unapplied(why)
                with recovered(pool := torch.cuda.graph_pool_handle()), torch.cuda.graph(self.graph, pool=pool):
                    result = step(*self.static)
                # without its history, whose nodes would tie later steps to the stream of the capture
                self.result = applying.mapped(result, lambda one: one.detach())
                del result
                self.gradients = [(parameter, parameter.grad) for parameter in parameters_of(workload)]
                kept = {} if self.optimizer is None else self.optimizer.state
                self.state = {parameter: dict(one) for parameter, one in kept.items()}
        except Unapplied:
            raise
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            raise Unapplied(f"the step can't be captured: {one_line(error)}") from error
        finally:
            before.put_back()
            if workload.reset is not None:
                workload.reset()
        self.outside: dict[Any, Any] = {}

    def __call__(self, *inputs: Any) -> Any:
        """One step."""
        self._hold()
        for mine, given in zip(self.slots, applying.tensors_of(inputs), strict=True):
            if mine is not given:
                mine.copy_(given, non_blocking=True)
        self.graph.replay()
        return applying.mapped(self.result, lambda one: one.detach().clone())

    @contextmanager
    def held(self) -> Iterator[Sequence[Any]]:
        """While it is entered the optimizer keeps its state where the graph has it; yields the step's inputs."""
        with ExitStack() as stack:
            for one, gradient in self.gradients:
                stack.callback(setattr, one, "grad", one.grad)
                one.grad = gradient
            self.outside = {}
            stack.callback(self._hand_back)
            self._hold()
            for group in _capturable_groups(self.optimizer):
                applying.swapped(stack, group, "capturable", True)
            yield self.inputs

    def _hold(self) -> None:
        """The values of the optimizer's state in the graph's tensors, where somebody has put others in their place."""
        import torch

        first = next(iter(self.state), None)
        if first is None or self.optimizer.state.get(first) is self.state[first]:
            return
        for parameter, mine in self.state.items():
            now = self.optimizer.state.get(parameter, {})
            self.outside[parameter] = now
            for key, one in mine.items():
                if isinstance(one, torch.Tensor) and now.get(key) is not one:
                    # every optimizer that can be captured begins with zeros
                    one.zero_() if now.get(key) is None else one.copy_(torch.as_tensor(now[key]))
            self.optimizer.state[parameter] = mine

    def _hand_back(self) -> None:
        """The values in the tensors that the optimizer had; what it did not have then is its own from here on."""
        import torch

        for parameter, mine in self.state.items():
            if self.optimizer.state.get(parameter) is not mine:
                continue
            had = self.outside.get(parameter, {})
            for key, one in mine.items():
                if isinstance(had.get(key), torch.Tensor):
                    had[key] = had[key] if had[key] is one else had[key].copy_(one)
                else:
                    off = key == "step" and not _counts_at_home(self.optimizer, parameter)
                    had[key] = applying.counter_on(one, "cpu") if off else one
            self.optimizer.state[parameter] = had


def _counts_at_home(optimizer: Any, parameter: Any) -> bool:
    """Whether the optimizer counts this parameter's steps on the device without a graph as well."""
    return any(
        (group.get("fused") or group.get("capturable"))
        for group in optimizer.param_groups
        if any(one is parameter for one in group["params"])
    )


def _capturable_groups(optimizer: Any) -> list[Any]:
    """The groups that can be told to be capturable and are not."""
    return [one for one in getattr(optimizer, "param_groups", ()) if one.get("capturable") is False]


def capturable(stack: ExitStack, optimizer: Any) -> None:
    """Lets the optimizer be captured until the stack closes: what counts its steps is on the device."""
    import torch

    for group in _capturable_groups(optimizer):
        applying.swapped(stack, group, "capturable", True)
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            if isinstance(state.get("step"), torch.Tensor):
                applying.swapped(stack, state, "step", applying.counter_on(state["step"], parameter.device))


def one_line(error: BaseException) -> str:
    """The first line of an error, with its kind."""
    text = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {text}"[:200]
