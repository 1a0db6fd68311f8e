"""The modes that a program has put on see its own operations and none of ours; all of them are on as it left them."""

from __future__ import annotations

import collections
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils import _python_dispatch  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import gobrrr  # noqa: E402
from gobrrr.model.workload import Workload  # noqa: E402
from gobrrr.observe.live.apart import apart, beneath  # noqa: E402
from gobrrr.observe.live.loops import step_intent  # noqa: E402
from gobrrr.observe.live.loops.loop import Finder  # noqa: E402
from gobrrr.observe.live.ops.dispatch import looking  # noqa: E402
from gobrrr.observe.live.ops.scaling import scale_workload  # noqa: E402
from gobrrr.observe.live.options import WatchOptions  # noqa: E402
from gobrrr.observe.live.state.kept import StatePreserver  # noqa: E402
from gobrrr.observe.live.watcher import Watcher  # noqa: E402

pytestmark = pytest.mark.torch

STEPS = 30


class Dispatches(TorchDispatchMode):
    """Counts operations."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: collections.Counter[str] = collections.Counter()
        self.history = collections.deque([3])  # nobody's but its own

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen[str(func)] += 1
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    """Counts torch's functions, methods and attributes of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: collections.Counter[str] = collections.Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen[str(getattr(func, "__qualname__", func))] += 1
        return func(*args, **(kwargs or {}))


MODES = (Dispatches, Functions)


class Embeds(torch.nn.Module):
    """With what is looked at closest: an embedding, an index that repeats, a growing tensor, a quantised buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = torch.nn.Embedding(100, 8), torch.nn.Linear(8, 8)
        self.register_buffer("small", torch.ones(4, 4, dtype=torch.int8))

    def forward(self, ids: Any) -> Any:
        x = self.table(ids)
        for _ in range(3):
            x = torch.cat([x, x[:, :1]], dim=1)
        return self.out(x).masked_fill(torch.zeros(x.shape[1], 8, dtype=torch.bool), -10_000.0)


def program() -> Callable[[], None]:
    torch.manual_seed(0)
    model = Embeds()
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    ids = torch.randint(0, 100, (4, 12))

    def step() -> None:
        model(ids).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def stack() -> list[Any]:
    return _python_dispatch._get_current_dispatch_mode_stack()


def flags() -> tuple[Any, ...]:
    return tuple(value for name, value in sorted(vars(_python_dispatch).items()) if name.startswith("_is_in_"))


@contextmanager
def nothing_left() -> Iterator[None]:
    before = flags()
    assert stack() == []
    yield
    assert stack() == []
    assert torch._C._len_torch_function_stack() == 0
    assert flags() == before


def watched(steps: int) -> Iterator[None]:
    options = WatchOptions(warmup=2, most_warmup=2, window=3, profiled=2)
    watcher = Watcher(options=options)
    watcher.open()
    for _ in range(steps):
        yield
        watcher.boundary()
    assert watcher.done
    watcher.close()


def by_hand(steps: int) -> Iterator[None]:
    """Under `gobrrr run`: the optimizer's steps are the boundaries."""
    watcher = Watcher(options=WatchOptions(warmup=2, most_warmup=2, window=3, profiled=2))
    finder = Finder(watcher)
    finder.open()
    for _ in range(steps):
        yield
    assert watcher.done
    finder.close()


def around(steps: Iterator[None] | range, mode: Any, step: Callable[[], None]) -> None:
    with mode:
        for _ in steps:
            step()


def within(steps: Iterator[None] | range, mode: Any, step: Callable[[], None]) -> None:
    for _ in steps:
        with mode:
            step()


QUICK = (Dispatches, within, by_hand)
"""Of all combinations the one that each commit is tested with."""


def same(seen: Any, alone: Any) -> None:
    """Equal, but that torch's own profiler, which records stacks, asks parameters for their gradients: in modules once,
    in optimizers once. A loop is recorded twice: an early step, should it end soon, and the steps that count.
    """
    asked = seen.seen - alone.seen
    assert set(asked) <= {"getset_descriptor.__get__"}
    assert asked.total() <= 2 * 2 * len(list(Embeds().parameters()))
    assert not alone.seen - seen.seen


@pytest.mark.parametrize(
    ("kind", "loop", "watch"),
    [
        pytest.param(kind, loop, watch, marks=[] if (kind, loop, watch) == QUICK else pytest.mark.slow)
        for kind in MODES for loop in (around, within) for watch in (watched, by_hand)
    ],
)  # fmt: skip
def test_a_mode_sees_the_programs_operations_alone(kind: Any, loop: Any, watch: Any) -> None:
    alone, seen = kind(), kind()
    with nothing_left():
        loop(range(STEPS), alone, program())
    with nothing_left():
        loop(watch(STEPS), seen, program())
    assert sum(alone.seen.values()) > 10 * STEPS
    same(seen, alone)


