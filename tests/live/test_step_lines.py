"""A line counted without torch: with sys.monitoring where there is one, and with sys.settrace."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gobrrr.observe.live.loops.step_lines import Escape, MonitoredLine, TracedLine, begins, counting
from gobrrr.observe.live.watches import tools

KINDS = [TracedLine, *([MonitoredLine] if hasattr(sys, "monitoring") else [])]


def state() -> Any:
    monitoring = getattr(sys, "monitoring", None)
    return sys.gettrace(), [monitoring.get_tool(i) for i in range(6)] if monitoring else None


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = state()
    yield
    assert state() == before


def looped(turns: int, begin: Callable[[], Any] = lambda: None) -> int:
    total = 0
    begin()
    for turn in range(turns):
        total += turn  # the line
        if turn % 2:
            total += 1
    return total


LINE = looped.__code__.co_firstlineno + 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inside", [False, True])
def test_counts_that_line(kind: Any, inside: bool) -> None:
    seen: list[int] = []
    count = kind(looped.__code__, LINE, lambda: seen.append(1))
    if not inside:
        assert count.open()
    assert looped(7, count.open if inside else lambda: None) == 21 + 3
    looped(2)
    count.close()
    looped(5)
    assert len(seen) == 9


@pytest.mark.parametrize("kind", KINDS)
def test_closed_by_what_it_calls(kind: Any) -> None:
    seen: list[int] = []

    def then() -> None:
        seen.append(1)
        if len(seen) == 3:
            count.close()

    count = kind(looped.__code__, LINE, then)
    assert count.open()
    assert looped(9) == 36 + 4
    assert len(seen) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_raises_passes(kind: Any) -> None:
    def then() -> None:
        raise KeyError("stop")

    count = kind(looped.__code__, LINE, then)
    assert count.open()
    with pytest.raises(KeyError):
        looped(9)
    count.close()


def test_which_kind() -> None:
    expected = MonitoredLine if hasattr(sys, "monitoring") else TracedLine
    assert isinstance(counting(looped.__code__, LINE, lambda: None), expected)


def test_another_tracer_is_left_alone() -> None:
    def trace(*_: Any) -> None:
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        assert not TracedLine(looped.__code__, LINE, lambda: None).open()
        assert not Escape(lambda: True, lambda: None).open(sys._getframe())
        assert sys.gettrace() is trace
    finally:
        sys.settrace(before)


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="sys.monitoring came with Python 3.12")
def test_without_a_free_tool_id() -> None:
    monitoring: Any = sys.monitoring
    for tool in range(tools._TOOLS):
        monitoring.use_tool_id(tool, "other")
    try:
        assert not MonitoredLine(looped.__code__, LINE, lambda: None).open()
    finally:
        for tool in range(tools._TOOLS):
            monitoring.free_tool_id(tool)


def test_a_line_in_several_places() -> None:
    def several(f: Any) -> Any:
        return f(
            1,
            2,
        )

    first = several.__code__.co_firstlineno
    assert begins(several.__code__, first + 1) == 2  # before its arguments, and for the call
    assert begins(several.__code__, first + 2) == 1
    assert begins(looped.__code__, LINE) == 1


def test_escape() -> None:
    order: list[str] = []
    ready = [False]

    def inner() -> None:
        escape.open(sys._getframe(1))
        order.append("inner")

    escape = Escape(lambda: ready[0], lambda: order.append("out"))
    inner()
    order.append("not ready")
    ready[0] = True
    order.append("after")
    order.append("later")
    assert order == ["inner", "not ready", "out", "after", "later"]
