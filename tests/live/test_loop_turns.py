"""A loop without an optimizer: a step is one turn of it, however many calls of modules that holds."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gobrrr.observe.live.loops.step_turns import loop_in  # noqa: E402
from tests.live.loops import Decoder, Fake, X, model, now, seen, steps, train  # noqa: E402
from tests.live.loops import untold as untold  # noqa: E402


def helper(net: Any, x: Any) -> Any:
    with torch.no_grad():
        return net(x)


def both(net: Any, other: Any, x: Any) -> Any:
    return other(x) + helper(net, x)


def one_line(net: Any, other: Any, count: int) -> None:
    for _ in steps(count):
        helper(net, X) - helper(net, X + 1)


def two_lines(net: Any, other: Any, count: int) -> None:
    turns = steps(count)
    while next(turns, None) is not None:
        helper(net, X)
        helper(net, X + 1)


def two_modules(net: Any, other: Any, count: int) -> None:
    turns = steps(count)
    while True:
        if next(turns, None) is None:
            return
        both(net, other, X)
        both(net, other, X)


def some_turns_have_none(net: Any, other: Any, count: int) -> None:
    for at in steps(count):
        if at % 3 == 0:
            continue
        try:
            helper(net, X)
        finally:
            helper(net, X)


@pytest.mark.parametrize(("program", "line"), [(one_line, 1), (two_lines, 3), (two_modules, 3)])
def test_two_calls_of_one_module_a_turn(program: Any, line: int) -> None:
    """`line`: of the function, that begins each turn."""
    net, other = model(), model()
    fake, found = seen(lambda: program(net, other, 40))
    assert found.how == "line"
    at = program.__code__.co_firstlineno + line
    assert found.text == f"turns of the loop at test_loop_turns.py:{at} in {program.__name__}"
    assert found.remarks == (f"the loop was taken for calls of Sequential until {found.text} began",)
    assert fake.restarts == 1
    assert fake.at == list(range(fake.at[0], 40))
    assert fake.at[0] <= 12


def test_only_turns_with_a_call_are_steps() -> None:
    net = model()
    fake, found = seen(lambda: some_turns_have_none(net, net, 60))
    assert found.how == "line"
    assert fake.at == [at for at in range(fake.at[0], 60) if at % 3]


def test_two_different_modules_a_turn() -> None:
    net, other = model(), model()

    def program() -> None:
        for _ in steps(30):
            both(net, other, X)

    fake, found = seen(program)
    assert (found.how, fake.restarts) == ("module", 0)
    assert fake.at == list(range(fake.at[0], 30))


def test_one_call_a_turn() -> None:
    net, kept = model(), []

    def program() -> None:
        for at in steps(30):
            helper(net, X)
            if at == 20:
                kept.append((sys.gettrace(), [getattr(sys, "monitoring", None) and sys.monitoring.get_tool(4)]))

    fake, found = seen(program)
    assert (found.how, found.remarks, fake.at) == ("module", (), list(range(9, 30)))
    assert kept == [(None, [None])]  # the loop's line is counted no more


@pytest.mark.parametrize("tokens", [3, 7, 24])
def test_a_decode_loop_in_a_loop_over_prompts(tokens: int) -> None:
    """One token, or one prompt where these are short; never a loop over prompts for one over tokens."""
    net, calls = Decoder(), []
    net.register_forward_pre_hook(lambda *_: calls.append(now.step))

    def program() -> None:
        for _ in range(8):
            cache: list[Any] = []
            token = torch.zeros(2, dtype=torch.long)
            for _ in steps(tokens):
                token = net(token, cache)

    with torch.no_grad():
        fake, found = seen(program)
    assert (found.how, found.remarks) == ("module", ())
    assert fake.at == calls[9:]


def test_a_prefill_before_each_decode_loop_that_breaks() -> None:
    net = Decoder()

    def generate() -> None:
        cache: list[Any] = []
        token = net(torch.zeros(2, dtype=torch.long), cache)
        turns = steps(100)
        while True:
            token = net(token, cache)
            if next(turns) == 11:
                break

    def program() -> None:
        for _ in range(5):
            generate()

    with torch.no_grad():
        _, found = seen(program)
    assert (found.how, found.remarks) == ("module", ())


def test_a_comprehension_is_a_loop() -> None:
    net = model()
    fake, found = seen(lambda: [[helper(net, X) for _ in steps(20)] for _ in range(2)])
    assert (found.how, found.remarks) == ("module", ())
    assert len(fake.at) == 31


def test_a_training_that_follows() -> None:
    net = model()

    def program() -> None:
        one_line(net, net, 20)
        train(net, torch.optim.SGD(net.parameters()), 20)

    fake, found = seen(program)
    assert (found.how, found.text, fake.restarts) == ("optimizer", "steps of SGD", 2)
    assert fake.at == list(range(20))


def test_all_is_gone_when_the_watcher_is_done() -> None:
    net, kept = model(), []

    def program() -> None:
        one_line(net, net, 40)
        kept.append("_compiled_call_impl" in vars(net))

    fake, _ = seen(program, Fake(20))
    assert len(fake.at) == 20
    assert kept == [False]


def test_calls_alone_where_these_are_asked_for() -> None:
    net = model()
    fake, found = seen(lambda: one_line(net, net, 20), steps="module")
    assert (found.how, len(fake.at)) == ("module", 31)


def test_turns_of_a_loop_on_one_line_are_not_counted() -> None:
    net = model()
    for program in (lambda: [helper(net, X) + helper(net, X) for _ in steps(20)], lambda: comprehensions(net)):
        fake, found = seen(program)
        assert (found.how, found.remarks, len(fake.at)) == ("module", (), 31)


def comprehensions(net: Any) -> None:
    for _ in range(10):
        [helper(net, X) for _ in steps(4)]


# -- the loop around an instruction


def line_in(text: str, **names: Any) -> int | None:
    """The line of the loop around where `here()` is called in the text."""
    found: list[Any] = []

    def here(*_: Any) -> bool:
        frame = sys._getframe(1)
        loop = loop_in(frame.f_code, frame.f_lasti)
        found.append(loop and loop.line)
        return len(found) < 3

    exec(compile(text, "text", "exec"), {"here": here, "torch": torch, "asyncio": asyncio, **names})
    assert found
    return found[-1]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("here()", None),
        ("for x in (1, 2):\n  pass\nhere()", None),
        ("for x in (1, 2):\n  here()", 1),
        ("for x in (1, 2):\n  for y in (1, 2):\n    pass\n  here()", 1),
        ("for x in (1, 2):\n  here()\n  for y in (1, 2):\n    pass", 1),
        ("for x in (1, 2):\n  for y in (1, 2):\n    here()", 2),
        ("for x in (1, 2):\n  with torch.no_grad():\n    pass\n  here()", 1),
        ("with torch.no_grad():\n  pass\nhere()", None),
        ("for x in (1, 2):\n  try:\n    1 / 0\n  except ZeroDivisionError:\n    continue\nhere()", None),
        ("for x in (1, 2):\n  try:\n    1 / 0\n  except ZeroDivisionError:\n    here()\n    continue", 1),
        ("for x in (1, 2):\n  try:\n    here()\n  finally:\n    pass", 1),
        ("while True:\n  if not here():\n    break", 2),
        ("x = 3\nwhile x:\n  x -= 1\n  if x == 1:\n    continue\n  here()", 3),
        ("while here():\n  pass", 2),
        ("while True:\n  here()\n  break", None),
        ("[here() for x in (1, 2)]", 1),
        ("sum(here() for x in (1, 2))", 1),
        ("async def f():\n  await asyncio.sleep(0 * here())\nasyncio.run(f())", None),
        ("async def f():\n  for x in (1, 2):\n    await asyncio.sleep(0)\n    here()\nasyncio.run(f())", 2),
    ],
)
def test_the_loop_around_an_instruction(text: str, line: int | None) -> None:
    assert line_in(text) == line
