"""What is compared of both arms, against what, and what is said where nothing can be."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from gobrrr.model.treated import Numerics  # noqa: E402
from gobrrr.model.workload import Workload  # noqa: E402
from gobrrr.observe.live.state.snapshot import snapshot  # noqa: E402
from gobrrr.observe.targets import step_of  # noqa: E402
from gobrrr.treatments import dataloader_workers, larger_batch  # noqa: E402
from gobrrr.treatments.framework.way import TreatmentWay  # noqa: E402
from gobrrr.trials import judging, numerics  # noqa: E402
from gobrrr.trials.arms import Arm  # noqa: E402
from gobrrr.trials.observed import named_leaves, sampled  # noqa: E402
from gobrrr.trials.reference import reference  # noqa: E402
from gobrrr.trials.rounding import roundoff_of  # noqa: E402
from tests.trials import fakes  # noqa: E402
from tests.trials.fakes import one_thread, way  # noqa: E402, F401

pytestmark = pytest.mark.torch


def fast(workload: Workload) -> Workload:
    for one in workload.model.modules():
        if isinstance(one, fakes.Slow):
            one.naps = 0.0
    return workload


def nothing(workload: Workload, kept: Any) -> Any:
    yield workload


def compared(workload: Workload, apply: Any = nothing, **options: Any) -> Numerics:
    step, arguments = step_of(workload, lambda model, *x: model(*x))
    step(*arguments)
    tried = way(apply, **options)
    return numerics.compare(workload, Arm(workload, ()), Arm(workload, (tried,)), tried, snapshot(workload))


def outputs(make: Callable[[Any], Any], **options: Any) -> Workload:
    """A model whose output is made of one tensor."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 128)

        def forward(self, x: Any) -> Any:
            return make(self.inner(x))

    torch.manual_seed(0)
    return Workload(model=Model(), inputs=(torch.randn(4, 8),), **options)


def test_training_is_held_against_float64_and_every_quantity_is_there() -> None:
    found = compared(fast(fakes.training()), numerics="none")
    assert (found.ok, found.reference, found.steps, found.parameters_change) == (True, "float64", 3, True)
    for one in (found.output, found.loss, found.gradients):
        assert one is not None
        assert one.treated == one.baseline
        assert 0 < one.baseline < 1e-5


def test_autocast_may_be_off_by_what_its_type_rounds() -> None:
    def autocast(workload: Workload, kept: Any) -> Any:
        yield replace(workload, around=(lambda: torch.autocast("cpu", dtype=torch.bfloat16),))

    for made in (fast(fakes.training()), fast(fakes.closure())):
        found = compared(made, autocast)
        assert found.ok, found
        errors = found.loss if made.step else found.output
        assert errors.treated > 1e-5
        assert errors.allowed >= 16 * 2**-8
    assert compared(fast(fakes.training()), autocast, numerics="none").ok is False


def test_a_wrong_step_of_the_optimizer_is_found() -> None:
    def faster(workload: Workload, kept: Any) -> Any:
        group = workload.optimizer.param_groups[0]
        group["lr"] *= 1.1
        yield workload
        group["lr"] /= 1.1

    for made in (fakes.training(), fakes.closure(), fakes.closure(returns=False)):
        found = compared(fast(made), faster)
        assert (found.ok, found.parameters_change) == (False, True), found


@pytest.mark.parametrize(
    "make",
    [
        lambda y: {"a": y, "b": [y * 2, None, "text"]},
        lambda y: (y, (y.sum(), 3)),
        lambda y: Pair(y, 2.5),
        lambda y: y.argmax(-1),
        lambda y: y.to(torch.complex64),
        lambda y: y.to(torch.bfloat16),
        lambda y: y.masked_fill(y > 0, -math.inf),
        lambda y: float(y.detach().sum()),
    ],
)
def test_outputs_of_any_form_are_compared(make: Any) -> None:
    assert compared(outputs(make), numerics="none").ok
    found = compared(outputs(make), fakes.rounds(1), numerics="none")
    assert found.ok is False, found


