"""The article's scaling test: multiply the batch and see whether the time grows with the work.

Where the work doubles and the time stays the same, the step waits for something else: overhead. But the product of a
few rows with a large matrix reads the whole matrix whatever the number of rows, so its time stays the same too, on the
device. Its bytes then stay the same as well: so both FLOPs and bytes are counted at each size.
"""

from __future__ import annotations

import dataclasses
import time as clock
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch

from gobrrr.errors import UsageError
from gobrrr.model.live import DispatchedCounts, Scaling
from gobrrr.model.recording import Recording
from gobrrr.model.workload import Workload
from gobrrr.observe.live.apart import apart
from gobrrr.observe.live.clock import on_gpu, wait
from gobrrr.observe.live.ops.dispatch import watch
from gobrrr.observe.live.state.kept import StatePreserver
from gobrrr.observe.targets import step_of

FACTORS = (1, 2, 4)
"""The multiples of the batch that are timed."""
NO_GROWTH_UP_TO = 0.1
"""Growth under a tenth counts as none; chosen."""
FOLLOWS_WORK_FROM, IGNORES_WORK_UP_TO = 0.7, 0.3
"""The growth of the time over that of the work from which on the time follows the work, and up to which it does not.
Chosen."""
WARM_UP_RUNS, TIMED_RUNS, MOST_TIMED_S = 2, 7, 3.0
"""Runs before the timing starts, runs that are timed, and seconds after which no further run begins. Chosen."""

Step = Callable[..., Any]
Progress = Callable[[str, int, int], None]


def scale_workload(
    workload: Workload,
    progress: Progress | None = None,
    *,
    count: Callable[[Recording], DispatchedCounts] | None = None,
) -> Scaling:
    """The test on a Workload, each size timed as the median of up to seven runs. The Workload's state is put back.

    Raises UsageError where its batch can't be multiplied. Calls `progress` with (what, sizes done, sizes in all).
    """
    reason = rebatchable(workload)
    if reason:
        raise UsageError(f"the batch can't be multiplied: {reason}")
    step, inputs = step_of(workload, _forward)
    done = 0

    def time(run: Callable[[], Any]) -> float:
        nonlocal done
        if progress is not None:
            progress("scaling the batch", done, len(FACTORS))
        done += 1
        return run_ns(run)

    with StatePreserver() as kept:
        kept.keep(workload)
        return scale(step, inputs, time=time, count=count)


def run_ns(run: Callable[[], Any]) -> float:
    """The ns of one run, from an idle device until it is idle again: the median of some runs after warm-up."""
    for _ in range(WARM_UP_RUNS):
        run()
    wait()
    times: list[int] = []
    began = clock.perf_counter()
    while len(times) < TIMED_RUNS and (not times or clock.perf_counter() - began < MOST_TIMED_S):
        start = clock.perf_counter_ns()
        run()
        wait()
        times.append(clock.perf_counter_ns() - start)
    return float(median(times))


def _forward(model: Any, *inputs: Any) -> Any:
    with torch.no_grad():
        return model(*inputs)


def rebatchable(workload: Workload) -> str:
    """Why the workload's batch can't be multiplied; "" where it can."""
    if workload.loader is not None:
        return "its batches come from a loader: give the Workload one batch as its inputs"
    if not workload.inputs:
        return "the step is called without inputs: its batch is made inside it"
    if _batch([workload.inputs, workload.targets]) is None:
        return "the inputs hold no tensor with a batch dimension"
    return ""


def scaled(inputs: Any, factor: int) -> Any:
    """Inputs with the batch repeated `factor` times: each tensor whose dim 0 is the batch's size, in whatever holds it.

    The batch's size is the one that most tensors have as dim 0, the first tensor's where two are as frequent.
    Parameters and all else stay as they are.
    """
    batch = _batch(inputs)
    if batch is None or factor == 1:
        return inputs
    with apart():
        return _mapped(inputs, batch, factor)