@pytest.mark.parametrize("kind", MODES)
def test_a_loop_without_an_optimizer(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_intent, "training_is_written", lambda: False)
    model, ids = Embeds(), torch.randint(0, 100, (4, 12))

    def step() -> None:
        with torch.no_grad():
            model(ids)

    alone, seen = kind(), kind()
    around(range(STEPS), alone, step)
    with nothing_left():
        around(by_hand(STEPS), seen, step)
    same(seen, alone)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODES)
def test_under_the_products_own_words(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from gobrrr.hardware import measure

    asked = []
    monkeypatch.setattr(measure, "measure", lambda *_, **__: asked.append(torch.ones(3) + 1) or gobrrr_machine())
    mode, alone, step = kind(), kind(), program()
    with mode, gobrrr.watch(range(45)) as steps:
        for _ in steps:
            step()
        assert steps.diagnosis.findings is not None
    around(range(45), alone, program())
    assert asked
    same(mode, alone)


def gobrrr_machine() -> Any:
    from gobrrr.errors import UsageError

    raise UsageError("nothing was measured")


@pytest.mark.parametrize("kind", MODES)
def test_state_that_is_kept_and_a_batch_that_grows(kind: Any) -> None:
    model, ids = Embeds(), torch.randint(0, 100, (4, 12))
    alone, seen = kind(), kind()
    with alone, torch.no_grad():
        model(ids)
    with seen, StatePreserver() as kept, torch.no_grad():
        kept.keep(Workload(model=model))
        model(ids)
    assert seen.seen == alone.seen
    grown = kind()

    def step(x: Any) -> Any:
        with torch.no_grad():
            return model(x)

    with grown:
        scale_workload(Workload(model=model, step=step, inputs=(ids,)))
    runs = grown.seen.total() / alone.seen.total()
    assert set(grown.seen) == set(alone.seen)
    assert runs == int(runs)


def test_what_a_mode_swallows_has_not_run() -> None:
    class Zeros(TorchDispatchMode):
        """Runs no sum."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.sum.default:
                return args[0].new_zeros(())
            return func(*args, **(kwargs or {}))

    x = torch.ones(4)
    with nothing_left(), Zeros(), looking() as look:
        (x + x).sum()
    assert look.seen is not None
    assert [one.call.name for one in look.seen.calls] == ["aten::add", "aten::new_zeros"]


def test_a_loop_that_ends_while_ours_is_on() -> None:
    """The program's `with` takes its own mode off, not ours; then nothing of ours is left."""
    with nothing_left():
        look = looking()
        with Dispatches() as mode:
            look.__enter__()
            torch.ones(3)
            assert stack()[-1] is mode
        look.__exit__(None, None, None)


def test_ours_goes_before_a_mode_that_came_later() -> None:
    with nothing_left():
        look, mode = looking(), Dispatches()
        look.__enter__()
        with mode:
            look.__exit__(None, None, None)
            assert stack() == [mode]
            torch.ones(3)
        assert mode.seen.total() == 1
        assert list(mode.history) == [3]


def test_modes_in_any_order() -> None:
    with nothing_left():
        first, second, ours = Dispatches(), Dispatches(), Dispatches()
        with first:
            with beneath(ours):
                assert stack() == [ours, first]
                with second:
                    torch.ones(3)
                    with apart():
                        assert stack() == []
                        torch.ones(3)
                    assert stack() == [ours, first, second]
            assert stack() == [first]
    assert [one.seen.total() for one in (first, second, ours)] == [1, 1, 1]


def test_fake_tensors_below() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with nothing_left(), FakeTensorMode() as fake, Dispatches() as mode, beneath(Dispatches()) as _:
        assert stack()[0] is fake
        assert stack()[-1] is mode
        torch.ones(3) + 1
    assert mode.seen.total() == 2


@pytest.mark.slow
def test_the_script_of_a_user(tmp_path: Path) -> None:
    source = str(Path(gobrrr.__file__).resolve().parents[1])
    script = tmp_path / "count.py"
    script.write_text(SCRIPT)
    text = subprocess.run(
        [sys.executable, "-m", "gobrrr", "run", "--on", "h100", str(script)],
        capture_output=True, text=True, cwd=tmp_path, check=True, env={**os.environ, "PYTHONPATH": source},
    ).stdout  # fmt: skip
    assert "{'aten.t.default': 60, 'aten.addmm.default': 60}" in text


SCRIPT = """
import collections, torch
from torch.utils._python_dispatch import TorchDispatchMode
class Count(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.n = collections.Counter()
    def __torch_dispatch__(self, f, t, a=(), k=None):
        self.n[str(f)] += 1
        return f(*a, **(k or {}))
m = torch.nn.Linear(32, 32)
x = torch.randn(8, 32)
with Count() as c, torch.no_grad():
    for _ in range(60):
        m(x)
print(dict(c.n))
"""
