"""A step alone: its model and optimizer are found, and what is said where they are not is true."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gobrrr.model.workload import Workload  # noqa: E402
from gobrrr.trials.candidates import ways_of  # noqa: E402
from gobrrr.trials.completing import completed  # noqa: E402

pytestmark = pytest.mark.torch


def trains(*, teacher: bool = False) -> tuple[Callable[[], Any], Any, Any]:
    """A step that trains one of its models, in a function that it calls."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    other = torch.nn.Linear(4, 4) if teacher else None
    adam = torch.optim.Adam(net.parameters())
    criterion, x = torch.nn.MSELoss(), torch.zeros(2, 4)

    def inner() -> Any:
        adam.zero_grad()
        loss = criterion(net(x), x if other is None else other(x))
        loss.backward()
        adam.step()
        return loss

    return lambda: inner(), net, adam


def why_not(workload: Workload) -> dict[str, str]:
    return {one.name: one.why for one in ways_of(workload)[1]}


def test_the_model_and_the_optimizer_of_a_step_alone_are_found() -> None:
    step, net, adam = trains()
    found, notes = completed(Workload(step=step))
    assert found.model is net  # a loss without parameters is no model
    assert found.optimizer is adam
    assert notes == [
        "found through the step's code: its model (net) and its optimizer (adam); a gobrrr.Workload names them"
    ]
    assert "fused-optimizer:foreach" not in why_not(found)  # torch's Adam takes it by itself: a way, or said so
    said = " ".join(why_not(found).values())
    assert "which model" not in said
    assert "which optimizer" not in said
    assert "no backward" not in said


def test_of_two_models_none_is_taken_and_nothing_is_said_of_a_model_that_is_not_known() -> None:
    step, _, adam = trains(teacher=True)
    found, notes = completed(Workload(step=step))
    assert (found.model, found.optimizer) == (None, adam)
    assert notes[0].startswith("the step's code reaches 2 models (net, other): which one is the step's is not known")
    said = why_not(found)
    for way in ("channels-last", "checkpoint", "pad-dimensions", "sdpa", "compile:regional"):
        assert said[way] == "which model the step runs is not known: return a gobrrr.Workload with model="


def test_a_step_that_leads_to_nothing_is_not_said_to_have_nothing() -> None:
    found, notes = completed(Workload(step=torch.zeros))
    assert (found.model, found.optimizer, notes) == (None, None, [])
    said = why_not(found)
    assert (
        said["fused-optimizer"]
        == "which optimizer the step runs is not known: return a gobrrr.Workload with optimizer="
    )


def test_what_is_named_is_left_as_it_is() -> None:
    step, net, _ = trains()
    given = Workload(step=step, model=net)
    assert completed(given) == (given, [])
