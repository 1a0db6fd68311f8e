"""The fused and the foreach form of a user's own optimizer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.treatments.ways.making import (
    Net,
    OfTheStep,
    closure,
    nn,
    restores,
    run,
    same_training,
    torch,
    training,
    untouched,
    way_of,
    why_not,
)

NAMES = ("fused-optimizer", "fused-optimizer:foreach")
KINDS = [
    (torch.optim.AdamW, {}),
    (torch.optim.Adam, {"amsgrad": True}),
    (torch.optim.SGD, {"momentum": 0.9}),
    (torch.optim.Adagrad, {}),
]


@pytest.mark.parametrize("name", NAMES)
def test_the_form_is_chosen_in_the_user_s_own_optimizer(name: str):
    workload = training()
    with way_of(name, workload).apply(workload, {}) as treated:
        assert treated.optimizer is workload.optimizer
        group = workload.optimizer.param_groups[0]
        assert (group["fused"], group["foreach"]) == ((True, False) if name == NAMES[0] else (False, True))


@pytest.mark.parametrize("stepped", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_it_is_as_before_afterwards(name: str, stepped: bool):
    workload = training()
    if stepped:
        run(workload, 2)
    restores(way_of(name, workload), workload)


@pytest.mark.parametrize(("kind", "options"), KINDS, ids=lambda one: getattr(one, "__name__", ""))
@pytest.mark.parametrize("name", NAMES)
def test_training_gets_the_same_losses_and_parameters(name: str, kind: Any, options: dict[str, Any]):
    same_training(name, lambda: training(kind=kind, **options))
    same_training(name, lambda: closure(training(kind=kind, **options)))


def test_state_that_was_there_is_updated_where_it_is():
    workload = training()
    run(workload)
    parameter = workload.model.head.weight
    step, mean = workload.optimizer.state[parameter]["step"], workload.optimizer.state[parameter]["exp_avg"]
    with way_of(NAMES[0], workload).apply(workload, {}) as treated:
        run(treated, 2)
    state = workload.optimizer.state[parameter]
    assert state["step"] is step
    assert step.item() == 3
    assert state["exp_avg"] is mean


def test_an_exception_in_a_step_leaves_no_form_behind():
    workload = training()
    with untouched(workload), pytest.raises(OfTheStep), way_of(NAMES[0], workload).apply(workload, {}):
        raise OfTheStep


class Own(torch.optim.AdamW):
    def step(self, closure=None):
        return super().step(closure)


class Inherits(torch.optim.AdamW):
    pass


def test_what_has_no_other_form_is_unfit():
    workload = training()
    assert "no optimizer" in why_not(NAMES[0], replace(workload, optimizer=None))
    assert "overrides step" in why_not(NAMES[0], training(kind=Own))
    assert "fused already" in why_not(NAMES[0], training(fused=True))
    assert "foreach form already" in why_not(NAMES[1], training(foreach=True))
    assert "no fused form" in why_not(NAMES[0], training(kind=torch.optim.RMSprop))
    assert "differentiable" in why_not(NAMES[0], training(kind=torch.optim.SGD, differentiable=True))
    assert "not an optimizer of torch.optim" in why_not(NAMES[0], replace(workload, optimizer=object()))
    assert way_of(NAMES[0], training(kind=Inherits)).as_if == ("fused-optimizer",)


def test_sparse_gradients_are_unfit():
    model = nn.Sequential(nn.Embedding(5, 8, sparse=True), Net())
    assert "sparse" in why_not(NAMES[0], training(model, torch.tensor([0, 1, 2, 3])))