@dataclass
class Pair:
    left: Any
    right: float


def test_whole_numbers_that_differ_are_a_share() -> None:
    assert judging.error(torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 3, 5])) == 0.25
    assert judging.error(torch.tensor([1.0, math.nan]), torch.tensor([1.0, math.nan])) == 0
    assert judging.error(torch.tensor([1.0, math.nan]), torch.tensor([1.0, 2.0])) == math.inf
    assert judging.error(torch.tensor([1.0]), torch.tensor([0.0])) == math.inf
    assert judging.error(torch.tensor([3.0]), torch.tensor([0.0]), torch.tensor([2.0])) == 1.5


def test_a_loss_that_is_not_finite_before_can_not_be_compared() -> None:
    found = compared(fast(fakes.training(loss=lambda output, _: output.sum() * math.nan)))
    assert found.ok is None
    assert "finite" in found.why


def test_a_loss_that_is_not_finite_any_more_is_found() -> None:
    def broken(workload: Workload, kept: Any) -> Any:
        yield replace(workload, loss=lambda output, target: workload.loss(output, target) * math.inf)  # type: ignore[misc]

    for kind in ("none", "rounding", "statistics"):
        assert compared(fast(fakes.training()), broken, numerics=kind).ok is False


def test_an_output_of_another_shape_is_found() -> None:
    def shorter(workload: Workload, kept: Any) -> Any:
        yield replace(workload, step=lambda x: workload.model(x).detach()[:2])

    found = compared(fast(fakes.training(loss=None, optimizer=None, targets=())), shorter)
    assert found.ok is False
    assert "shape" in found.why


def dropout() -> Workload:
    made = fakes.training()
    return replace(made, model=nn.Sequential(nn.Linear(16, 256), nn.Dropout(), nn.Linear(256, 4)), optimizer=None)


def test_the_same_random_numbers_are_held_against_themselves() -> None:
    found = compared(dropout(), numerics="none")
    assert (found.ok, found.reference, found.why) == (True, "baseline", "")
    found = compared(dropout(), fakes.rounds(3), numerics="none")
    assert found.ok is False


def test_other_random_numbers_are_compared_by_their_means_and_it_says_so() -> None:
    def draws(workload: Workload, kept: Any) -> Any:
        torch.rand(1)
        yield workload

    found = compared(dropout(), draws)
    assert found.ok
    assert "other random numbers" in found.why

    def wrong(workload: Workload, kept: Any) -> Any:
        torch.rand(1)
        yield replace(workload, loss=lambda output, target: 2 * workload.loss(output, target))  # type: ignore[misc]

    assert compared(dropout(), wrong).ok is False


def test_a_step_that_differs_from_itself_can_not_be_compared() -> None:
    count = iter(range(1, 1000))
    found = compared(Workload(step=lambda: torch.full((3,), float(next(count)))))
    assert (found.ok, found.reference) == (None, "none")
    assert "two runs of the step as it is differ" in found.why


def test_a_step_that_gives_nothing_says_that_nothing_was_compared() -> None:
    found = compared(Workload(step=lambda: None))
    assert (found.ok, found.reference, found.parameters_change) == (None, "none", None)
    assert "nothing to compare" in found.why


def test_a_cache_that_goes_on_is_put_back_between_the_arms() -> None:
    cache, model, position = torch.zeros(8, 4), nn.Linear(4, 4), 0

    def step() -> Any:
        nonlocal position
        with torch.no_grad():
            cache[position] = model(cache[position - 1] + 1)
        position += 1
        return cache[: position + 1].clone()

    assert compared(Workload(model=model, step=step), numerics="none").ok


def test_a_model_that_can_not_be_run_in_float64_is_held_against_itself() -> None:
    made = outputs(lambda y: y @ torch.ones(128, 2))
    assert compared(made).reference == "baseline"
    low = outputs(lambda y: y.sum(-1, dtype={torch.bfloat16: torch.float32, torch.float32: torch.float32}[y.dtype]))
    low.model.bfloat16()
    low = replace(low, inputs=tuple(one.bfloat16() for one in low.inputs))
    assert compared(low).reference == "float32"


