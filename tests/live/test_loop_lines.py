"""The step loop of programs without modules and optimizers: a line that comes round again."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack  # noqa: E402

from gobrrr.observe.live.loops.loop import NO_LOOP_FOUND  # noqa: E402
from tests.live.loops import (  # noqa: E402
    Fake,
    X,
    functional,
    seen,
    state,
    steps,
)
from tests.live.loops import untold as untold  # noqa: E402


def test_a_functional_loop() -> None:
    fake, found = seen(lambda: functional(40), search_s=0.0)
    assert found.how == "line"
    assert "loops.py:" in found.text
    assert "in functional" in found.text
    assert fake.at == list(range(fake.at[0], 40))
    assert fake.at[0] <= 8


def test_the_functional_loop_must_last() -> None:
    class Timed(Fake):
        first_s = 0.0

        def boundary(self) -> None:
            super().boundary()
            self.first_s = self.first_s or time.perf_counter()

    began_s = time.perf_counter()
    fake, found = seen(lambda: functional(60, pause=0.005), Timed(), search_s=0.1)
    assert found.how == "line"
    assert fake.at == list(range(fake.at[0], 60))
    assert fake.first_s - began_s >= 0.1


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
    assert (fake.at, found.text) == ([], NO_LOOP_FOUND)


def test_all_is_gone_after_a_functional_loop_too() -> None:
    after, before = [], state()

    def program() -> None:
        functional(40)
        after.append(state())

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
