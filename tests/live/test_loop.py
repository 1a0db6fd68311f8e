"""The step loop of training programs: how often, and where, the watcher is told that a step has ended."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


from gobrrr.observe.live.loops.step_optimizers import CLOSURES, OptimizerSteps  # noqa: E402
from tests.live.loops import Fake, X, model, seen, state, steps, train  # noqa: E402
from tests.live.loops import untold as untold  # noqa: E402


def test_a_plain_training_loop() -> None:
    net = model()
    optimizer = torch.optim.AdamW(net.parameters())
    fake, found = seen(lambda: train(net, optimizer, 20))
    assert fake.at == list(range(20))
    assert (found.how, found.text, found.boundaries) == ("optimizer", "steps of AdamW", 20)
    assert fake.steps_from == "steps of AdamW"
    assert fake.restarts == 0
    assert not found.remarks


def test_the_same_numbers_as_without_us() -> None:
    def losses(under: bool) -> list[float]:
        net, out = model(), []
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def program() -> None:
            for _ in range(5):
                optimizer.zero_grad()
                loss = net(X).square().sum()
                loss.backward()
                optimizer.step()
                out.append(loss.item())

        if under:
            seen(program)
        else:
            program()
        return out

    assert losses(True) == losses(False)


def test_all_is_gone_when_the_watcher_is_done() -> None:
    net = model()
    optimizer, before, after = torch.optim.SGD(net.parameters()), state(), []

    def program() -> None:
        train(net, optimizer, 5)
        after.append(state())
        train(net, optimizer, 5)

    fake, _ = seen(program, Fake(5))
    assert after == [before]
    assert len(fake.at) == 5


def test_a_gan_steps_once_a_turn() -> None:
    one, two = model(), model()
    first, second = torch.optim.Adam(one.parameters()), torch.optim.Adam(two.parameters())

    def program() -> None:
        for _ in steps(12):
            for net, optimizer in ((one, first), (two, second)):
                optimizer.zero_grad()
                net(X).sum().backward()
                optimizer.step()

    assert seen(program)[0].at == list(range(12))


def test_a_critic_that_steps_five_times() -> None:
    critic = torch.optim.Adam(model().parameters())
    generator = torch.optim.RMSprop(model().parameters())

    def program() -> None:
        for _ in steps(10):
            for _ in range(5):
                critic.step()
            generator.step()

    fake, found = seen(program)
    assert found.text == "steps of RMSprop"
    assert fake.at == list(range(2, 10))
    assert fake.restarts == 1
    assert found.remarks == ("the loop was taken for steps of Adam until steps of RMSprop began",)


def test_an_optimizer_for_each_parameter() -> None:
    net = model()
    each = {one: torch.optim.SGD([one]) for one in net.parameters()}

    def own_step(parameter: Any) -> None:
        each[parameter].step()
        each[parameter].zero_grad()

    hooks = [one.register_post_accumulate_grad_hook(own_step) for one in net.parameters()]

    def program() -> None:
        for _ in steps(8):
            net(X).sum().backward()

    assert seen(program)[0].at == list(range(8))
    for hook in hooks:  # which would keep the optimizers for the tests that follow
        hook.remove()


@pytest.mark.parametrize("every", [4, 32])
def test_accumulated_gradients(every: int) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters())

    def program() -> None:
        for at in steps(every * 5):
            net(X).sum().backward()
            if (at + 1) % every == 0:
                optimizer.step()
                optimizer.zero_grad()

    fake, found = seen(program)
    assert fake.at == [every * (i + 1) - 1 for i in range(5)]
    assert found.how == "optimizer"
    assert fake.restarts == 0


def test_scheduler_and_scaler() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    scaler = torch.amp.GradScaler("cpu")

    def program() -> None:
        for _ in steps(6):
            scaler.scale(net(X).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()

    assert seen(program)[0].at == list(range(6))


def test_an_optimizer_that_is_replaced() -> None:
    net = model()
    first, second = torch.optim.SGD(net.parameters()), torch.optim.AdamW(net.parameters())

    def program() -> None:
        train(net, first, 4)
        train(net, second, 15)

    fake, found = seen(program)
    assert found.text == "steps of AdamW"
    assert fake.restarts == 1
    assert fake.at == list(range(7, 15))


def test_an_optimizer_that_is_gone() -> None:
    net = model()

    def program() -> None:
        for kind in (torch.optim.SGD, torch.optim.AdamW):
            train(net, kind(net.parameters()), 4)
            gc.collect()

    fake, found = seen(program)
    assert found.text == "steps of AdamW"
    assert fake.at == list(range(4))


def test_a_generator_that_steps_before_its_critic() -> None:
    generator = torch.optim.RMSprop(model().parameters())
    critic = torch.optim.Adam(model().parameters())

    def program() -> None:
        for _ in steps(10):
            generator.step()
            for _ in range(5):
                critic.step()

    fake, found = seen(program)
    assert (found.text, fake.at, fake.restarts) == ("steps of RMSprop", list(range(10)), 0)


def test_a_closure() -> None:
    net = model()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = net(X).square().sum()
        loss.backward()
        return loss

    def program() -> None:
        for _ in steps(4):
            optimizer.step(closure)

    assert seen(program)[0].at == list(range(4))


def test_training_in_a_thread_of_its_own() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters())

    def program() -> None:
        thread = threading.Thread(target=train, args=(net, optimizer, 6))
        thread.start()
        thread.join()

    fake, _ = seen(program)
    assert fake.at == list(range(6))
    assert threading.get_ident() not in fake.threads


def test_evaluation_before_training_is_not_the_loop() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters())

    def program() -> None:
        with torch.no_grad():
            for _ in range(100):
                net(X)
        train(net, optimizer, 5)

    fake, found = seen(program)
    assert (found.how, fake.at, fake.restarts) == ("optimizer", list(range(5)), 0)


@pytest.mark.parametrize("calls", [30, 350])
def test_a_long_evaluation_is_taken_back_when_the_optimizer_steps(calls: int) -> None:
    net = model()

    def program() -> None:
        if calls > 300:  # it exists, but there is more evidence for an inference loop
            kept.append(torch.optim.SGD(net.parameters()))
        with torch.no_grad():
            for _ in steps(calls):
                net(X)
        train(net, torch.optim.SGD(net.parameters()), 5)

    kept: list[Any] = []
    fake, found = seen(program)
    assert (found.how, fake.at, fake.restarts) == ("optimizer", list(range(5)), 1)
    assert [one.endswith("one call of Sequential in each until steps of SGD began") for one in found.remarks] == [True]
    assert "_compiled_call_impl" not in vars(net)


@pytest.mark.parametrize("keyword", [False, True])
def test_the_calls_of_a_closure_are_the_steps_where_a_step_has_many(keyword: bool) -> None:
    """Two steps of LBFGS with up to 20 calls each; an optimizer that calls its closure once has steps of its own."""
    net = torch.nn.Linear(4, 1)
    data = torch.randn(64, 4)

    def closure() -> Any:
        called.append(0)
        net.zero_grad()
        loss = (net(data) - data.sum(1, keepdim=True).tanh()).square().mean()
        loss.backward()
        return loss

    for kind, of_closure in ((torch.optim.LBFGS, True), (torch.optim.SGD, False)):
        optimizer = kind(net.parameters())
        called: list[int] = []
        steps: list[bool] = []
        watch = OptimizerSteps(steps.append)
        watch.open()
        try:
            for _ in range(2):
                optimizer.step(closure=closure) if keyword else optimizer.step(closure)
        finally:
            watch.close()
        assert ("closure" in watch.name) == of_closure
        assert len(steps) == (len(called) - CLOSURES + 1 if of_closure else 2)
        assert steps[0]
        assert not any(steps[1:])
