"""Programs with a loop, and a watcher that writes down what it is told, for the tests of the finder."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules.module import _has_any_global_hook
from torch.optim import optimizer as optimizers
from torch.overrides import _get_current_function_mode_stack

from gobrrr.observe.live.loops import step_intent
from gobrrr.observe.live.loops.loop import Finder, FoundLoop


def state() -> Any:
    """What a finder could leave behind."""
    return (
        nn.Module.__call__,
        torch.compile,
        len(_get_current_function_mode_stack()),
        len(optimizers._global_optimizer_post_hooks),
        len(optimizers._global_optimizer_pre_hooks),
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


def seen(program: Callable[[], Any], fake: Fake | None = None, **options: Any) -> tuple[Fake, FoundLoop]:
    """The program run under a finder; the interpreter and torch are as they were afterwards."""
    fake, before = fake or Fake(), state()
    now.step = None
    finder = Finder(fake, **options)
    finder.open()
    try:
        program()
    finally:
        finder.close()
        assert state() == before
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


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests train: what they are written to do is no evidence."""
    monkeypatch.setattr(step_intent, "training_is_written", lambda: False)
