"""A diagnosis leaves what the step changes as it was; where it can't, the answer says so."""

from __future__ import annotations

import gc
import random
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

import gobrrr  # noqa: E402
from gobrrr.doors import live  # noqa: E402
from gobrrr.observe.live.options import WatchOptions  # noqa: E402
from gobrrr.observe.live.state import kept  # noqa: E402
from tests.trials.fakes import one_thread  # noqa: E402, F401

FOUND_WORDS = "put back"
FEW = WatchOptions(warmup=1, most_warmup=1, window=2, profiled=1)


class Training:
    """A model, its optimizer and schedule, and a function that runs one step with them."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=1, gamma=0.9)
        self.x = torch.randn(4, 8)
        self.losses: list[float] = []

    def step(self) -> None:
        """One step of training."""
        loss = self.model(self.x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.losses.append(float(loss.detach()))

    def state(self) -> Any:
        """Whatever a step changes, the random numbers that come next among it."""
        numbers = (torch.get_rng_state().clone(), random.getstate(), np.random.get_state()[1].tolist())
        held = {name: one.clone() for name, one in self.model.state_dict().items()}
        gradients = [None if one.grad is None else one.grad.clone() for one in self.model.parameters()]
        optimizer = {key: {n: v.clone() for n, v in one.items()} for key, one in self.optimizer.state.items()}
        lr = self.optimizer.param_groups[0]["lr"]
        return held, gradients, optimizer, lr, self.schedule.state_dict(), list(self.losses), numbers


def same(left: Any, right: Any) -> bool:
    """Whether two nested things are equal, tensors included."""
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(one, right[key]) for key, one in left.items())
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def profile(target: Any, *arguments: Any, **options: Any) -> Any:
    return live.profile_of(target, arguments, {}, options=FEW, **options)


def as_callable(one: Training) -> Any:
    return lambda: one.step()


def as_workload(one: Training) -> Any:
    return gobrrr.Workload(model=one.model, step=one.step, optimizer=one.optimizer)


def as_factory(one: Training) -> Any:
    @cache
    def make() -> gobrrr.Workload:
        return gobrrr.Workload(step=one.step)

    return make


@pytest.mark.parametrize("ran", [0, 2])
@pytest.mark.parametrize("made", [lambda one: one.step, as_callable, as_workload, as_factory])
def test_model_optimizer_schedule_and_random_numbers_are_as_they_were(made: Any, ran: int) -> None:
    one = Training()
    for _ in range(ran):
        one.step()
    before = one.state()
    found = profile(made(one))
    assert same(before, one.state())
    assert not any(FOUND_WORDS in note for note in found.notes)


def test_what_a_callable_is_called_with_is_put_back() -> None:
    one = Training()
    before = one.state()
    found = profile(Training.step, one)
    assert same(before, one.state())
    assert not any(FOUND_WORDS in note for note in found.notes)


def test_after_an_exception_as_well_and_it_passes_through() -> None:
    one = Training()
    before = one.state()

    def step() -> None:
        one.step()
        if len(one.losses) == 4:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        profile(step)
    assert same(before, one.state())


def test_a_step_of_which_nothing_is_reached_is_said_to_change_what_it_changes() -> None:
    assert kept.NOT_REACHED in profile(lambda: torch.ones(4).sum()).notes


REGISTRY: Any = type("Registry", (), {})


def test_what_the_step_gets_at_by_other_ways_is_said() -> None:
    REGISTRY.hidden = one = Training()  # an attribute of a class: nothing that is looked through
    weight, seen = one.model[0].weight.detach().clone(), torch.ones(8)
    gc.collect()

    def step() -> None:
        seen.add_(1)
        REGISTRY.hidden.step()

    notes = [note for note in profile(step).notes if FOUND_WORDS in note]
    assert seen.tolist() == [1.0] * 8
    assert not torch.equal(weight, one.model[0].weight)
    assert len(notes) == 1
    assert re.match(r"not put back: \d+ changed tensors of .*(Linear|AdamW|BatchNorm1d)", notes[0])


def test_iterators_go_on_and_the_answer_says_so() -> None:
    batches, model = iter([torch.ones(2, 4)] * 99), torch.nn.Linear(4, 4)
    found = profile(lambda: model(next(batches)))
    assert any("takes items from batches: an iterator can't be put back" in note for note in found.notes)


def test_a_state_that_the_hosts_memory_does_not_hold_twice_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Training()
    size = sum(t.numel() * t.element_size() for t in (*one.model.parameters(), *one.model.buffers(), one.x))
    monkeypatch.setattr(kept, "available_bytes", lambda: 2 * size)
    assert not any(FOUND_WORDS in note for note in profile(one.step).notes)
    one = Training()
    monkeypatch.setattr(kept, "available_bytes", lambda: 2 * size - 2)
    weight, numbers = one.model[0].weight.detach().clone(), torch.get_rng_state()
    notes = [note for note in profile(one.step).notes if FOUND_WORDS in note]
    assert len(notes) == 1
    assert "a copy of it takes" in notes[0]
    assert not torch.equal(weight, one.model[0].weight)
    assert torch.equal(numbers, torch.get_rng_state())


def test_a_reset_that_fails_costs_a_note() -> None:
    def reset() -> None:
        raise ValueError("the cache is gone")

    found = profile(gobrrr.Workload(step=lambda: torch.ones(2).sum(), reset=reset))
    assert any("not all that the step changed is put back: ValueError: the cache is gone" in n for n in found.notes)


def test_a_step_of_a_file_is_loaded_for_the_call_alone(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("import torch\nw = torch.ones(4)\ndef step():\n    w.add_(torch.rand(4))\n")
    numbers = torch.get_rng_state()
    found = profile(f"{file}:step")
    assert torch.equal(numbers, torch.get_rng_state())
    assert not any(FOUND_WORDS in note for note in found.notes)


def test_how_often_a_step_runs_is_as_the_documents_say() -> None:
    most = 1 + WatchOptions().most  # a callable is called once to see what it is
    assert f"some 25 times, {most} at most" in " ".join((gobrrr.diagnose.__doc__ or "").split())
    assert f"some 25 times, {most} at most" in " ".join(Path("docs/live.md").read_text().split())

    class Runs:
        total = 0  # not reached, so not put back

    def step() -> None:
        Runs.total += 1
        torch.ones(64, 64).mm(torch.ones(64, 64))

    live.profile_of(step, (), {})
    assert 20 <= Runs.total <= most


def test_a_mode_of_the_programs_sees_no_copy() -> None:
    from tests.live.test_modes import Dispatches

    class Runs:
        total = 0

    one = Training()

    def step() -> None:
        Runs.total += 1
        one.step()

    with Dispatches() as seen:
        profile(step)
    with Dispatches() as alone:
        for _ in range(Runs.total):
            one.step()
    assert seen.seen == alone.seen
