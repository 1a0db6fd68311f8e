"""What a snapshot puts back, in place: addresses that a captured graph holds go on being right."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from gobrrr.model.workload import Workload  # noqa: E402
from gobrrr.observe.targets import step_of  # noqa: E402
from gobrrr.treating.parts import parameters_of, parts_of  # noqa: E402
from gobrrr.treating.state import drawn, seeded, snapshot, write  # noqa: E402
from tests.treating import fakes  # noqa: E402
from tests.treating.fakes import one_thread  # noqa: E402, F401

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
