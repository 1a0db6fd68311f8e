"""The step of a Workload as one callable, whatever it is made of: a step, a model, a model and its loss, a loader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from gobrrr.errors import UsageError
from gobrrr.model.workload import Workload

Run = Callable[..., Any]


class Batches:
    """The batches of a loader one after another, the first one again after the last."""

    def __init__(self, loader: Iterable[Any]) -> None:
        self.loader = loader
        self._left: Iterator[Any] | None = None

    def next(self) -> tuple[Any, ...]:
        """The next batch as arguments. Raises UsageError where the loader yields none."""
        if self._left is not None:
            batch = next(self._left, _END)
            if batch is not _END:
                return _arguments(batch)
        self._left = iter(self.loader)
        batch = next(self._left, _END)
        if batch is _END:
            raise UsageError("the Workload's loader yields no batch")
        return _arguments(batch)


_END: Any = object()


def _arguments(batch: Any) -> tuple[Any, ...]:
    return tuple(batch) if type(batch) in (list, tuple) else (batch,)


def step_of(
    workload: Workload,
    forward: Run,
    *,
    batches: Batches | None = None,
    seen: Callable[[Any], None] | None = None,
) -> tuple[Run, Sequence[Any]]:
    """The callable that runs a Workload's step, and what it is called with; `forward` calls a model without gradients.

    `batches` keeps the place in the loader from one call of this to the next. `seen` is told the model's output after
    the backward and before the optimizer's step, where the step is made of a model and a loss. Raises UsageError where
    the Workload has neither a step nor a model, or its parts don't go together.
    """
    _check(workload)
    if workload.step is not None:
        run, inputs = workload.step, workload.inputs
        run = _inside(workload, run) if workload.around else run
    elif workload.loss is not None:
        run, inputs = _training(workload, seen), (*workload.inputs, *workload.targets)
    else:
        model = workload.model
        run, inputs = lambda *given: forward(model, *given), workload.inputs
        run = _inside(workload, run) if workload.around else run
    if workload.loader is None:
        return run, inputs
    return _fed(workload, run, batches or Batches(workload.loader)), ()


def _check(workload: Workload) -> None:
    run = workload.model if workload.step is None else workload.step
    if run is None:
        raise UsageError("a Workload needs a step, or a model to call with its inputs")
    if not callable(run):
        raise UsageError(f"a Workload's step or model is something to call, not {type(run).__name__}")
    for name, given in (("inputs", workload.inputs), ("targets", workload.targets)):
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise UsageError(f"a Workload's {name} are a tuple of arguments, not {type(given).__name__}: (x,)")
    if workload.loss is not None and not callable(workload.loss):
        raise UsageError(f"a Workload's loss is something to call, not {type(workload.loss).__name__}")
    if not isinstance(workload.around, Sequence) or not all(map(callable, workload.around)):
        raise UsageError("a Workload's around is a tuple of callables that make a context: (lambda: torch.no_grad(),)")
    if workload.step is None and workload.targets and workload.loss is None:
        raise UsageError("a Workload's targets are for its loss, and it has none")
    if workload.loader is not None:
        _check_loader(workload)


def _check_loader(workload: Workload) -> None:
    if workload.inputs or (workload.step is None and workload.targets):
        raise UsageError("a Workload has inputs and targets, or a loader that yields them, not both")
    if not isinstance(workload.loader, Iterable) and not hasattr(workload.loader, "__getitem__"):
        raise UsageError(f"a Workload's loader is something to go through, not {type(workload.loader).__name__}")
    if hasattr(workload.loader, "__next__"):
        raise UsageError("a Workload's loader must be able to begin again, as a list or a DataLoader is; this can't")


def _inside(workload: Workload, run: Run) -> Run:
    def step(*inputs: Any) -> Any:
        with ExitStack() as stack:
            for make in workload.around:
                stack.enter_context(make())
            return run(*inputs)

    return step


def _training(workload: Workload, seen: Callable[[Any], None] | None) -> Run:
    """Forward, loss, backward and the optimizer's step; the arguments are the model's and then the loss's."""
    model, loss_of, optimizer = workload.model, workload.loss, workload.optimizer
    count = 1 if workload.loader is not None else len(workload.inputs)
    assert loss_of is not None

    def forward(*given: Any) -> tuple[Any, Any]:
        output = model(*given[:count])
        return output, loss_of(output, *given[count:])

    forward = _inside(workload, forward) if workload.around else forward

    def step(*given: Any) -> Any:
        output, loss = forward(*given)
        if not hasattr(loss, "backward"):
            raise UsageError(f"the Workload's loss returned {type(loss).__name__}, not a tensor")
        loss.backward()
        if seen is not None:
            seen(output)
        if optimizer is None:
            model.zero_grad(set_to_none=True)
        else:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def _fed(workload: Workload, run: Run, batches: Batches) -> Run:
    """The step with the next batch; on the model's device, where no step of the user's moves it there."""
    if workload.step is not None:
        return lambda: run(*batches.next())
    device: list[Any] = []

    def step() -> Any:
        if not device:
            device.append(_device(workload.model))
        return run(*moved(batches.next(), device[0]))

    return step


def _device(model: Any) -> Any:
    for make in ("parameters", "buffers"):
        for one in getattr(model, make, tuple)():
            return one.device
    return None


def moved(value: Any, device: Any) -> Any:
    """The value with its tensors on the device, without waiting for those in pinned memory."""
    if device is None:
        return value
    if hasattr(value, "is_pinned") and hasattr(value, "device"):
        return value if value.device == device else value.to(device, non_blocking=value.is_pinned())
    if isinstance(value, Mapping):
        found = {key: moved(one, device) for key, one in value.items()}
        return found if type(value) is dict else type(value)(found)  # type: ignore[call-arg]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(one, device) for one in value))
    if isinstance(value, list | tuple):
        return type(value)(moved(one, device) for one in value)
    return value
