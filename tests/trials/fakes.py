"""Ways that do one thing each to a small workload, so that a trial can be looked at without the real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from gobrrr.model.workload import Workload
from gobrrr.observe.targets import step_of
from gobrrr.treatments.framework.way import MODEL, TreatmentWay

SLEEP = 0.004


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors on a machine that others use as well: threads that wait for each other are what takes the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def way(apply: Callable[..., Any], name: str = "fake", **options: Any) -> TreatmentWay:
    """A way from a generator function (workload, kept)."""
    given = {"treatment": name, "code": "", "numerics": "rounding", "rank": MODEL, **options}
    return TreatmentWay(name=name, apply=contextmanager(apply), **given)


class Clock:
    """Time passes where a layer naps, and nowhere else: a machine that others use as well would scatter."""

    now = 0.0

    @classmethod
    def ns(cls) -> int:
        """The time."""
        return int(cls.now)

    @classmethod
    def sleep(cls, seconds: float) -> None:
        """Let it pass."""
        cls.now += seconds * 1e9


class Slow(nn.Module):
    """A layer that naps; `naps` is how long."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.inner, self.naps = nn.Linear(width, width), SLEEP

    def forward(self, x: Any) -> Any:
        Clock.sleep(self.naps)
        return self.inner(x).tanh()


def training(**changed: Any) -> Workload:
    """Model, loss and optimizer."""
    torch.manual_seed(0)
    model = nn.Sequential(Slow(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    given: dict[str, Any] = {
        "model": model,
        "loss": nn.functional.cross_entropy,
        "optimizer": optimizer,
        "inputs": (torch.randn(8, 16),),
        "targets": (torch.randint(0, 4, (8,)),),
    }
    return Workload(**{**given, **changed})


def closure(*, returns: bool = True) -> Workload:
    """The same as a step of the user's."""
    made = training()
    model, optimizer, (x,), (y,) = made.model, made.optimizer, made.inputs, made.targets

    def step() -> Any:
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss if returns else None

    return Workload(model=model, step=step, optimizer=optimizer)


def naps(seconds: float) -> Callable[..., Iterator[Workload]]:
    """Every slow layer waits for another time."""

    def apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
        slow = [one for one in workload.model.modules() if isinstance(one, Slow)]
        before = [one.naps for one in slow]
        for one in slow:
            one.naps = seconds
        try:
            yield workload
        finally:
            for one, value in zip(slow, before, strict=True):
                one.naps = value

    return apply


def rounds(bits: int) -> Callable[..., Iterator[Workload]]:
    """Weights rounded to so many bits."""

    def apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
        parameters = list(workload.model.parameters())
        before = [one.detach().clone() for one in parameters]
        with torch.no_grad():
            for one in parameters:
                one.copy_((one * 2**bits).round() / 2**bits)
        try:
            yield workload
        finally:
            with torch.no_grad():
                for one, values in zip(parameters, before, strict=True):
                    one.copy_(values)

    return apply


def freezes(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
    """The optimizer does nothing."""
    optimizer = workload.optimizer
    optimizer.step = lambda: None
    try:
        yield workload
    finally:
        del optimizer.step


def stale(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
    """What a captured graph does that never reads its inputs again."""
    if "inputs" not in kept:
        kept["inputs"] = tuple(one.clone() for one in workload.inputs)
    model, given = workload.model, kept["inputs"]

    def forward(*_: Any) -> Any:
        with torch.no_grad():
            return model(*given)

    yield replace(workload, step=forward)


def reuses(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
    """What a captured graph does: every step's output lies in the same memory."""
    run, arguments = step_of(workload, lambda model, *x: model(*x))
    static = kept.setdefault("static", torch.zeros(8, 4))

    def step(*given: Any) -> Any:
        with torch.no_grad():
            static.copy_(run(*given))
        return static

    yield replace(workload, step=step, inputs=arguments)


def raises(error: BaseException, *, where: str = "step") -> Callable[..., Iterator[Workload]]:
    """Raises in the step, at entering or at leaving."""

    def apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
        if where == "enter":
            raise error

        def step(*_: Any) -> Any:
            raise error

        yield replace(workload, step=step) if where == "step" else workload
        if where == "leave":
            raise error

    return apply


def compiles(every: int) -> Callable[..., Iterator[Workload]]:
    """Counts as compiled anew every so many steps."""

    def apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
        from torch._dynamo.utils import counters

        run, arguments = step_of(workload, lambda model, *x: model(*x))

        def step(*given: Any) -> Any:
            kept["calls"] = kept.get("calls", 0) + 1
            if kept["calls"] % every == 0 or kept["calls"] == 1:
                counters["frames"]["total"] += 1
                Clock.sleep(0.08)
            return run(*given)

        yield replace(workload, step=step, inputs=arguments, around=())

    return apply


def first(workload: Workload, kept: dict[str, Any], compiling: Callable[[], bool]) -> Iterator[Workload]:
    """Does something before the first step of an arm, and counts it as compiled where that says so."""
    from torch._dynamo.utils import counters

    run, arguments = step_of(workload, lambda model, *x: model(*x))

    def step(*given: Any) -> Any:
        if not kept.setdefault("compiled", False):
            kept["compiled"] = True
            counters["frames"]["total"] += compiling()
        return run(*given)

    yield replace(workload, step=step, inputs=arguments, around=())


def state_of(workload: Workload) -> list[Any]:
    """All values that a trial must leave as they were."""
    found = [one.detach().clone() for one in (*workload.model.parameters(), *workload.model.buffers())]
    found += [None if one.grad is None else one.grad.clone() for one in workload.model.parameters()]
    if workload.optimizer is not None:
        for held in workload.optimizer.state.values():
            found += [one.clone() if isinstance(one, torch.Tensor) else one for one in held.values()]
        found.append([{**group, "params": len(group["params"])} for group in workload.optimizer.param_groups])
    return [*found, torch.get_rng_state()]


def same(left: list[Any], right: list[Any]) -> bool:
    """Whether two of these are equal."""
    return len(left) == len(right) and all(
        torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
        for one, other in zip(left, right, strict=True)
    )
