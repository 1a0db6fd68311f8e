"""Capturing a step as a CUDA graph: a step that is one replay, and the state before the capture, put back after it."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from gobrrr.model.workload import Workload
from gobrrr.observe.installed import is_users
from gobrrr.treatments.framework import applying, reaching
from gobrrr.treatments.framework.way import NotApplicable, error_line

WARM_UP_STEPS = 3
"""Steps on a side stream before the capture, as torch.cuda.make_graphed_callables runs them: libraries and the
allocator settle."""


class StateBeforeCapture:
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
                [
                    (key, value, value.clone() if isinstance(value, torch.Tensor) else value)
                    for key, value in kept.items()
                ],
            )
            for parameter, kept in state.items()
        }
        self.groups = [dict(group) for group in self._groups()]
        self.random = torch.get_rng_state()
        self.on_device = torch.cuda.get_rng_state() if torch.cuda.is_available() else None

    def _groups(self) -> list[dict[str, Any]]:
        return list(getattr(self.optimizer, "param_groups", ()))

    def moved(self) -> str:
        """Why a replay would differ from the steps that ran since; "" where it would not."""
        import torch

        if any(tensor.data_ptr() != address for tensor, address, _ in self.values):
            return "the step moves parameters or buffers to other memory"
        rates = [(now.get("lr"), was.get("lr")) for now, was in zip(self._groups(), self.groups, strict=True)]
        if any(now is not was and now != was for now, was in rates):
            return "the step changes the learning rate, which a graph holds fixed"
        if not torch.equal(torch.get_rng_state(), self.random):
            return "the step draws random numbers on the host, which a graph holds fixed"
        return ""

    def put_back(self) -> None:
        """Restores everything."""
        import torch

        with torch.no_grad():
            for parameter, _, value in self.values:
                parameter.copy_(value)
            for parameter, gradient, value in self.gradients:
                parameter.grad = None if gradient is None else gradient.copy_(value)
        if self.optimizer is not None:
            for parameter in [new for new in self.optimizer.state if new not in self.state]:
                del self.optimizer.state[parameter]
            for parameter, (kept, values) in self.state.items():
                kept.clear()
                kept.update({key: value if held is value else held.copy_(value) for key, held, value in values})
                self.optimizer.state[parameter] = kept
            for group, before in zip(self.optimizer.param_groups, self.groups, strict=True):
                group.update(before)
        torch.set_rng_state(self.random)
        if self.on_device is not None:
            torch.cuda.set_rng_state(self.on_device)


@contextmanager
def without_waits() -> Iterator[None]:
    """Raises Unapplied where the host waits for the device inside: checked first, because a failed capture leaves state
    behind."""
    import torch

    from gobrrr.observe.live.watches.sync_mode import set_sync_mode

    before = torch.cuda.get_sync_debug_mode()
    set_sync_mode("error")
    try:
        yield
    except RuntimeError as error:
        if "synchroniz" not in str(error):
            raise
        raise NotApplicable(f"the host waits for the device inside it{_line_of(error)}: see remove-sync") from error
    finally:
        set_sync_mode(before)


def _line_of(error: BaseException) -> str:
    """The line of the user's source that raised an error; "" where that is not known."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_users(frame.filename)]
    return f" ({os.path.basename(own[-1].filename)}:{own[-1].lineno})" if own else ""


@contextmanager
def recovered(pool: Any = None) -> Iterator[None]:
    """Ends a failed capture for the allocator and the random number generator too, which otherwise think it goes on."""
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
    found = [parameter for module in reaching.modules(workload) for parameter in module.parameters()]
    found += [parameter for group in getattr(workload.optimizer, "param_groups", ()) for parameter in group["params"]]
    return list({id(parameter): parameter for parameter in found}.values())


def _others(workload: Workload) -> list[Any]:
    """Buffers, and tensors that the step holds itself, such as a cache."""
    found = [buffer for module in reaching.modules(workload) for buffer in module.buffers()]
    own = {id(parameter) for parameter in parameters_of(workload)}
    found += reaching.held_tensors(workload)
    return [tensor for tensor in {id(tensor): tensor for tensor in found}.values() if id(tensor) not in own]


def fixed(tree: Any) -> Any:
    """Copies of the inputs, whose addresses stay the same."""
    return applying.mapped(tree, lambda tensor: tensor.detach().clone().requires_grad_(tensor.requires_grad))


