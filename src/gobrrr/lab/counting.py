"""What a step's operations must do, counted while it runs: each torch op in, its class and its FLOP out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gobrrr.cost import price
from gobrrr.cost.registry import find
from gobrrr.model.plain import plain_list, plain_text
from gobrrr.model.work import Argument, OpCall, Scalar, Tensor, TensorList

CLASSES = {
    "matmul": "tensor contraction",
    "convolution": "tensor contraction",
    "attention": "tensor contraction",
    "recurrent": "tensor contraction",
    "quantized": "tensor contraction",
    "normalization": "statistical normalization",
    "softmax": "statistical normalization",
    "reduction": "statistical normalization",
    "pooling": "statistical normalization",
    "pointwise": "element-wise",
    "movement": "element-wise",
    "optimizer": "element-wise",
    "inductor": "element-wise",
}
"""Of the article's table by gobrrr's family of an op. Reductions count as normalization, copies as element-wise."""
ORDER = ("tensor contraction", "statistical normalization", "element-wise")
OTHER = "other"


def class_of(name: str) -> str:
    """The class of an op by its name ("aten::addmm"); `OTHER` for views and for what has no rule."""
    found = find(name)
    return CLASSES.get(found[1], OTHER) if found else OTHER


def flop_by_class(calls: Iterable[OpCall]) -> tuple[dict[str, float], list[str]]:
    """FLOP of each class, and the names of the ops that could not be counted."""
    flop: dict[str, float] = defaultdict(float)
    unknown = set()
    for call in calls:
        work = price(call)
        if not work.known:
            unknown.add(call.name)
        elif work.flop:
            flop[CLASSES.get(work.family, OTHER)] += work.flop
    return dict(flop), sorted(unknown)


def time_by_class(times: Mapping[str, float]) -> dict[str, float]:
    """Seconds of each class from seconds by an op's name."""
    found: dict[str, float] = defaultdict(float)
    for name, took in times.items():
        found[class_of(name)] += took
    return dict(found)


def record(torch: Any, step: Callable[[], object]) -> list[OpCall]:
    """Run the step once and return every op that it dispatched, the backward pass included."""
    from torch.utils._python_dispatch import TorchDispatchMode

    calls: list[OpCall] = []

    class Recorder(TorchDispatchMode):  # type: ignore[misc]
        """Hands every op on and writes it down."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls.append(OpCall(name=func._schema.name, inputs=tuple(_argument(torch, argument) for argument in args)))
            return func(*args, **(kwargs or {}))

    with Recorder():
        step()
    return calls


def _argument(torch: Any, value: Any) -> Argument:
    if isinstance(value, torch.Tensor):
        return Tensor(tuple(value.shape), str(value.dtype).removeprefix("torch."), tuple(value.stride()))
    if isinstance(value, list | tuple) and value and all(isinstance(one, torch.Tensor) for one in value):
        return TensorList(tuple(one for one in (_argument(torch, each) for each in value) if isinstance(one, Tensor)))
    if isinstance(value, list | tuple):
        return Scalar(plain_list(value))
    return Scalar("" if value is None else plain_text(value) or "")


def profile(torch: Any, step: Callable[[], object], *, cpu: bool, steps: int) -> dict[str, float]:
    """Seconds a step of each op by its name, its children's not included: on a GPU the kernels', else the op's own."""
    activity = torch.profiler.ProfilerActivity
    activities = [activity.CPU] if cpu else [activity.CPU, activity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(steps):
            step()
        if not cpu:
            torch.cuda.synchronize()
    times: dict[str, float] = defaultdict(float)
    for event in profiler.key_averages():
        if event.key.startswith("aten::"):
            spent = event.self_cpu_time_total if cpu else event.self_device_time_total
            times[event.key] += spent * 1e-6 / steps
    return dict(times)
