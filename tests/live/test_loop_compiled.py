"""The step loop of programs that compile, and that they compile nothing again for us."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


from tests.live.loops import Decoder, Fake, X, model, seen, steps  # noqa: E402
from tests.live.loops import untold as untold  # noqa: E402


@pytest.fixture
def compiles() -> Iterator[Callable[[], int]]:
    """How many graphs the compiler has made."""
    from torch._dynamo.utils import counters

    torch.compiler.reset()
    counters.clear()
    # Whose parameters a compiled function uses can't be told, so any optimizer that lives may have them. Those of other
    # tests are not seen: what is frozen is not among gc's objects.
    gc.collect()
    gc.freeze()
    yield lambda: counters["stats"].get("unique_graphs", 0)
    torch.compiler.reset()


@pytest.mark.parametrize("way", ["wrapped", "in place"])
def test_a_compiled_module(compiles: Callable[[], int], way: str) -> None:
    net = Decoder()

    def program() -> None:
        if way == "wrapped":
            fast = torch.compile(net, backend="eager")
        else:
            net.compile(backend="eager")
            fast = net
        with torch.no_grad():
            for _ in steps(20):
                fast(torch.zeros(1, dtype=torch.long), [])
        after.append((compiles(), fast))

    after: list[Any] = []
    fake, found = seen(program)
    assert found.text.endswith("one call of Decoder in each")
    assert fake.at == list(range(9, 20))
    with torch.no_grad():
        after[0][1](torch.zeros(1, dtype=torch.long), [])
    assert compiles() == after[0][0] == 1


def test_a_compiled_training_step_compiles_once(compiles: Callable[[], int]) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters())

    def program() -> None:
        @torch.compile(backend="eager")
        def loss(x: Any) -> Any:
            return net(x).square().sum()

        for _ in steps(20):
            optimizer.zero_grad()
            loss(X).backward()
            optimizer.step()

    fake, _ = seen(program, Fake(10))
    assert len(fake.at) == 10
    assert compiles() == 1


def test_a_compiled_function_is_followed_and_compiled_once(compiles: Callable[[], int]) -> None:
    net = model()

    def program() -> None:
        @torch.compile(backend="eager")
        def infer(x: Any) -> Any:
            return net(x) * 2

        with torch.no_grad():
            for _ in steps(20):
                infer(X)
        after.append(infer)

    after: list[Any] = []
    fake, found = seen(program, search_s=0.0)
    assert found.how == "module"
    assert found.text.endswith("one call of infer in each")
    assert fake.at == list(range(9, 20))
    with torch.no_grad():
        after[0](X)
    assert len(fake.at) == 11
    assert compiles() == 1


def test_a_compiled_function_within_another(compiles: Callable[[], int]) -> None:
    def program() -> None:
        inner = torch.compile(lambda x: x + 1, backend="eager")

        @torch.compile(backend="eager", fullgraph=True)
        def outer(x: Any) -> Any:
            return inner(x) * 2

        with torch.no_grad():
            for _ in steps(20):
                assert torch.equal(outer(X), (X + 1) * 2)

    fake, found = seen(program)
    assert found.text.endswith("one call of outer in each")
    assert fake.at == list(range(9, 20))
    assert compiles() == 1


def test_a_compiled_training_step_with_its_optimizer_outside() -> None:
    net = model()

    def program() -> None:
        optimizer = torch.optim.SGD(net.parameters())
        loss = torch.compile(lambda x: net(x).square().sum(), backend="eager")
        for at in steps(80):  # gradients are accumulated for longer than an inference loop takes to be sure
            loss(X).backward()
            if at % 40 == 39:
                optimizer.step()

    fake, found = seen(program)
    assert (found.how, fake.at, fake.restarts) == ("optimizer", [39, 79], 0)
