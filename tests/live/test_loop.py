"""The step loop of programs of many kinds: how often, and where, the watcher is told that a step has ended."""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import os
import pickle
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402
from torch.nn.modules import module as modules  # noqa: E402
from torch.nn.modules.module import _has_any_global_hook  # noqa: E402
from torch.optim import optimizer as optimizers  # noqa: E402
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack  # noqa: E402

from gobrrr.observe.live.loop import NOTHING, Finder, Found  # noqa: E402
from gobrrr.observe.live.script import Stopped  # noqa: E402

STATE: Callable[[], Any] = lambda: (  # noqa: E731
    nn.Module.__call__,
    torch.compile,
    len(_get_current_function_mode_stack()),
    len(optimizers._global_optimizer_post_hooks),
    _has_any_global_hook(),
    sys.gettrace(),
    [getattr(sys, "monitoring", None) and sys.monitoring.get_tool(i) for i in range(6)],
)


class Fake:
    """A watcher that is done after some boundaries and writes down the step that the program says it is in."""

    def __init__(self, most: int = 10**9) -> None:
        self.most = most
        self.steps_from = ""
        self.at: list[Any] = []
        self.threads: set[int] = set()
        self.restarts = 0
        self.events: list[str] = []

    @property
    def done(self) -> bool:
        return len(self.at) >= self.most

    def open(self) -> None:
        self.events.append("open")

    def boundary(self) -> None:
        self.at.append(now.step)
        self.threads.add(threading.get_ident())

    def restart(self) -> None:
        self.restarts += 1
        self.at.clear()

    def close(self) -> None:
        self.events.append("close")


now = SimpleNamespace(step=None)


def steps(count: int) -> Iterator[int]:
    for at in range(count):
        now.step = at
        yield at


def seen(program: Callable[[], Any], fake: Fake | None = None, **options: Any) -> tuple[Fake, Found]:
    """The program run under a finder; the interpreter and torch are as they were afterwards."""
    fake, before = fake or Fake(), STATE()
    now.step = None
    finder = Finder(fake, **options)
    finder.open()
    try:
        program()
    finally:
        finder.close()
        assert STATE() == before
    assert fake.events[0] == "open"
    assert fake.events[-1] == "close"
    return fake, finder.found()


def model() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


X = torch.ones(3, 4)


def train(net: Any, optimizer: Any, count: int) -> None:
    for _ in steps(count):
        optimizer.zero_grad()
        net(X).sum().backward()
        optimizer.step()


# -- optimizers


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
    optimizer, before, after = torch.optim.SGD(net.parameters()), STATE(), []

    def program() -> None:
        train(net, optimizer, 5)
        after.append(STATE())
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

    for one in net.parameters():
        one.register_post_accumulate_grad_hook(own_step)

    def program() -> None:
        for _ in steps(8):
            net(X).sum().backward()

    assert seen(program)[0].at == list(range(8))


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
    assert found.remarks == ("the loop was taken for calls of Sequential until steps of SGD began",)
    assert "_compiled_call_impl" not in vars(net)


# -- calls of modules


@pytest.mark.parametrize("gradients", [False, True])
def test_an_inference_loop(gradients: bool) -> None:
    net = model().eval()

    def program() -> None:
        with contextlib.nullcontext() if gradients else torch.inference_mode():
            for _ in steps(30):
                net(X)

    fake, found = seen(program)
    assert fake.at == list(range(9, 30))
    assert (found.how, found.text, fake.restarts) == ("module", "calls of Sequential", 0)
    assert "_compiled_call_impl" not in vars(net)


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layer = nn.Embedding(16, 8), nn.Linear(8, 8)

    def forward(self, token: Any, cache: list[Any]) -> Any:
        cache.append(self.layer(self.embed(token)))
        return torch.stack(cache).sum(0).argmax(-1)

    @torch.no_grad()
    def generate(self, count: int) -> None:
        cache: list[Any] = []
        token = self(torch.zeros(2, dtype=torch.long), cache)
        for _ in steps(count):
            token = self(token, cache)


def test_a_decode_loop_with_a_cache() -> None:
    net = Decoder()
    fake, found = seen(lambda: net.generate(24))
    assert found.text == "calls of Decoder"
    assert fake.at[0] == 9
    assert fake.at == list(range(9, 24))