def test_the_reference_leaves_the_workload_and_the_random_numbers_alone() -> None:
    made = fast(fakes.training())
    step, arguments = step_of(made, lambda model, *x: model(*x))
    step(*arguments)
    before = fakes.state_of(made)
    with reference(made, torch.float64, lambda _: None) as (call, twin):
        assert twin.model[1].weight.dtype == torch.float64
        torch.rand(1)
        loss = call()
        assert loss.dtype == torch.float64
        state = twin.optimizer.state[twin.model[1].weight]
        assert (state["exp_avg"].dtype, float(state["step"])) == (torch.float64, 2)
    assert fakes.same(before, fakes.state_of(made))


def test_the_lowest_type_is_seen_in_autocast_and_in_what_a_way_says() -> None:
    made = fakes.training()
    assert roundoff_of((made,), ()) == 2**-24
    low = replace(made, around=(lambda: torch.autocast("cpu", dtype=torch.bfloat16),))
    assert roundoff_of((low, made), ()) == 2**-8
    assert roundoff_of((made,), (way(nothing, code="model.to(torch.bfloat16)"),)) == 2**-8
    assert roundoff_of((made,), (way(nothing, code="torch.set_float32_matmul_precision('high')"),)) == 2**-11


def test_a_large_tensor_is_sampled_evenly_and_copied() -> None:
    big = torch.arange(3_000_000.0)
    got = sampled(big)
    assert got.numel() <= 1 << 18
    assert float(got[-1]) > 2.9e6
    small = torch.ones(3, dtype=torch.float64)
    copied = sampled(small)
    small.zero_()
    assert bool(copied.all())
    assert dict(named_leaves([1, {"a": None}])).keys() == {".0"}


def test_an_ill_conditioned_loss_is_no_fault_of_a_way() -> None:
    """A sum that cancels: any other rounding changes it by much more than a roundoff."""

    def reorders(workload: Workload, kept: Any) -> Any:
        model = workload.model

        def step(x: Any) -> Any:
            y = model.inner(x)
            return (y - 1e4).flip(0).sum() + 1e4 * y.numel()

        yield replace(workload, step=step)

    made = outputs(lambda y: y)
    model = made.model
    closed = replace(made, step=lambda x: (model.inner(x) - 1e4).sum() + 1e4 * 512)
    assert compared(closed, reorders).ok is not False


def test_a_change_that_is_small_beside_its_value_is_rounded_as_the_value_is() -> None:
    """The same update computed in another order, of parameters a million times as large."""

    def otherwise(workload: Workload, kept: Any) -> Any:
        def step() -> Any:
            with torch.no_grad():
                workload.model.weight.add_(3e-4).add_(7e-4)
            return None

        yield replace(workload, step=step)

    model = nn.Linear(8, 8)
    nn.init.constant_(model.weight, 900.0)

    def step() -> None:
        with torch.no_grad():
            model.weight.add_(1e-3)

    assert compared(Workload(model=model, step=step), otherwise, numerics="none").ok


def summing(size: int) -> tuple[Workload, Any]:
    """A step of the user's own that sums, and a way that sums in another order, with less care; `off` is an error."""
    torch.manual_seed(0)
    held = torch.rand(size)

    def other(off: float) -> Any:
        def apply(workload: Workload, kept: Any) -> Any:
            def step() -> Any:
                total = torch.zeros(())
                for one in held.view(-1, 100).sum(0):
                    total = total + one
                return total * (1 + 1.5e-5 + off)

            yield replace(workload, step=step)

        return apply

    return Workload(step=lambda: held.sum()), other


def test_a_sum_of_many_may_be_off_by_the_root_of_their_number_and_no_more() -> None:
    made, other = summing(160_000)
    assert compared_step(made, other(0.0)).ok
    assert compared_step(made, other(1e-3)).ok is False
    few, other = summing(100)
    assert compared_step(few, other(0.0)).ok is False
    huge, other = summing(100 * 2**18)
    assert compared_step(huge, other(1e-3)).ok is False


