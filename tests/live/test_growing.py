"""What is held from step to step and what a second look counts: each kind sick, and what looks like it and is not."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from gobrrr.model.recording import SecondStep  # noqa: E402
from gobrrr.observe.live.ops.dispatch import HeldWatch, watch  # noqa: E402

pytestmark = pytest.mark.torch

WIDTH = 8
Step = Callable[[], Any]


@pytest.fixture(autouse=True)
def strictly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOBRRR_STRICT", "1")
    gc.collect()
    gc.freeze()  # what the other tests have left is not looked at


def later(step: Step) -> SecondStep:
    step()  # optimizers have their state, parameters their gradients
    seen = watch(step, twice=True)
    assert seen.later is not None
    return seen.later


def nodes(of: SecondStep) -> list[int]:
    """Nodes more at each boundary than at the one before."""
    values = [one.nodes or 0 for one in of.held]
    return [b - a for a, b in pairwise(values)]


def more(of: SecondStep) -> dict[str, tuple[int, int]]:
    """(calls, elements) that the second look has more of, by operation; views, which cost nothing, left out."""
    first = {(one.op, one.source): (one.count, one.elements) for one in of.first}
    rows = ((one, first.get((one.op, one.source), (0, 0))) for one in of.second)
    found = {one.op: (one.count - count, one.elements - size) for one, (count, size) in rows}
    return {op: pair for op, pair in found.items() if pair > (0, 0)}


def test_a_state_that_keeps_its_graph() -> None:
    cell, x = nn.RNNCell(WIDTH, WIDTH), torch.randn(2, WIDTH)

    def run(kept: bool) -> Step:
        state = [torch.zeros(2, WIDTH)]

        def step() -> None:
            hidden = cell(x, state[0])
            hidden.sum().backward(retain_graph=kept)
            state[0] = hidden if kept else hidden.detach()

        return step

    sick = later(run(True))
    assert nodes(sick)[0] == nodes(sick)[1] > 0
    chain = [one for one in sick.kept if one.chain]
    assert chain and "test_growing.py" in (chain[0].source or "")  # noqa: PT018
    assert more(sick)["aten::tanh_backward"][0] == 1
    well = later(run(False))
    assert (nodes(well), well.kept, more(well)) == ([0, 0], (), {})


@pytest.mark.parametrize("listed", [True, False])
def test_losses_that_keep_their_graphs(listed: bool) -> None:
    model, x = nn.Linear(WIDTH, 1), torch.randn(4, WIDTH)

    def run(kept: bool) -> Step:
        losses: list[Any] = []
        total = [torch.zeros(())]

        def step() -> None:
            loss = model(x).mean()
            loss.backward()
            loss = loss if kept else loss.detach()
            if listed:
                losses.append(loss)
            else:
                total[0] = total[0] + loss

        return step

    sick = later(run(True))
    assert nodes(sick)[0] == nodes(sick)[1] > 0
    assert {(one.op, one.chain) for one in sick.kept} == {("aten::mean", False) if listed else ("aten::add", True)}
    well = later(run(False))
    assert (nodes(well), [one for one in well.kept if one.nodes], more(well)) == ([0, 0], [], {})


@pytest.mark.parametrize("most", [None, 2], ids=["all", "the last two"])
def test_outputs_that_are_kept(most: int | None) -> None:
    model, x = nn.Linear(WIDTH, WIDTH), torch.randn(4, WIDTH)
    outputs: deque[Any] = deque(maxlen=most)

    def step() -> None:
        with torch.no_grad():
            outputs.append(model(x).exp().numpy())  # an array keeps the tensor's memory

    (kept,) = later(step).kept
    assert (kept.op, kept.nodes, kept.chain, kept.bytes) == ("aten::exp", 0, False, 4 * WIDTH * 4)
    assert "test_growing.py" in (kept.source or "")
    held = HeldWatch()
    held.boundary(0)
    for _ in range(3):
        step()
    held.boundary(3)
    before, after = held.found
    assert after.tensors - before.tensors == (3 if most is None else 0)


def test_hooks_that_each_step_registers() -> None:
    model, x = nn.Linear(WIDTH, 1), torch.randn(4, WIDTH)

    def run(kept: bool) -> Step:
        def step() -> None:
            handle = model.register_forward_hook(lambda *given: given[2] * 1.0)
            model(x)
            if not kept:
                handle.remove()

        return step

    sick, well = later(run(True)), later(run(False))
    assert [one.hooks - sick.held[0].hooks for one in sick.held] == [0, 1, 2]
    assert more(sick) == {"aten::mul": (1, 4)}
    assert {one.hooks for one in well.held} == {well.held[0].hooks}
    assert more(well) == {}


def test_a_list_that_each_step_stacks() -> None:
    def run(kept: deque[Any]) -> Step:
        def step() -> None:
            kept.append(torch.randn(WIDTH))
            torch.stack(list(kept)).mean(0)

        return step

    assert more(later(run(deque()))) == {"aten::stack": (0, WIDTH), "aten::mean": (0, WIDTH)}
    assert more(later(run(deque([torch.zeros(WIDTH)], maxlen=1)))) == {}


def test_calls_that_become_more() -> None:
    cache: dict[int, Any] = {}

    def step() -> None:
        cache[len(cache)] = torch.randn(WIDTH)
        for one in cache.values():
            one.exp()

    found = later(step)
    assert more(found) == {"aten::exp": (1, WIDTH)}
    at = {one.source for one in found.second if one.op == "aten::exp"}
    assert len(at) == 1


def silent() -> Iterator[tuple[str, Step]]:
    model, x = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)), torch.randn(4, WIDTH)
    optimizer, log = torch.optim.AdamW(model.parameters(), 1e-3), []  # type: ignore[var-annotated]

    def training() -> None:
        optimizer.zero_grad()
        loss = model(x).mean()
        loss.backward()
        optimizer.step()
        log.append(loss.item())

    yield "training, with a list of numbers", training
    last: list[Any] = [None]

    def kept_last() -> None:
        last[0] = model(x).mean()

    yield "the last loss is kept", kept_last

    def decoding() -> None:
        with torch.no_grad():
            rows = torch.zeros(1, WIDTH)
            for _ in range(3):
                rows = torch.cat([rows, model[0](rows[-1:])])

    yield "a tensor that grows within the step", decoding


@pytest.mark.parametrize(("step"), [one for _, one in silent()], ids=[name for name, _ in silent()])
def test_what_does_not_grow(step: Step) -> None:
    found = later(step)
    assert (nodes(found), more(found)) == ([0, 0], {})
    assert [one for one in found.kept if one.chain] == []


def test_the_program_is_looked_at_without_asking_it() -> None:
    class Other:
        """Stands for another object, and says so of its class."""

        @property
        def __class__(self) -> Any:
            raise AssertionError("asked")

    held = Other()
    later(lambda: torch.ones(2) + 1)
    assert type(held) is Other