def scale(
    step: Step,
    inputs: Sequence[Any],
    factors: Sequence[int] = FACTORS,
    *,
    time: Callable[[Callable[[], Any]], float],
    count: Callable[[Recording], DispatchedCounts] | None = None,
) -> Scaling:
    """`step(*inputs)` with its batch multiplied by each of `factors`, of which the first is 1.

    `time` runs a function any number of times and returns the ns of one run; `count` counts the work of a recording.
    What the step changes stays changed. A size that does not fit into memory, or that the step refuses, ends the test
    with a note. Exceptions at factor 1 pass through.
    """
    points: list[tuple[float, float, float | None]] = []
    moved: list[float | None] = []
    end = ""
    for factor in factors:
        try:
            larger = scaled(inputs, factor)
            ns = float(time(partial(step, *larger)))
            work = count(watch(step, larger).recording()) if count is not None else None
        except Exception as error:
            if not points:
                raise
            end = _refused(error, factor)
            if on_gpu():
                torch.cuda.empty_cache()  # what the size that did not fit has left
            break
        points.append((float(factor), ns, work.flop if work is not None else None))
        moved.append(work.bytes if work is not None else None)
    note = "; ".join(filter(None, (follows(points, moved), end)))
    return Scaling(points=tuple(points), note=note, bytes=tuple(moved) if count is not None else ())


def follows(points: Sequence[tuple[float, float, float | None]], moved: Sequence[float | None]) -> str:
    """What follows, in words, from the first and the last (factor, ns, FLOP) and bytes moved."""
    if len(points) < 2:
        return ""
    (first, ns, flop), (last, last_ns, last_flop) = points[0], points[-1]
    time = last_ns / ns
    if not flop or last_flop is None:
        text = f"time grew {time:.2f}-fold for {last / first:g} times the batch"
        return f"{text}; the work is not counted, so that nothing follows"
    work = last_flop / flop
    traffic = moved[-1] / moved[0] if moved[0] and moved[-1] is not None else None
    text = f"time grew {time:.2f}-fold while FLOPs grew {work:.2f}-fold"
    text += f" and bytes {traffic:.2f}-fold" if traffic is not None else ""
    return f"{text}: {_verdict(time - 1, work - 1, None if traffic is None else traffic - 1)}"


def _verdict(time: float, flop: float, moved: float | None) -> str:
    if flop <= NO_GROWTH_UP_TO:
        return "the work does not grow with these inputs, so that nothing follows"
    least = flop if moved is None else min(flop, moved)
    if time <= IGNORES_WORK_UP_TO * least and least > NO_GROWTH_UP_TO:
        return "time does not follow the work: overhead-bound at this size"
    if time >= FOLLOWS_WORK_FROM * flop:
        return "time grows with the work"
    if least <= NO_GROWTH_UP_TO or (moved is not None and time >= FOLLOWS_WORK_FROM * moved):
        return (
            "time does not follow the FLOPs, but neither do the bytes: weights that are read whatever the batch is "
            "look the same as overhead here"
        )
    return "time follows the work in part"


def _refused(error: Exception, factor: int) -> str:
    full = isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
    if full:
        return f"{factor} times the batch does not fit into memory"
    text = (str(error).strip().splitlines() or [""])[0]
    return f"the step refuses {factor} times the batch: {type(error).__name__}: {text}"


def _batch(inputs: Any) -> int | None:
    """The size of the batch."""
    with apart():
        sizes = Counter(_sizes(inputs))
    return sizes.most_common(1)[0][0] if sizes else None  # of equals, the first


def _sizes(value: Any) -> list[int]:
    if isinstance(value, torch.Tensor):
        return [] if isinstance(value, torch.nn.Parameter) or not value.dim() else [int(value.shape[0])]
    if isinstance(value, Mapping):
        return [size for item in value.values() for size in _sizes(item)]
    if isinstance(value, list | tuple):
        return [size for item in value for size in _sizes(item)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [size for field in dataclasses.fields(value) for size in _sizes(getattr(value, field.name))]
    return []


def _mapped(value: Any, batch: int, factor: int) -> Any:
    if isinstance(value, torch.Tensor):
        fits = value.dim() and value.shape[0] == batch and not isinstance(value, torch.nn.Parameter)
        return _repeated(value, factor) if fits else value
    if isinstance(value, Mapping):
        mapped = {key: _mapped(item, batch, factor) for key, item in value.items()}
        return mapped if type(value) is dict else type(value)(mapped)  # type: ignore[call-arg]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_mapped(item, batch, factor) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_mapped(item, batch, factor) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        changed = {name: _mapped(item, batch, factor) for name, item in fields.items() if item is not None}
        return dataclasses.replace(value, **changed)
    return value


def _repeated(tensor: Any, factor: int) -> Any:
    """The tensor's rows, `factor` times; with the same `requires_grad`."""
    with torch.no_grad():
        repeated = tensor.detach().repeat(factor, *([1] * (tensor.dim() - 1)))
    return repeated.requires_grad_(tensor.requires_grad)
