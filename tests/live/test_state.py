"""What a snapshot puts back, in place: addresses that a captured graph holds go on being right."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from gobrrr.model.workload import Workload  # noqa: E402
from gobrrr.observe.live.state import contents  # noqa: E402
from gobrrr.observe.live.state.parts import parameters_of, parts_of  # noqa: E402
from gobrrr.observe.live.state.snapshot import drawn, seeded, snapshot, write  # noqa: E402
from gobrrr.observe.targets import step_of  # noqa: E402
from tests.trials import fakes  # noqa: E402
from tests.trials.fakes import one_thread  # noqa: E402, F401

pytestmark = pytest.mark.torch


def run(workload: Workload, steps: int = 2) -> list[Any]:
    call, arguments = step_of(workload, lambda model, *x: model(*x))
    return [call(*arguments) for _ in range(steps)]


def addresses(workload: Workload) -> list[int]:
    held = [*workload.model.parameters(), *workload.model.buffers()]
    held += [one for state in workload.optimizer.state.values() for one in state.values()]
    return [one.data_ptr() for one in held]


OPTIMIZERS = [
    lambda p: torch.optim.AdamW(p, lr=1e-2, amsgrad=True),
    lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9),
    lambda p: torch.optim.SGD(p, lr=torch.tensor(1e-2)),
    lambda p: torch.optim.LBFGS(p, lr=1e-2),
    lambda p: torch.optim.RMSprop(p, lr=1e-2),
]


@pytest.mark.parametrize("make", OPTIMIZERS[:3] + OPTIMIZERS[4:])
@pytest.mark.parametrize("ran", [0, 2])
def test_a_step_after_a_restore_is_the_same_step_again(make: Any, ran: int) -> None:
    made = fakes.training(model=nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Dropout(), nn.Linear(16, 4)))
    made = Workload(**{**vars(made), "optimizer": make(made.model.parameters())})
    run(made, ran)
    before, where = fakes.state_of(made), addresses(made)
    state = snapshot(made)
    first = run(made)
    for _ in range(2):
        state.restore()
        assert fakes.same(before, fakes.state_of(made))
        assert addresses(made) == where
        assert all(map(torch.equal, first, run(made)))


class Counting(nn.Module):
    """Keeps what it has seen in plain attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.calls, self.cache, self.log = nn.Linear(4, 4), 0, None, {"sizes": [1]}
        self.seen, self.memory = {1}, [torch.zeros(4)]

    def forward(self, x: Any) -> Any:
        self.calls += 1
        self.cache = x if self.cache is None else torch.cat([self.cache, x])
        self.log["sizes"].append(len(self.cache))
        self.seen.add(self.calls + 1)
        self.memory[0].add_(1)
        self.new = 1
        return self.inner(x) + self.cache.sum()


def test_plain_attributes_of_modules_are_put_back() -> None:
    made = Workload(model=Counting(), inputs=(torch.ones(2, 4),))
    log, seen = made.model.log, made.model.seen
    state = snapshot(made)
    first = run(made)
    for _ in range(2):
        state.restore()
        model = made.model
        assert (model.calls, model.cache, model.log, model.seen) == (0, None, {"sizes": [1]}, {1})
        assert model.log is log
        assert model.seen is seen
        assert not hasattr(model, "new")
        assert model.memory[0].sum() == 0
        assert all(map(torch.equal, first, run(made)))


total, trace, table = 0, [1.0], {"best": 3.0}


def test_what_closures_and_globals_hold_is_put_back() -> None:
    history: list[float] = []
    count, hidden = {"n": 0}, torch.zeros(2)
    recent: deque[int] = deque(maxlen=3)

    def step() -> Any:
        nonlocal hidden
        global total
        total += 1
        hidden = hidden + 1
        history.append(float(total))
        trace.append(2.0)
        table["best"] = 0.0
        table["other"] = 1.0
        count["n"] += 1
        recent.append(1)
        return hidden

    made = Workload(step=step)
    state = snapshot(made)
    assert state.whole
    run(made, 4)
    state.restore()
    assert (history, count, trace, table, total) == ([], {"n": 0}, [1.0], {"best": 3.0}, 0)
    assert hidden.tolist() == [0, 0]
    assert not recent
    assert not state.notes


class Trainer:
    """A step with a state of its own."""

    def __init__(self) -> None:
        self.at, self.losses, self.batches = 0, [], iter(range(99))

    def step(self) -> int:
        self.at += next(self.batches)
        self.losses.append(self.at)
        return self.at


def test_the_attributes_of_what_a_step_belongs_to_are_put_back_and_what_only_goes_on_is_said() -> None:
    trainer = Trainer()
    made = Workload(step=trainer.step)
    state = snapshot(made)
    run(made, 3)
    state.restore()
    assert (trainer.at, trainer.losses) == (0, [])
    assert state.notes == ["the step takes items from batches: an iterator can't be put back"]


def test_of_a_long_list_what_was_appended_is_taken_off_and_a_large_table_is_said() -> None:
    rows, known = list(range(contents.MOST_HELD + 1)), dict.fromkeys(range(contents.MOST_HELD + 1))
    made = Workload(step=lambda: (rows.append(1), known.update(a=1)))
    state = snapshot(made)
    run(made)
    state.restore()
    assert len(rows) == contents.MOST_HELD + 1
    assert "1 container of over 10000 entries" in state.notes[0]