def compared_step(made: Workload, apply: Any, **options: Any) -> Numerics:
    tried = way(apply, **options)
    return numerics.compare(made, Arm(made, ()), Arm(made, (tried,)), tried, snapshot(made))


def test_a_step_that_sets_its_seed_itself_is_not_unsafe_for_other_random_numbers() -> None:
    held = torch.rand(400)

    def step() -> Any:
        torch.manual_seed(1)
        return (held + torch.rand(400)).sum()

    def draws(workload: Workload, kept: Any) -> Any:
        def other() -> Any:
            torch.manual_seed(1)
            torch.rand(1)
            return (held + torch.rand(400)).sum()

        yield replace(workload, step=other)

    found = compared_step(Workload(step=step), draws)
    assert found.ok is None
    assert "sets its own seed" in found.why

    def seeds_for_nothing() -> Any:
        torch.manual_seed(1)
        return held.sum()

    def wrong(workload: Workload, kept: Any) -> Any:
        yield replace(workload, step=lambda: seeds_for_nothing() * 1.001)

    assert compared_step(Workload(step=seeds_for_nothing), wrong).ok is False


def test_a_step_that_keeps_what_is_not_known_is_told_what_to_do() -> None:
    numbers = iter(range(1, 99))
    found = compared_step(Workload(step=lambda: torch.full((4,), float(next(numbers)))), nothing)
    assert found.ok is None
    assert "give Workload(reset=...)" in found.why


def test_a_step_that_differs_by_itself_is_said_to() -> None:
    dice = random.SystemRandom()

    def step() -> Any:
        return torch.tensor([dice.gauss(1, 0.02) for _ in range(5000)])

    found = compared_step(Workload(step=step), nothing)
    assert found.ok
    assert "two runs of the step as it is differ by 0.03 by themselves" in found.why


def test_slow_steps_are_compared_in_few_runs() -> None:
    calls = [0]
    made = fast(fakes.training())

    def counted(*given: Any) -> Any:
        calls[0] += 1

    made.model.register_forward_hook(counted)
    tried = way(nothing)
    state = snapshot(made)
    found = numerics.compare(made, Arm(made, ()), Arm(made, (tried,)), tried, state, steps=2, few=True)
    assert found.ok
    assert found.reference == "baseline"
    assert "few runs" in found.why
    assert calls[0] == 6
    tried = way(fakes.rounds(3))
    assert numerics.compare(made, Arm(made, ()), Arm(made, (tried,)), tried, state, steps=2, few=True).ok is False


class Random(torch.utils.data.Dataset):
    """Samples that are drawn when they are asked for, as augmentations do; `fixed`: the same ones each time."""

    def __init__(self, fixed: bool) -> None:
        self.rows = torch.randn(64, 16) if fixed else None

    def __len__(self) -> int:
        return 64

    def __getitem__(self, at: int) -> Any:
        return (torch.randn(16) if self.rows is None else self.rows[at]), at % 4


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_shuffled_loader_with_workers_is_not_unsafe(fixed: bool, dropout: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Dropout(dropout), nn.Linear(16, 4))
    loader = torch.utils.data.DataLoader(Random(fixed), batch_size=8, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    made = Workload(model=model, loss=nn.functional.cross_entropy, optimizer=optimizer, loader=loader)
    (tried,) = dataloader_workers.ways(made)
    before, after = Arm(made, ()), Arm(made, (tried,))
    state = snapshot(made)
    with after.entered() as entered:  # the workers are there: a later epoch must begin as the first one does
        entered.call()
    found = numerics.compare(made, before, after, tried, state)
    after.close()
    assert found.ok, found
    assert ("means" in found.why) == (not fixed)
    if fixed:
        assert found.loss.treated == found.loss.baseline


class Plain(nn.Module):
    """Rows on their own, unless `mixes`: then each is a share of all of them."""

    def __init__(self, mixes: bool = False, noisy: bool = False) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 256)
        self.mixes, self.noisy = mixes, noisy

    def forward(self, x: Any) -> Any:
        out = self.inner(x)
        if self.noisy:
            out = nn.functional.dropout(out, 0.5, training=True)
        return out / out.abs().sum(0) if self.mixes else out


