"""Registering rules: the public seam."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gobrrr.cost import Uncounted, names, price, register, rule, unregister
from gobrrr.errors import CountingError
from gobrrr.model.work import OpCall, Tensor, Work

NAME = "mylib::twice"


@pytest.fixture
def added() -> Iterator[None]:
    @rule(NAME, family="pointwise")
    def _twice(call: OpCall) -> Work:
        if not call.inputs:
            raise Uncounted("nothing is recorded")
        return Work(count="exact", bytes_read=8.0, bytes_written=8.0)

    yield
    unregister(NAME)


@pytest.mark.usefixtures("added")
def test_a_users_rule() -> None:
    work = price(OpCall(name=NAME, inputs=(Tensor((2,), "float32"),)))
    assert (work.bytes, work.family) == (16, "pointwise")
    assert price(OpCall(name=NAME)).note == "nothing is recorded"
    assert NAME in names()


@pytest.mark.usefixtures("added")
def test_twice_is_an_error() -> None:
    with pytest.raises(CountingError, match="mylib::twice"):
        register(NAME, lambda call: Work(count="exact"))
    with pytest.raises(CountingError):
        register("aten::mm", lambda call: Work(count="exact"))


def test_forgetting_what_is_not_there_is_an_error() -> None:
    with pytest.raises(CountingError):
        unregister("mylib::never")


def test_a_rule_that_breaks_is_unknown() -> None:
    register("mylib::broken*", lambda call: Work(count="exact", bytes_read=1 / 0))
    try:
        work = price(OpCall(name="mylib::broken_7"))
    finally:
        unregister("mylib::broken*")
    assert work.count == "unknown"
    assert "ZeroDivisionError" in work.note