def test_a_pipeline_is_followed_where_it_repeats() -> None:
    text, unet, vae = model(), Decoder(), model()

    def program() -> None:
        with torch.no_grad():
            text(X)
            for _ in steps(20):
                unet(torch.zeros(1, dtype=torch.long), [])
            vae(X)

    fake, found = seen(program)
    assert found.text == "calls of Decoder"
    assert fake.at == list(range(9, 20))


def test_two_modules_and_two_calls_of_one_a_step() -> None:
    backbone, head = nn.Linear(4, 4), nn.ReLU()

    def program() -> None:
        with torch.no_grad():
            for _ in steps(12):
                left = backbone(X)
                right = backbone(X + 1)
                head(left - right)

    fake, found = seen(program)
    assert fake.at == list(range(fake.at[0], 12))
    assert fake.at[0] <= 5
    assert found.how == "module"


def test_a_few_calls_are_no_loop() -> None:
    net = model()
    fake, found = seen(lambda: [net(X) for _ in range(5)])
    assert (fake.at, found.how, found.text) == ([], None, NOTHING)


def test_steps_by_hand_on_a_module() -> None:
    net = model()

    def program() -> None:
        for _ in steps(100):
            net(X).sum().backward()
            with torch.no_grad():
                for one in net.parameters():
                    one -= 0.1 * one.grad
                    one.grad = None

    fake, found = seen(program)
    assert found.how == "module"
    assert fake.at == list(range(fake.at[0], 100))
    assert fake.at[0] < 70


def test_a_forward_that_raises() -> None:
    class Picky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: Any, bad: bool) -> Any:
            y = self.inner(x)
            if bad:
                raise ValueError("bad batch")
            return y

    net = Picky()

    def program() -> None:
        with torch.no_grad():
            for at in steps(40):
                with contextlib.suppress(ValueError):
                    net(X, at % 3 == 0)

    fake, found = seen(program)
    assert found.text == "calls of Picky"
    assert fake.at == list(range(9, 40))


def test_threads_are_counted_apart() -> None:
    busy, idle = model(), Decoder()
    go, stop = threading.Event(), threading.Event()

    def beside() -> None:
        go.wait()
        with torch.no_grad():
            while not stop.is_set():
                busy(X)
                time.sleep(0.02)

    def program() -> None:
        thread = threading.Thread(target=beside)
        thread.start()
        go.set()
        with torch.no_grad():
            for _ in steps(30):
                idle(torch.zeros(1, dtype=torch.long), [])
        stop.set()
        thread.join()

    fake, found = seen(program)
    assert found.text == "calls of Decoder"
    assert fake.threads == {threading.get_ident()}
    assert fake.at == list(range(9, 30))


def test_copies_and_pickles_of_a_followed_module() -> None:
    net, made = model(), []

    def program() -> None:
        with torch.no_grad():
            for at in steps(20):
                net(X)
                if at == 15:
                    assert net._compiled_call_impl is not None
                    made.append(copy.deepcopy(net))
                    made.append(pickle.loads(pickle.dumps(net)))
                    buffer = io.BytesIO()
                    torch.save(net, buffer)
                    buffer.seek(0)
                    made.append(torch.load(buffer, weights_only=False))

    fake, _ = seen(program)
    assert len(fake.at) == 11
    for one in made:
        assert one._compiled_call_impl is None
        assert torch.equal(one(X), net(X))
    assert len(fake.at) == 11


def test_a_scripted_module() -> None:
    with warnings.catch_warnings(action="ignore"):  # deprecated, and in use
        net = torch.jit.trace(model(), X)

    def program() -> None:
        with torch.no_grad():
            for _ in steps(20):
                net(X)

    fake, found = seen(program)
    assert found.how == "module"
    assert fake.at == list(range(9, 20))


# -- the compiler


@pytest.fixture
def compiles() -> Iterator[Callable[[], int]]:
    """How many graphs the compiler has made."""
    from torch._dynamo.utils import counters

    torch.compiler.reset()
    counters.clear()
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
    assert found.text == "calls of Decoder"
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


