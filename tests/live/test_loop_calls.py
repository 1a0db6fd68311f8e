"""The step loop of inference and decode programs: calls of modules at the top."""

from __future__ import annotations

import contextlib
import copy
import io
import os
import pickle
import re
import threading
import time
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402

from gobrrr.observe.live.loops import step_intent  # noqa: E402
from gobrrr.observe.live.loops.loop import NO_LOOP_FOUND  # noqa: E402
from tests.live.loops import Decoder, X, model, seen, steps, train  # noqa: E402
from tests.live.loops import untold as untold  # noqa: E402

step_intent_written = step_intent.training_is_written


@pytest.mark.parametrize("gradients", [False, True])
def test_an_inference_loop(gradients: bool) -> None:
    net = model().eval()

    def program() -> None:
        with contextlib.nullcontext() if gradients else torch.inference_mode():
            for _ in steps(30):
                net(X)

    fake, found = seen(program)
    assert fake.at == list(range(9, 30))
    assert (found.how, fake.restarts) == ("module", 0)
    assert re.fullmatch(
        r"turns of the loop at test_loop_calls\.py:\d+ in program, one call of Sequential in each", found.text
    )
    assert "_compiled_call_impl" not in vars(net)


def test_a_decode_loop_with_a_cache() -> None:
    net = Decoder()
    fake, found = seen(lambda: net.generate(24))
    assert found.text.endswith("one call of Decoder in each")
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
    assert found.text.endswith("one call of Decoder in each")
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


def test_a_program_that_is_written_to_train(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_intent, "training_is_written", lambda: True)
    net = model()

    def program() -> None:
        with torch.no_grad():
            for _ in steps(100):
                net(X)

    fake, found = seen(program)
    assert (fake.at, found.how) == ([], None)
    assert found.remarks == (
        "the loop of 100 calls of Sequential was not taken: the program holds an optimizer, or code that trains",
    )
    assert seen(program, steps="module")[0].at == list(range(9, 100))


def test_a_training_that_updates_its_weights_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_intent, "training_is_written", lambda: True)
    net, loss = model(), nn.MSELoss()

    def program() -> None:
        for _ in steps(50):
            net.zero_grad()
            out = net(X)
            loss(out, torch.zeros_like(out)).backward()
            for weight in net.parameters():
                weight.data.add_(weight.grad, alpha=-0.1)

    fake, found = seen(program)
    assert found.how == "module"
    assert found.text.endswith("one call of Sequential in each")
    assert fake.at == list(range(fake.at[0], 50))
    assert 30 <= fake.at[0] <= 33  # two calls a step, 64 of them
    assert not any(weight._post_accumulate_grad_hooks for weight in net.parameters())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("loss.backward()", True),
        ("opt = torch.optim.AdamW(model.parameters())", True),
        ("trainer = L.Trainer(max_epochs=1)", True),
        ("model.eval()\nwith torch.no_grad(): model(x)", False),
        ("import torch.optim", False),
    ],
)
def test_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: bool) -> None:
    path = tmp_path / "train.py"
    path.write_text(text)
    program = ModuleType("__main__")
    program.__file__ = str(path)
    monkeypatch.setattr(step_intent.sys, "modules", {"__main__": program, "os": os, "torch": torch, "odd": 3})
    assert step_intent_written() is expected


@pytest.mark.parametrize("kind", ["optimizer", "module", "line"])
def test_one_kind_of_loop_alone(kind: Any) -> None:
    net = model()

    def program() -> None:
        train(net, torch.optim.SGD(net.parameters()), 100)

    fake, found = seen(program, steps=kind, search_s=0.0)
    assert found.how == kind
    assert len(fake.at) > 80
    assert fake.at == list(range(fake.at[0], 100))


def test_a_few_calls_are_no_loop() -> None:
    net = model()
    fake, found = seen(lambda: [net(X) for _ in range(5)])
    assert (fake.at, found.how, found.text) == ([], None, NO_LOOP_FOUND)


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
    assert found.text.endswith("one call of Picky in each")
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
    assert found.text.endswith("one call of Decoder in each")
    assert fake.threads == {threading.get_ident()}
    assert fake.at == list(range(fake.at[0], 30))  # every call of it, and none of the other thread's
    assert fake.at[0] <= 15


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


def test_a_tracer_that_takes_the_same_method() -> None:
    net, graphs = model(), []

    def program() -> None:
        graphs.append(torch.fx.symbolic_trace(net))
        with torch.no_grad():
            for _ in steps(20):
                graphs[0](X)

    fake, found = seen(program)
    assert [node.op for node in graphs[0].graph.nodes] == ["placeholder", *["call_module"] * 3, "output"]
    assert found.how == "module"
    assert fake.at == list(range(9, 20))
