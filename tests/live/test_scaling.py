"""The scaling test: what is repeated, what is put back, and what is said of times and work that are given."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from gobrrr.analysis.pricing.dispatched import counted_live  # noqa: E402
from gobrrr.errors import UsageError  # noqa: E402
from gobrrr.model.workload import Workload  # noqa: E402
from gobrrr.observe.live.ops.scaling import follows, rebatchable, scale, scale_workload, scaled  # noqa: E402

pytestmark = pytest.mark.torch

WIDTH, BATCH = 8, 4


def timed(*times: float) -> Any:
    """A clock that runs the step and says what it was told to."""
    left = list(times)

    def time(run: Any) -> float:
        run()
        return left.pop(0)

    return time


# -- inputs


def test_what_has_the_batch_is_repeated_wherever_it_is_held() -> None:
    @dataclass
    class Batch:
        ids: Any
        name: str = "mine"
        mask: Any = None

    Pair = namedtuple("Pair", "left right")
    x, table = torch.arange(8.0).view(BATCH, 2), torch.ones(7, 2)
    inputs = [x, {"x": x, "n": 3}, Batch(x), Pair(x, table), (table, torch.tensor(1.0)), nn.Parameter(x.clone())]
    got = scaled(inputs, 3)
    thrice = torch.cat((x, x, x))
    assert torch.equal(got[0], thrice)
    assert torch.equal(got[1]["x"], thrice)
    assert got[1]["n"] == 3
    assert torch.equal(got[2].ids, thrice)
    assert (got[2].name, got[2].mask) == ("mine", None)
    assert torch.equal(got[3].left, thrice)
    assert got[3].right is table
    assert got[4][0] is table
    assert got[5] is inputs[5]
    assert scaled(inputs, 1) is inputs


def test_a_tensor_that_wants_a_gradient_still_does() -> None:
    (got,) = scaled([torch.ones(2, 2, requires_grad=True)], 2)
    assert got.is_leaf
    assert got.requires_grad


def test_what_can_t_be_multiplied_is_said() -> None:
    assert rebatchable(Workload(step=print, inputs=[torch.ones(2, 2)])) == ""
    assert "without inputs" in rebatchable(Workload(step=print))
    assert "no tensor" in rebatchable(Workload(step=print, inputs=[3, torch.tensor(1.0)]))
    with pytest.raises(UsageError, match="without inputs"):
        scale_workload(Workload(step=print))


# -- the test itself


def test_points_hold_the_work_that_was_counted_at_each_size() -> None:
    layer, x = nn.Linear(WIDTH, WIDTH, bias=False), torch.randn(BATCH, WIDTH)
    found = scale(layer, [x], time=timed(10.0, 20.0, 40.0), count=counted_live)
    flop = 2.0 * BATCH * WIDTH * WIDTH
    assert found.points == ((1.0, 10.0, flop), (2.0, 20.0, 2 * flop), (4.0, 40.0, 4 * flop))
    assert found.note.startswith("time grew 4.00-fold while FLOPs grew 4.00-fold and bytes ")
    assert found.note.endswith("time grows with the work")


def test_a_training_step_leaves_its_model_and_optimizer_as_they_were() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Dropout(0.5), nn.Linear(WIDTH, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100)

    def step(x: Any) -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    x = torch.randn(BATCH, WIDTH)
    step(x)
    schedule.step()
    before = [one.clone() for one in model.state_dict().values()]
    gradients = [(one.grad, one.grad.clone()) for one in model.parameters()]
    state = [{name: value.clone() for name, value in one.items()} for one in optimizer.state.values()]
    number = torch.get_rng_state()
    found = scale_workload(Workload(step=step, inputs=[x], model=model, optimizer=optimizer), count=counted_live)
    assert [factor for factor, _, _ in found.points] == [1.0, 2.0, 4.0]
    assert all(torch.equal(one, other) for one, other in zip(model.state_dict().values(), before, strict=True))
    for parameter, (gradient, values) in zip(model.parameters(), gradients, strict=True):
        assert parameter.grad is gradient
        assert torch.equal(gradient, values)
    for one, other in zip(optimizer.state.values(), state, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in other)
    assert torch.equal(torch.get_rng_state(), number)


def test_a_size_that_does_not_fit_ends_the_test_at_the_one_before() -> None:
    def step(x: Any) -> None:
        if len(x) > 2 * BATCH:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    found = scale(step, [torch.ones(BATCH, 2)], time=timed(1.0, 2.0))
    assert [factor for factor, _, _ in found.points] == [1.0, 2.0]
    assert found.note.endswith("4 times the batch does not fit into memory")


def test_a_step_that_takes_one_size_alone_is_said_to() -> None:
    found = scale(lambda x: x.view(BATCH, 2), [torch.ones(BATCH, 2)], time=timed(1.0))
    assert len(found.points) == 1
    assert "the step refuses 2 times the batch: RuntimeError" in found.note


def test_an_exception_at_the_program_s_own_size_passes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        scale(lambda x: 1 // 0, [torch.ones(BATCH, 2)], time=timed(1.0))


# -- what follows

ONE = (1.0, 10.0, 100.0)


@pytest.mark.parametrize(
    ("ns", "flop", "bytes_", "said"),
    [
        (10.5, 400.0, 4.0, "overhead-bound"),
        (40.0, 400.0, 4.0, "time grows with the work"),
        (38.0, 400.0, 1.02, "time grows with the work"),
        (10.5, 400.0, 1.02, "weights that are read"),  # the trap
        (14.0, 400.0, 1.5, "weights that are read"),  # time follows the bytes
        (10.5, 400.0, None, "overhead-bound"),
        (25.0, 400.0, 4.0, "in part"),
        (10.5, 101.0, 1.0, "does not grow with these inputs"),
        (10.5, None, None, "not counted"),
    ],
)
def test_what_is_said(ns: float, flop: float | None, bytes_: float | None, said: str) -> None:
    start = ONE if flop is not None else (1.0, 10.0, None)
    found = follows([start, (4.0, ns, flop)], [1.0 if bytes_ is not None else None, bytes_])
    assert said in found


def test_the_trap_is_counted_as_it_is() -> None:
    """[B, D] x [D, D] with B far below D: four times the FLOPs, the same bytes but for a hundredth."""
    layer, x = nn.Linear(1024, 1024, bias=False), torch.randn(1, 1024)
    with torch.no_grad():
        found = scale(layer, [x], time=timed(10.0, 10.0, 10.0), count=counted_live)
    assert "FLOPs grew 4.00-fold and bytes 1.01-fold" in found.note
    assert "overhead here" in found.note
    assert "overhead-bound" not in found.note