def test_a_compiled_function_is_not_compiled_again_for_us(compiles: Callable[[], int]) -> None:
    net = model()

    def program() -> None:
        @torch.compile(backend="eager")
        def infer(x: Any) -> Any:
            return net(x) * 2

        for _ in range(20):
            infer(X)
        after.append(infer)

    after: list[Any] = []
    _, found = seen(program, search_s=0.0)
    assert found.how is None
    assert found.remarks == ("not searched for repetition: the program compiles functions",)
    after[0](X)
    assert compiles() == 1


# -- repetition


def functional(count: int, layers: int = 4, pause: float = 0.0) -> None:
    torch.manual_seed(0)
    weights = [torch.randn(4, 4) for _ in range(layers)]
    for _ in steps(count):
        time.sleep(pause)
        x = X.clone()
        for weight in weights:
            x = torch.tanh(x @ weight)
            x = x + 1
        x.sum().item()


def test_a_functional_loop() -> None:
    fake, found = seen(lambda: functional(40), search_s=0.0)
    assert found.how == "line"
    assert "test_loop.py:" in found.text
    assert "in functional" in found.text
    assert fake.at == list(range(fake.at[0], 40))
    assert fake.at[0] <= 8


def test_the_functional_loop_must_last() -> None:
    fake, found = seen(lambda: functional(60, pause=0.005), search_s=0.1)
    assert found.how == "line"
    assert fake.at == list(range(fake.at[0], 60))
    assert 15 <= fake.at[0] <= 40


def helper(x: Any, weight: Any) -> Any:
    y = x @ weight
    return torch.sigmoid(y)


def test_functional_training_with_helpers() -> None:
    def program() -> None:
        weights = [torch.randn(4, 4, requires_grad=True) for _ in range(3)]
        for _ in steps(60):
            x = X
            for weight in weights:
                x = helper(x, weight)
            loss = torch.nn.functional.mse_loss(x, X)
            gradients = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                for weight, gradient in zip(weights, gradients, strict=True):
                    weight -= 0.1 * gradient

    fake, found = seen(program, search_s=0.0)
    assert found.how == "line"
    assert fake.at == list(range(fake.at[0], 60))


def test_nothing_repeats() -> None:
    def program() -> None:
        torch.ones(3).sum()
        (X + 1).mean()

    fake, found = seen(program, search_s=0.0)
    assert (fake.at, found.text) == ([], NOTHING)


def test_all_is_gone_after_a_functional_loop_too() -> None:
    after, before = [], STATE()

    def program() -> None:
        functional(40)
        after.append(STATE())

    fake, _ = seen(program, Fake(5), search_s=0.0)
    assert len(fake.at) == 5
    assert after == [before]


def test_a_mode_of_the_programs_own_stays_on_top() -> None:
    class Mine(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Mine.calls += 1
            return func(*args, **(kwargs or {}))

    def program() -> None:
        with Mine() as mine:
            functional(40)
            assert _get_current_function_mode_stack() == [mine]

    fake, found = seen(program, search_s=0.0)
    assert found.how == "line"
    assert fake.at == list(range(fake.at[0], 40))
    assert Mine.calls > 400


def test_boundaries_are_outside_of_torchs_own_calls() -> None:
    """The watcher enters modes of its own in a boundary: within a handler they would be undone behind its back."""

    class Enters(Fake):
        mode: Any = None

        def boundary(self) -> None:
            super().boundary()
            if len(self.at) == 3:
                self.mode = Counting()
                self.mode.__enter__()
            elif len(self.at) == 5:
                self.mode.__exit__(None, None, None)

    class Counting(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.calls += 1
            return func(*args, **(kwargs or {}))

    fake = Enters()
    seen(lambda: functional(40, layers=4), fake, search_s=0.0)
    # clone, four times matmul, tanh and add, sum, item: in each of two steps
    assert fake.mode.calls == 2 * 15


def test_a_debugger_is_left_alone() -> None:
    def trace(*_: Any) -> None:
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        _, found = seen(lambda: functional(40), search_s=0.0)
        assert sys.gettrace() is trace
    finally:
        sys.settrace(before)
    assert found.how is None
    assert found.remarks == ("a debugger or a coverage tool traces the program",)


# -- ends


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


def test_no_module_hooks_are_left() -> None:
    net = model()
    seen(lambda: [net(X) for _ in range(15)])
    assert not modules._global_forward_pre_hooks
    assert not net._forward_pre_hooks
    assert "_compiled_call_impl" not in vars(net)
