"""What the host costs: Python's own operations, the framework's dispatch by kind of op, and a kernel's launch."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from gobrrr.hardware.measure.timing import Call, CallTimer
from gobrrr.model.measured import MeasuredFigure, Quantity

PYTHON_LOOP = 100_000
"""Turns of a loop of Python: a few milliseconds, far more than reading the clock takes."""
TINY = 16
"""Elements of a tensor so small that computing takes no time beside dispatch."""
HOST_FIGURE_S = 0.15
"""Seconds for one figure. Chosen, not measured."""


def _loop(step: Callable[[Any], None]) -> Call:
    return lambda: step(itertools.repeat(None, PYTHON_LOOP))


def _nothing() -> None:
    return None


def python_loops() -> dict[str, Call]:
    """Loops of PYTHON_LOOP turns around one operation each; the loop itself is part of the time."""

    def empty(turns: Any) -> None:
        for _ in turns:
            pass

    def add(turns: Any) -> None:
        a, b = 1.5, 2.5
        for _ in turns:
            a + b

    def attribute(turns: Any) -> None:
        holder = itertools
        for _ in turns:
            holder.repeat  # noqa: B018

    def call(turns: Any) -> None:
        for _ in turns:
            _nothing()

    return {"empty loop": _loop(empty), "addition": _loop(add), "attribute": _loop(attribute), "call": _loop(call)}


def measure_python(bench: CallTimer) -> list[MeasuredFigure]:
    """Operations a second of one thread of Python."""
    return [
        MeasuredFigure(
            group="python", name=name, unit="1/s", amount=python_seconds(bench, call).rate(1.0), at="in a loop"
        )
        for name, call in python_loops().items()
    ]


def python_seconds(bench: CallTimer, loop: Call) -> Quantity:
    """Seconds of one turn of one of `python_loops`."""
    return bench.host(loop, budget_s=HOST_FIGURE_S).scaled(1 / PYTHON_LOOP)


def dispatch_calls(bench: CallTimer) -> dict[str, Call]:
    """A call by kind of op, on tensors so small that what they compute is nothing."""
    torch, spec = bench.device.torch, bench.device.spec
    a, b = (torch.rand(TINY, device=spec) for _ in range(2))
    m, n = (torch.rand(TINY, TINY, device=spec) for _ in range(2))
    w = torch.rand(TINY, device=spec, requires_grad=True)
    out, layer = torch.empty_like(a), torch.nn.Linear(TINY, TINY).to(spec)
    functional = torch.nn.functional
    return {
        "view": lambda: a.view(4, 4),
        "index": lambda: a[0],
        "empty": lambda: torch.empty(TINY, device=spec),
        "add in place": lambda: out.add_(b),
        "add": lambda: a + b,
        "add, autograd": lambda: w + b,
        "sum": lambda: m.sum(),
        "concatenate": lambda: torch.cat((a, b)),
        "softmax": lambda: functional.softmax(m, dim=-1),
        "layer norm": lambda: functional.layer_norm(m, (TINY,)),
        "matmul": lambda: m @ n,
        "linear module": lambda: layer(m),
        "item": lambda: a.sum().item(),
    }


def measure_dispatch(bench: CallTimer) -> list[MeasuredFigure]:
    """Seconds that one call keeps the host, by kind of op; on a GPU that is dispatch and launch, not the kernel."""
    at = f"{TINY} to {TINY * TINY} elements"
    return [
        MeasuredFigure(group="dispatch", name=name, unit="s", amount=bench.host(call, budget_s=HOST_FIGURE_S), at=at)
        for name, call in dispatch_calls(bench).items()
    ]


def measure_launch(bench: CallTimer) -> list[MeasuredFigure]:
    """What one tiny kernel costs: issued one by one, in a replayed graph, and the graph's own launch."""
    torch = bench.device.torch
    x = torch.rand(TINY, device=bench.device.spec)

    def tiny() -> Any:
        return x.add_(1.0)

    calls = 200
    graph = bench.capture(tiny, calls)
    figures = {
        "eager, host": bench.host(tiny, budget_s=HOST_FIGURE_S),
        "eager, pipelined": bench.wall(tiny, budget_s=HOST_FIGURE_S),
        "graph replay, device": bench.time(graph.replay, budget_s=HOST_FIGURE_S, cold=False).scaled(1 / calls),
        "graph launch, host": bench.issue(graph.replay),
    }
    return [
        MeasuredFigure(group="launch", name=name, unit="s", amount=took, at=_launch_at(name, calls))
        for name, took in figures.items()
    ]


def _launch_at(name: str, calls: int) -> str:
    return f"a graph of {calls} kernels" if name.startswith("graph") else "x.add_(1)"