class CapturedStep:
    """A captured whole step: a call copies its inputs in and its results out.

    Raises Unapplied where the step can't be captured. Leaves the workload as it was.
    """

    def __init__(self, workload: Workload) -> None:
        import torch

        self.workload, self.optimizer = workload, workload.optimizer
        step, self.inputs = applying.whole_step(workload)
        self.static = fixed(tuple(self.inputs))
        self.slots = list(applying.tensors_of(self.static))
        before = StateBeforeCapture(workload)
        self.graph = torch.cuda.CUDAGraph()
        try:
            with ExitStack() as stack:
                capturable(stack, self.optimizer)
                side = torch.cuda.Stream()
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    for _ in range(WARM_UP_STEPS):
                        step(*self.static)
                    with without_waits():
                        step(*self.static)
                torch.cuda.current_stream().wait_stream(side)
                why = before.moved()
                if any(slot._version for slot in self.slots):
                    why = "the step writes into its inputs"
                if why:
                    raise NotApplicable(why)
                with recovered(pool := torch.cuda.graph_pool_handle()), torch.cuda.graph(self.graph, pool=pool):
                    result = step(*self.static)
                # detached: its autograd nodes would tie later steps to the stream of the capture
                self.result = applying.mapped(result, lambda tensor: tensor.detach())
                del result
                self.gradients = [(parameter, parameter.grad) for parameter in parameters_of(workload)]
                kept = {} if self.optimizer is None else self.optimizer.state
                self.state = {parameter: dict(values) for parameter, values in kept.items()}
        except (NotApplicable, torch.cuda.OutOfMemoryError):
            raise
        except Exception as error:
            raise NotApplicable(f"the step can't be captured: {error_line(error)}") from error
        finally:
            before.put_back()
            if workload.reset is not None:
                workload.reset()
        self.outside: dict[Any, Any] = {}

    def __call__(self, *inputs: Any) -> Any:
        """One step."""
        self._hold()
        for slot, given in zip(self.slots, applying.tensors_of(inputs), strict=True):
            if slot is not given:
                slot.copy_(given, non_blocking=True)
        self.graph.replay()
        return applying.mapped(self.result, lambda tensor: tensor.detach().clone())

    @contextmanager
    def held(self) -> Iterator[Sequence[Any]]:
        """Keeps the optimizer's state in the graph's tensors while it is entered; yields the step's inputs."""
        with ExitStack() as stack:
            for parameter, gradient in self.gradients:
                stack.callback(setattr, parameter, "grad", parameter.grad)
                parameter.grad = gradient
            self.outside = {}
            stack.callback(self._hand_back)
            self._hold()
            for group in _capturable_groups(self.optimizer):
                applying.swapped(stack, group, "capturable", True)
            yield self.inputs

    def _hold(self) -> None:
        """Copies the optimizer's state into the graph's tensors, where other tensors have taken their place."""
        import torch

        first = next(iter(self.state), None)
        if first is None or self.optimizer.state.get(first) is self.state[first]:
            return
        for parameter, captured in self.state.items():
            now = self.optimizer.state.get(parameter, {})
            self.outside[parameter] = now
            for key, value in captured.items():
                if isinstance(value, torch.Tensor) and now.get(key) is not value:
                    # the state of every optimizer that can be captured begins with zeros
                    value.zero_() if now.get(key) is None else value.copy_(torch.as_tensor(now[key]))
            self.optimizer.state[parameter] = captured

    def _hand_back(self) -> None:
        """Copies the state back into the optimizer's own tensors; state that is new becomes the optimizer's own."""
        import torch

        for parameter, captured in self.state.items():
            if self.optimizer.state.get(parameter) is not captured:
                continue
            had = self.outside.get(parameter, {})
            for key, value in captured.items():
                if isinstance(had.get(key), torch.Tensor):
                    had[key] = had[key] if had[key] is value else had[key].copy_(value)
                else:
                    off = key == "step" and not _counts_at_home(self.optimizer, parameter)
                    had[key] = applying.counter_on(value, "cpu") if off else value
            self.optimizer.state[parameter] = had


def _counts_at_home(optimizer: Any, parameter: Any) -> bool:
    """Whether the optimizer counts this parameter's steps on the device even without a graph."""
    return any(
        (group.get("fused") or group.get("capturable"))
        for group in optimizer.param_groups
        if any(own is parameter for own in group["params"])
    )


def _capturable_groups(optimizer: Any) -> list[Any]:
    """The groups that could be capturable and are not."""
    return [group for group in getattr(optimizer, "param_groups", ()) if group.get("capturable") is False]


def capturable(stack: ExitStack, optimizer: Any) -> None:
    """Makes the optimizer capturable until the stack closes: its step counters are on the device."""
    import torch

    for group in _capturable_groups(optimizer):
        applying.swapped(stack, group, "capturable", True)
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            if isinstance(state.get("step"), torch.Tensor):
                applying.swapped(stack, state, "step", applying.counter_on(state["step"], parameter.device))