def test_generators_of_python_and_numpy_that_a_step_holds_are_put_back() -> None:
    dice, arrays = random.Random(1), np.random.default_rng(2)
    made = Workload(step=lambda: (dice.random(), float(arrays.random())))
    state = snapshot(made)
    first = run(made)
    state.restore()
    assert run(made) == first


def test_generators_of_a_loader_are_put_back() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(9.0))
    loader = torch.utils.data.DataLoader(data, shuffle=True, generator=torch.Generator().manual_seed(3))
    made = Workload(step=lambda x: x, loader=loader)
    state = snapshot(made)
    orders = []
    for _ in range(2):
        orders.append([one.item() for (one,) in loader])
        state.restore()
    assert orders[0] == orders[1]


def test_options_of_an_optimizer_and_its_schedule_are_put_back() -> None:
    made = fakes.training()
    schedule = torch.optim.lr_scheduler.StepLR(made.optimizer, step_size=1, gamma=0.5)

    def step() -> None:
        schedule.step()
        made.optimizer.param_groups[0]["new"] = 1

    closed = Workload(model=made.model, step=step, optimizer=made.optimizer)
    state = snapshot(closed)
    made.optimizer.step()
    run(closed, 3)
    state.restore()
    assert made.optimizer.param_groups[0]["lr"] == 1e-3
    assert "new" not in made.optimizer.param_groups[0]
    assert schedule.last_epoch == 0


def test_what_a_way_left_changed_is_put_back() -> None:
    made = fakes.training(loss=None, optimizer=None, targets=())
    before, first = fakes.state_of(made), made.model[1]
    state = snapshot(made)
    made.model.half().eval().requires_grad_(False)
    made.model[1] = nn.Identity()
    made.model[0].inner.weight = nn.Parameter(torch.zeros(2))
    made.model[0].extra = nn.Linear(1, 1)
    state.restore()
    assert fakes.same(before, fakes.state_of(made))
    assert made.model[1] is first
    assert made.model.training
    assert made.model[0].inner.weight.requires_grad
    assert not hasattr(made.model[0], "extra")


def test_gradients_inputs_and_buffers_that_are_replaced_are_put_back() -> None:
    model = nn.BatchNorm1d(4)
    x = torch.randn(3, 4).expand(3, 4)
    wide = torch.randn(1, 4).expand(3, 4)
    model.weight.grad = torch.ones(4)
    made = Workload(model=model, inputs=([x], {"wide": wide}))
    gradient, mean = model.weight.grad, model.running_mean
    state, given = snapshot(made), x.clone()
    model.weight.grad.zero_()
    model.bias.grad = torch.ones(4)
    model.running_mean = model.running_mean + 1
    x.zero_()
    wide.narrow(0, 0, 1).zero_()
    state.restore()
    assert model.weight.grad is gradient
    assert bool(gradient.all())
    assert model.bias.grad is None
    assert model.running_mean is mean
    assert torch.equal(x, given)
    assert bool(wide.any())


def test_what_the_steps_closure_holds_is_found_and_put_back() -> None:
    cache, position, other = torch.zeros(4), 0, nn.Linear(2, 2)
    holder = {"adam": torch.optim.Adam(other.parameters())}

    class Trainer:
        def __init__(self) -> None:
            self.critic = nn.Linear(3, 3)

        def step(self) -> None:
            nonlocal position
            cache[position] = 1
            position += 1
            other(torch.ones(2)).sum().backward()
            holder["adam"].step()
            self.critic.weight.data.zero_()

    trainer = Trainer()
    made = Workload(step=trainer.step)
    parts = parts_of(made)
    assert {id(one) for one in parts.modules} == {id(other), id(trainer.critic)}
    assert len(parameters_of(made)) == 4
    state = snapshot(made)
    assert state.whole
    for _ in range(3):
        for _ in range(4):
            trainer.step()
        state.restore()
        assert (position, float(cache.sum())) == (0, 0)
        assert not holder["adam"].state
        assert bool(trainer.critic.weight.any())
        assert other.weight.grad is None


def test_reset_is_called_after_all_else() -> None:
    told: list[float] = []
    model = nn.Linear(1, 1)
    made = Workload(model=model, inputs=(torch.ones(1),), reset=lambda: told.append(model.weight.item()))
    was = model.weight.item()
    state = snapshot(made)
    nn.init.zeros_(model.weight)
    state.restore()
    assert told == [was]


def test_a_step_that_holds_nothing_is_not_known_as_a_whole() -> None:
    assert not snapshot(Workload(step=lambda: 1)).whole
    assert snapshot(Workload(step=lambda: 1, reset=lambda: None)).whole


def test_random_numbers_of_all_kinds_are_put_back() -> None:
    generator = torch.Generator()
    state = snapshot(Workload(step=lambda: generator))
    draws = [lambda: (random.random(), float(np.random.rand()), float(torch.rand(1, generator=generator)))] * 2
    first = (draws[0](), float(torch.rand(1)))
    state.restore()
    assert (draws[1](), float(torch.rand(1))) == first


def test_whether_a_random_number_was_drawn_is_known() -> None:
    asks = drawn()
    torch.ones(3).sum()
    assert not asks()
    torch.rand(1)
    assert asks()
    seeded(3)
    one = torch.rand(1), np.random.rand(), random.random()
    seeded(3)
    assert (torch.rand(1), np.random.rand(), random.random()) == one


def test_tensors_that_were_made_for_inference_are_written_to() -> None:
    with torch.inference_mode():
        one = torch.ones(3)
    write(one, torch.zeros(3))
    assert not bool(one.any())
