"""How a program under the finder ends, and what is left of it: nothing."""

from __future__ import annotations

import os
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch.nn.modules import module as modules  # noqa: E402
from torch.optim import optimizer as optimizers  # noqa: E402

from gobrrr.observe.live.loops.script import Stopped  # noqa: E402
from tests.live.loops import (  # noqa: E402
    Fake,
    X,
    functional,
    model,
    now,
    seen,
    steps,
    train,
)
from tests.live.loops import untold as untold  # noqa: E402


def test_stop_after() -> None:
    net = model()
    optimizer, ended = torch.optim.SGD(net.parameters()), []

    def program() -> None:
        try:
            train(net, optimizer, 100)
        finally:
            ended.append(now.step)

    with pytest.raises(Stopped):
        seen(program, Fake(7), stop_after=True)
    assert ended == [6]


@pytest.mark.parametrize("kind", ["optimizer", "module"])
def test_a_script_that_does_not_stop_is_left_to_run(kind: str) -> None:
    net, caught = model(), []

    def program() -> None:
        optimizer = torch.optim.SGD(net.parameters()) if kind == "optimizer" else None
        for at in steps(40):
            try:
                if optimizer is not None:
                    net(X).sum().backward()
                    optimizer.step()
                else:
                    with torch.no_grad():
                        net(X)
            except BaseException:
                caught.append(at)

    fake, _ = seen(program, Fake(4), stop_after=True)
    start = fake.at[0]
    assert caught == [start + 3, start + 4, start + 5]
    assert len(fake.at) == 4


def test_stop_in_a_functional_loop() -> None:
    with pytest.raises(Stopped):
        seen(lambda: functional(100), Fake(4), stop_after=True, search_s=0.0)
    assert now.step < 20


def test_an_exception_of_the_program_passes() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters())

    def program() -> None:
        train(net, optimizer, 3)
        net(torch.ones(3, 5))

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        seen(program)


def test_a_fault_of_the_watcher_does_not_end_the_program() -> None:
    class Faulty(Fake):
        def boundary(self) -> None:
            super().boundary()
            if len(self.at) == 3:
                raise ZeroDivisionError("oh")

    net = model()
    fake, found = seen(lambda: train(net, torch.optim.SGD(net.parameters()), 10), Faulty())
    assert found.failure == "ZeroDivisionError: oh"
    assert len(fake.at) == 3
    assert now.step == 9


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_tells_nothing() -> None:
    net = model()

    def program() -> None:
        optimizer = torch.optim.SGD(net.parameters())
        train(net, optimizer, 2)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                train(net, optimizer, 3)
                code = len(fake.at) - 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        train(net, optimizer, 2)

    fake = Fake()
    seen(program, fake)
    assert len(fake.at) == 4


@pytest.mark.parametrize("most", [6, 100])
def test_hooks_that_come_and_go_in_a_boundary(most: int) -> None:
    class Hooks(Fake):
        handles: list[Any] = []  # noqa: RUF012

        def boundary(self) -> None:
            super().boundary()
            while self.handles:
                self.handles.pop().remove()
            if not self.done:
                self.handles.append(optimizers.register_optimizer_step_post_hook(lambda *_: None))
                self.handles.append(optimizers.register_optimizer_step_pre_hook(lambda *_: None))

        def close(self) -> None:
            super().close()
            while self.handles:
                self.handles.pop().remove()

    net = model()
    called: list[Any] = []

    def program() -> None:
        handle = optimizers.register_optimizer_step_post_hook(lambda *_: called.append(now.step))
        train(net, torch.optim.SGD(net.parameters()), 10)
        handle.remove()

    fake, _ = seen(program, Hooks(most))
    assert fake.at == list(range(min(most, 10)))
    assert called == list(range(10))


def test_no_module_hooks_are_left() -> None:
    net = model()
    seen(lambda: [net(X) for _ in range(15)])
    assert not modules._global_forward_pre_hooks
    assert not net._forward_pre_hooks
    assert "_compiled_call_impl" not in vars(net)
