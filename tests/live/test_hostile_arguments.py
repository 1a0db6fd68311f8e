"""What a step's operations are called with is never turned into text, and never read through, by what watches them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from enum import Enum, IntEnum
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gobrrr.errors import UsageError  # noqa: E402
from gobrrr.model.plain import MOST_CHARACTERS, MOST_ITEMS, plain_text  # noqa: E402
from gobrrr.model.recording import Recording  # noqa: E402
from gobrrr.model.work import Scalar  # noqa: E402
from gobrrr.model.workload import Workload  # noqa: E402
from gobrrr.observe.live.ops.dispatch import watch  # noqa: E402
from gobrrr.observe.live.options import WatchOptions  # noqa: E402
from gobrrr.observe.live.pull import pull  # noqa: E402
from gobrrr.observe.live.watcher import Watcher  # noqa: E402
from gobrrr.observe.static.arguments import named_call, op_call  # noqa: E402
from gobrrr.observe.static.session import record_step  # noqa: E402
from gobrrr.observe.static.sides import tensors_of  # noqa: E402
from gobrrr.trials import door  # noqa: E402
from gobrrr.trials.fingerprint import fingerprint  # noqa: E402

pytestmark = pytest.mark.torch

MILLION = 1_000_000


def refuse(*_: Any) -> str:
    raise AssertionError("somebody asked for the text of an argument")


class Mute:
    """Anything that a program may hold."""

    __repr__ = __str__ = __format__ = refuse  # type: ignore[assignment]


class MuteNumber(int):
    __repr__ = __str__ = __format__ = refuse  # type: ignore[assignment]


class MuteText(str):
    __repr__ = __str__ = __format__ = refuse  # type: ignore[assignment]


class MuteChoice(Enum):
    ONE = Mute()
    __repr__ = __str__ = __format__ = refuse  # type: ignore[assignment]


class MuteLevel(IntEnum):
    ONE = 1
    __repr__ = __str__ = __format__ = refuse  # type: ignore[assignment]


class Long(list[Any]):
    """A list that counts how often an item of it was taken."""

    taken = 0

    def __iter__(self) -> Iterator[Any]:
        for one in super().__iter__():
            self.taken += 1
            yield one


@pytest.fixture(scope="module", autouse=True)
def weighs() -> Iterator[None]:
    """An operation that takes a list of numbers."""
    library = torch.library.Library("gobrrr_test", "DEF")
    library.define("weighs(Tensor x, float[] by, str how) -> Tensor")
    library.impl("weighs", lambda x, by, how: x * len(by), "CompositeExplicitAutograd")
    yield
    library._destroy()


def stored() -> Any:
    """A step whose operation takes a storage: what an LSTM on a GPU does with its weights."""
    x = torch.ones(8)

    def step() -> Any:
        y = torch.empty(0)
        y.set_(torch.zeros(64).untyped_storage(), 0, (16,), (1,))
        return x + y[:8]

    return step


def numbers(count: int) -> Any:
    x, many = torch.ones(8), [1.0] * count

    def step() -> Any:
        return torch.ops.gobrrr_test.weighs(x, many, "a" * MILLION) + x

    return step


def by_dispatch(step: Callable[[], Any]) -> Recording:
    return watch(step).recording()


def by_a_live_run(step: Callable[[], Any]) -> Recording:
    watcher = Watcher(options=WatchOptions(warmup=1, most_warmup=1, window=2, profiled=1))
    pull(watcher, step, (), {})
    seen = watcher.profile("step", "a CPU").ranks[0].seen
    assert seen is not None
    return seen


def by_fake_tensors(step: Callable[[], Any]) -> Recording:
    return record_step(step, (), {}, "step")


WATCHERS = (by_dispatch, by_a_live_run, by_fake_tensors)


@pytest.mark.parametrize("through", WATCHERS)
def test_a_storage(through: Callable[[Any], Recording], monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (torch.UntypedStorage, torch.TypedStorage):
        monkeypatch.setattr(kind, "__repr__", refuse)
        monkeypatch.setattr(kind, "__str__", refuse)
    calls = [one.call for one in through(stored()).calls]
    assert {"aten::set_", "aten::add"} <= {one.name for one in calls}
    assert next(one for one in calls if one.name == "aten::set_").inputs[1] == Scalar("")


@pytest.mark.parametrize("through", WATCHERS)
def test_a_list_of_a_million_numbers_and_a_text_of_a_million_characters(through: Callable[[Any], Recording]) -> None:
    count = MILLION // 10 if through is by_fake_tensors else MILLION  # torch's own fake tensors read each several times
    call = next(one.call for one in through(numbers(count)).calls if one.call.name == "gobrrr_test::weighs")
    assert call.inputs[1:] == (Scalar(""), Scalar("a" * MOST_CHARACTERS))


def test_items_of_a_long_list_are_not_taken_one_by_one() -> None:
    many = Long([1] * MILLION)
    assert named_call("aten::full", (many,), ()).inputs == (Scalar(""),)
    assert tensors_of((many,)) == []
    assert many.taken <= MOST_ITEMS


def test_arguments_that_have_no_text() -> None:
    values = (Mute(), MuteNumber(7), MuteText("sum"), MuteChoice.ONE, [MuteNumber(7), Mute()], torch.Generator())
    inputs = named_call("x::y", values, ()).inputs
    assert inputs == (Scalar(""), Scalar("7"), Scalar("sum"), Scalar(""), Scalar("[7, ]"), Scalar(""))
    default = SimpleNamespace(name="one", default_value=Mute())
    assert op_call(Operation(default), (), {}).inputs == (Scalar(""),)


class Operation:
    """An operation whose argument was not given, and has anything as its default."""

    tags = ()

    def __init__(self, *arguments: Any) -> None:
        self._schema = SimpleNamespace(name="x::z", arguments=arguments)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "None"), (True, "True"), (3, "3"), (-0.5, "-0.5"), (1j, "1j"), ("a", "a"), (b"a", "b'a'"),
        (MuteNumber(3), "3"), (MuteText("a"), "a"), (Mute(), None), ([1], None), (MuteChoice.ONE, None),
        ("a" * MILLION, "a" * MOST_CHARACTERS),
    ],
    ids=range(13),
)  # fmt: skip
def test_the_text_of_a_value(value: Any, expected: str | None) -> None:
    assert plain_text(value) == expected
    assert len(plain_text(1 << MILLION) or "") == MOST_CHARACTERS  # Python refuses its digits


class Holds(torch.nn.Module):
    """A model that holds what nobody may print."""

    def __init__(self) -> None:
        super().__init__()
        self.mute, self.number, self.level = Mute(), MuteNumber(7), MuteLevel.ONE
        self.choice, self.storage = MuteChoice.ONE, torch.zeros(4).untyped_storage()
        self.table = {Mute(): 1, MuteNumber(3): 2, (Mute(), MuteText("a")): 3, MuteChoice.ONE: 4}
        self.kinds = {MuteNumber(3), MuteText("a")}
        self.many = Long([0.5] * MILLION)
        self.large, self.text = set(range(100_000)), "a" * MILLION
        self.digits = 1 << MILLION

    def extra_repr(self) -> str:
        return refuse()

    def forward(self, x: Any) -> Any:
        return x * 2


def test_the_fingerprint_of_a_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.UntypedStorage, "__repr__", refuse)
    monkeypatch.setattr(torch.UntypedStorage, "__str__", refuse)
    model, x = Holds(), torch.ones(4)
    workload = Workload(model=model, step=model.forward, inputs=(x, MuteNumber(3), [Mute()] * 3))
    begin = time.perf_counter()
    first = fingerprint(workload)
    assert time.perf_counter() - begin < 5
    assert model.many.taken <= MOST_ITEMS
    model.number = MuteNumber(8)
    assert fingerprint(workload) != first


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"budget": Mute()}, "not an object of type Mute"),
        ({"budget": [Mute()]}, "not [an object of type Mute]"),
        ({"only": [1] * MILLION}, "not [1, 1, 1, 1, ...]"),
        ({"ledger": Mute()}, "is a folder, not an object of type Mute"),
    ],
    ids=range(4),
)
def test_what_is_said_of_a_wrong_argument(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        door.treat("w.py:workload", **given)
    assert said in str(caught.value)
