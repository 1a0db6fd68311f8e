"""Small workloads, and what of one must be as before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from gobrrr.model.workload import Workload
from gobrrr.treatments import catalogue
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.way import TreatmentWay, UnfitWay

torch = pytest.importorskip("torch")
nn = torch.nn


class Block(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.relu(self.inner(self.norm(x)))


class Net(nn.Module):
    """Two blocks of one class between a first and a last layer."""

    def __init__(self, width: int = 8, classes: int = 3) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.convolution(x))).mean((2, 3)))


def inference(model: Any = None, *inputs: Any) -> Workload:
    torch.manual_seed(0)
    return Workload(model=(model or Net()).eval(), inputs=inputs or (torch.randn(4, 8),))


def training(model: Any = None, *inputs: Any, kind: Any = None, **options: Any) -> Workload:
    """A model, a loss and an optimizer."""
    torch.manual_seed(0)
    model = model or Net()
    optimizer = (kind or torch.optim.AdamW)(model.parameters(), **{"lr": 0.01, **options})
    inputs = inputs or (torch.randn(4, 8),)
    return Workload(
        model=model, loss=nn.functional.cross_entropy, inputs=inputs, targets=(torch.tensor([0, 1, 2, 0]),),
        optimizer=optimizer,
    )  # fmt: skip


def closure(workload: Workload) -> Workload:
    """The same as a step that is a closure over model and optimizer, as a user writes it."""
    model, optimizer, loss_of = workload.model, workload.optimizer, workload.loss

    def step(x, y):
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return replace(workload, step=step, inputs=(*workload.inputs, *workload.targets), loss=None, targets=())


def ways_of(treatment: str, workload: Workload) -> dict[str, TreatmentWay | UnfitWay]:
    own = next(one for one in catalogue() if one.name == treatment).ways
    assert own is not None
    return {one.name: one for one in own(workload)}


def way_of(name: str, workload: Workload) -> TreatmentWay:
    found = ways_of(name.partition(":")[0], workload)[name]
    assert isinstance(found, TreatmentWay), found
    return found


def why_not(name: str, workload: Workload) -> str:
    found = ways_of(name.partition(":")[0], workload)[name]
    assert isinstance(found, UnfitWay), found
    return found.why


def run(workload: Workload, steps: int = 1) -> list[Any]:
    """What the steps return."""
    step, inputs = applying.whole_step(workload)
    return [step(*inputs) for _ in range(steps)]


def bits(one: Any) -> Any:
    if not isinstance(one, torch.Tensor):
        return repr(one) if isinstance(one, (int, float, str, bool, type(None))) else id(one)
    place = (id(one), one.data_ptr(), one.dtype, str(one.device), tuple(one.shape), one.stride())
    return *place, one.detach().flatten().tolist()


def state_of(workload: Workload) -> dict[str, Any]:
    """Every bit, address and stride of the workload, its modules' attributes and its optimizer's groups and state."""
    found: dict[str, Any] = {"inputs": [bits(one) for one in applying.tensors_of((workload.inputs, workload.targets))]}
    module = applying.module_of(workload)
    for name, one in module.named_modules() if module is not None else ():
        found[f"module {name}"] = {key: id(value) for key, value in vars(one).items()} | {
            key: value for key, value in vars(one).items() if isinstance(value, (bool, int, float, str))
        }
        own = [*one.named_parameters(recurse=False), *one.named_buffers(recurse=False)]
        found[f"tensors {name}"] = [(key, bits(value), bits(value.grad)) for key, value in own]
    if workload.optimizer is not None:
        found["optimizer"] = {key: id(value) for key, value in vars(workload.optimizer).items()}
        found["groups"] = [
            {key: bits(value) for key, value in group.items()} for group in workload.optimizer.param_groups
        ]
        found["state"] = [
            (id(key), {name: bits(value) for name, value in kept.items()})
            for key, kept in workload.optimizer.state.items()
        ]
    return found


class OfTheStep(Exception):
    """Raised inside a treatment on purpose."""


@contextmanager
def untouched(workload: Workload) -> Iterator[None]:
    """Fails where the workload is not what it was, bit for bit."""
    before = state_of(workload)
    yield
    assert state_of(workload) == before


def restores(way: TreatmentWay, workload: Workload, *, steps: bool = True) -> None:
    """A way leaves the workload as it was: after a visit, after a second one, and after an exception.

    A step of inference is taken in each; of training none, for it changes the state that is compared.
    """
    kept: dict[str, Any] = {}
    infers = steps and not applying.trains(workload) and workload.step is None
    for _ in range(2):
        with untouched(workload), way.apply(workload, kept) as treated:
            if infers:
                run(treated)
    with untouched(workload), pytest.raises(OfTheStep), way.apply(workload, kept):
        raise OfTheStep


def trained(
    workload: Workload, way: TreatmentWay | None = None, steps: int = 3, visits: int = 1
) -> tuple[list[Any], list[Any]]:
    """(losses, parameters) after some steps, in one visit or in several."""
    kept: dict[str, Any] = {}
    losses = []
    for _ in range(visits):
        if way is None:
            losses += [float(one.detach()) for one in run(workload, steps // visits)]
            continue
        with way.apply(workload, kept) as treated:
            losses += [float(one.detach()) for one in run(treated, steps // visits)]
    return losses, [one.detach().clone() for one in workload.model.parameters()]


def same_training(name: str, make: Any, *, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Trained with a way, left and entered again halfway, a workload gets the losses and parameters of one without."""
    torch.manual_seed(0)
    plain = make()
    torch.manual_seed(0)
    treated = make()
    losses, parameters = trained(plain, steps=4)
    losses_then, parameters_then = trained(treated, way_of(name, treated), steps=4, visits=2)
    assert losses_then == pytest.approx(losses, rel=max(rtol, 1e-4))
    for one, then in zip(parameters, parameters_then, strict=True):
        torch.testing.assert_close(then, one, rtol=rtol, atol=atol)