def infers(**options: bool) -> Workload:
    torch.manual_seed(0)
    return Workload(model=Plain(**options).eval(), inputs=(torch.randn(4, 16),))


def with_weights(change: Callable[[Any], Any]) -> Callable[..., Any]:
    def apply(workload: Workload, kept: Any) -> Any:
        weight = workload.model.inner.weight
        own = weight.data
        weight.data = change(own)
        yield workload
        weight.data = own

    return apply


def test_of_fewer_bits_the_error_is_said_and_no_rounding_is_asked_of_it() -> None:
    found = compared(infers(), with_weights(lambda one: (one * 64).round() / 64), numerics="statistics")
    assert (found.ok, found.reference) == (True, "float64")
    assert found.output is not None
    assert found.output.treated is not None
    assert 1e-3 < found.output.treated < 0.1
    assert found.why.startswith("it computes in fewer bits: the output is off by 0.0")
    assert compared(infers(), with_weights(lambda one: (one * 64).round() / 64), numerics="rounding").ok is False


@pytest.mark.parametrize(
    ("change", "why"), [(lambda one: -one, "more than fewer bits explain"), (lambda one: one / 0, "no longer finite")]
)
def test_what_fewer_bits_do_not_explain_is_wrong(change: Callable[[Any], Any], why: str) -> None:
    found = compared(infers(), with_weights(change), numerics="statistics")
    assert found.ok is False
    assert why in found.why


def test_fewer_bits_of_what_draws_random_numbers_are_looked_at_for_being_finite() -> None:
    found = compared(infers(noisy=True), with_weights(lambda one: (one * 64).round() / 64), numerics="statistics")
    assert (found.ok, found.reference) == (True, "none")
    assert "draws random numbers" in found.why
    assert compared(infers(noisy=True), with_weights(lambda one: one / 0), numerics="statistics").ok is False


@pytest.mark.parametrize("mixes", [False, True])
def test_twice_the_batch_of_a_model_that_is_not_trained_gives_the_same_rows(mixes: bool) -> None:
    workload = infers(mixes=mixes)
    (twice,) = larger_batch.ways(workload)
    assert isinstance(twice, TreatmentWay)
    assert twice.numerics == "rounding"
    workload.model(*workload.inputs)
    arms = Arm(workload, ()), Arm(workload, (twice,))
    found = numerics.compare(workload, *arms, twice, snapshot(workload))
    assert found.ok is not mixes  # what is a share of all rows is another number among twice as many
    assert found.output is not None
    assert found.output.treated == pytest.approx(0.5 if mixes else 0.0, abs=1e-5)


def test_twice_the_batch_of_what_is_trained_is_another_training() -> None:
    (twice,) = larger_batch.ways(fast(fakes.training()))
    assert isinstance(twice, TreatmentWay)
    assert twice.numerics == "statistics"


class Recurrent(nn.Module):
    """Gives its states as an LSTM does: layers first, then the batch; and a table that is no batch's."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(8, 16, num_layers=2, batch_first=True)

    def forward(self, x: Any) -> Any:
        out, (hidden, _) = self.inner(x)
        return out, hidden, torch.ones(2, 3)


def test_the_first_batch_is_told_by_what_one_batch_gives() -> None:
    """Of one sequence and two layers the states of two sequences are two in two dimensions."""
    torch.manual_seed(0)
    workload = Workload(model=Recurrent().eval(), inputs=(torch.randn(1, 5, 8),))
    (twice,) = larger_batch.ways(workload)
    assert isinstance(twice, TreatmentWay)
    workload.model(*workload.inputs)
    found = numerics.compare(workload, Arm(workload, ()), Arm(workload, (twice,)), twice, snapshot(workload))
    assert (found.ok, found.why) == (True, "")
