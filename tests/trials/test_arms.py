"""Ways stacked on a workload, entered and left many times; and what a step is made of."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import gobrrr  # noqa: E402
from gobrrr import api  # noqa: E402
from gobrrr.errors import UsageError  # noqa: E402
from gobrrr.model.workload import Workload  # noqa: E402
from gobrrr.observe.targets import Batches, step_of  # noqa: E402
from gobrrr.trials.arms import Arm, NotRestored, ahead  # noqa: E402
from tests.trials import fakes  # noqa: E402
from tests.trials.fakes import one_thread, way  # noqa: E402, F401

pytestmark = pytest.mark.torch


def told(said: list[str], name: str, fails: bool = False) -> Any:
    def apply(workload: Workload, kept: dict[str, Any]) -> Any:
        kept["times"] = kept.get("times", 0) + 1
        said.append(f"+{name}{kept['times']}")
        try:
            yield replace(workload, name=workload.name + name)
        finally:
            said.append(f"-{name}")
            if fails:
                raise ValueError(name)

    return apply


def test_ways_are_stacked_by_rank_and_each_keeps_a_dictionary() -> None:
    said: list[str] = []
    ways = [way(told(said, "c"), "c", rank=50), way(told(said, "a"), "a", rank=0), way(told(said, "b"), "b", rank=50)]
    arm = Arm(Workload(step=lambda: 7), ways)
    assert arm.name == "a + c + b"
    for _ in range(2):
        with arm.entered() as entered:
            assert entered.call() == 7
            assert [one.name for one in entered.layers] == ["", "a", "ac", "acb"]
    assert said == ["+a1", "+c1", "+b1", "-b", "-c", "-a", "+a2", "+c2", "+b2", "-b", "-c", "-a"]
    arm.close()
    assert not arm.kept


def test_all_ways_are_left_after_an_exception_and_where_one_fails_to() -> None:
    said: list[str] = []
    arm = Arm(Workload(step=lambda: 7), [way(told(said, "a"), "a"), way(told(said, "b", fails=True), "b", rank=20)])
    with pytest.raises(NotRestored, match=r"^b could not be undone: ValueError: b$"), arm.entered():
        pass
    assert said[-2:] == ["-b", "-a"]
    sound = Arm(Workload(step=lambda: 7), [way(told(said, "a"), "a")])
    with pytest.raises(KeyError, match="mine"), sound.entered():
        raise KeyError("mine")
    assert said[-1] == "-a"


def test_a_way_that_can_not_be_entered_leaves_those_below() -> None:
    said: list[str] = []
    bad = way(fakes.raises(ValueError("no"), where="enter"), "bad", rank=90)
    arm = Arm(Workload(step=lambda: 7), [bad, way(told(said, "a"), "a")])
    with pytest.raises(ValueError, match="no"), arm.entered():
        pass
    assert said == ["+a1", "-a"]


def test_a_loader_goes_on_where_it_was_in_this_arm() -> None:
    arm = Arm(Workload(step=lambda x: x, loader=[1, 2, 3]), ())
    got = []
    for fresh in (False, False, True, False):
        with arm.entered(fresh=fresh) as entered:
            got.append([entered.call(), entered.call()])
    assert got == [[1, 2], [3, 1], [1, 2], [2, 3]]


def test_how_much_a_loader_holds_ready_is_known() -> None:
    data = torch.utils.data.TensorDataset(torch.ones(4))
    assert ahead(torch.utils.data.DataLoader(data, num_workers=1, prefetch_factor=4)) == 4
    assert ahead(torch.utils.data.DataLoader(data)) == 0
    assert ahead([1]) == 0


# -- the step of a Workload


def forward(model: Any, *inputs: Any) -> Any:
    with torch.no_grad():
        return model(*inputs)


def test_a_model_a_loss_and_an_optimizer_are_a_training_step() -> None:
    made, twin = fakes.training(), fakes.training()
    run, arguments = step_of(made, forward)
    losses = [run(*arguments) for _ in range(3)]
    for loss in losses:
        own = twin.loss(twin.model(*twin.inputs), *twin.targets)  # type: ignore[misc]
        own.backward()
        twin.optimizer.step()
        twin.optimizer.zero_grad()
        assert torch.equal(loss, own)
    assert all(map(torch.equal, made.model.parameters(), twin.model.parameters()))
    assert all(one.grad is None for one in made.model.parameters())


def test_without_an_optimizer_the_gradients_are_dropped() -> None:
    made = fakes.training(optimizer=None)
    before = fakes.state_of(made)
    seen: list[Any] = []
    run, arguments = step_of(made, forward, seen=lambda _: seen.append(made.model[1].weight.grad.norm()))
    run(*arguments)
    assert seen[0] > 0
    assert fakes.same(before, fakes.state_of(made))


@pytest.mark.parametrize("kind", ["step", "loss", "model"])
def test_what_is_around_is_entered_around_the_step_or_the_forward(kind: str) -> None:
    where: list[str] = []

    @contextmanager
    def noted() -> Any:
        where.append("in")
        yield
        where.append("out")

    model = nn.Linear(2, 2)
    model.register_forward_hook(lambda *_: where.append("forward"))
    model.weight.register_hook(lambda grad: where.append("backward"))
    options: dict[str, Any] = {
        "step": {"step": lambda x: model(x).sum().backward()},
        "loss": {"model": model, "loss": lambda y: y.sum()},
        "model": {"model": model},
    }[kind]
    run, arguments = step_of(Workload(inputs=(torch.ones(2),), around=(noted, noted), **options), forward)
    run(*arguments)
    inner = {"step": ["forward", "backward"], "loss": ["forward"], "model": ["forward"]}[kind]
    assert where == ["in", "in", *inner, "out", "out", *(["backward"] if kind == "loss" else [])]


def test_batches_begin_again_and_are_split_between_model_and_loss() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(6.0).view(3, 2), torch.tensor([0, 1, 0]))
    seen: list[Any] = []

    def loss(output: Any, *targets: Any) -> Any:
        seen.append(targets)
        return output.sum()

    made = Workload(model=nn.Linear(2, 2), loss=loss, loader=torch.utils.data.DataLoader(data))
    run, arguments = step_of(made, forward)
    for _ in range(4):
        run(*arguments)
    assert [int(one[0]) for one in seen] == [0, 1, 0, 0]
    with pytest.raises(UsageError, match="no batch"):
        Batches([]).next()
    assert Batches([{"x": 1}]).next() == ({"x": 1},)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"loader": [1], "inputs": (1,)}, "not both"),
        ({"loader": iter([1])}, "begin again"),
        ({"loader": 3}, "go through"),
        ({"targets": (1,)}, "has none"),
        ({"loss": 3}, "loss is something to call"),
        ({"around": (3,)}, "around is a tuple"),
        ({"around": 3}, "around is a tuple"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        step_of(Workload(model=nn.Linear(1, 1), **wrong), forward)


def test_a_loss_that_is_no_tensor_is_refused() -> None:
    run, arguments = step_of(fakes.training(loss=lambda *_: 3.0), forward)
    with pytest.raises(UsageError, match="returned float"):
        run(*arguments)


def test_a_prediction_counts_model_loss_and_optimizer() -> None:
    made = fakes.training()
    before = fakes.state_of(made)
    names = {one.call.name for one in api.record(made).calls}
    assert any("cross_entropy" in name or "nll_loss" in name for name in names), names
    assert any("addmm" in name or "linear" in name for name in names)
    assert fakes.same(before, fakes.state_of(made))
    with pytest.raises(UsageError, match="one batch as inputs"):
        gobrrr.count(Workload(model=made.model, loader=[1]))


def test_a_step_that_is_called_wrongly_is_the_users_matter_and_no_fault_of_ours() -> None:
    from gobrrr.doors.live import users_error

    run, arguments = step_of(fakes.training(inputs=()), forward)
    with pytest.raises(TypeError) as caught:
        run(*arguments)
    assert "when it was called" in (users_error("mine", caught.value) or "")


def test_scaling_multiplies_targets_with_inputs_and_refuses_a_loader() -> None:
    from gobrrr.observe.live.ops.scaling import rebatchable, scale_workload

    made = fakes.training()
    before = fakes.state_of(made)
    found = scale_workload(made)
    assert [one[0] for one in found.points] == [1, 2, 4], found.note
    assert fakes.same(before, fakes.state_of(made))
    assert "loader" in rebatchable(Workload(model=made.model, loader=[1]))
